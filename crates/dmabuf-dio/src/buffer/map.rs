// SPDX-License-Identifier: MIT OR Apache-2.0
//! Views of a buffer's content.
//!
//! A view combines a mapping with the CPU access that devices without coherent memory need: the
//! access begins when the view is created and ends when it is dropped.
//!
//! The memory is shared with other processes and devices, which Rust references do not allow. The
//! safe methods therefore copy, and tolerate concurrent writes and shrinking; the methods that
//! return a slice are `unsafe`.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use super::cpu_access::CpuAccess;
use super::private::Private;
use super::shared::{Shared, check_range};
use crate::error::{Error, Result};
use crate::memory::Mapping;

/// A view for reading. Created by [`Buffer::map`](crate::Buffer::map).
///
/// `Send` and `Sync`. Do not drop it in a child of `fork(2)`: that would end the parent's CPU
/// access.
#[derive(Debug)]
pub struct Map<'a>(View<'a>);

/// A view for reading and writing. Created by [`Buffer::map_mut`](crate::Buffer::map_mut).
///
/// `Send`, `Sync` and `fork(2)`: as for [`Map`].
#[derive(Debug)]
pub struct MapMut<'a>(View<'a>);

impl Shared {
    /// Maps the buffer for reading and begins CPU access.
    pub(crate) fn map(&self) -> Result<Map<'_>> {
        let mapping = self.mapping(false)?;
        Ok(Map(View::whole(CpuAccess::reading(self)?, mapping)))
    }

    /// Maps the buffer for reading and writing and begins CPU access.
    pub(crate) fn map_mut(&mut self) -> Result<MapMut<'_>> {
        self.map_shared()
    }

    /// The same, for callers that promise to write no range that others use.
    pub(crate) fn map_shared(&self) -> Result<MapMut<'_>> {
        if !self.is_writable() {
            return Err(Error::ReadOnlyBuffer);
        }
        let mapping = self.mapping(true)?;
        Ok(MapMut(View::whole(CpuAccess::writing(self)?, mapping)))
    }
}

#[derive(Debug)]
struct View<'a> {
    // Declared before the mapping, so that it is dropped first. None: no device can reach the
    // memory.
    access: Option<CpuAccess<'a>>,
    mapping: Arc<Mapping>,
    /// The buffer's bytes in the mapping.
    own: Range<u64>,
}

impl<'a> View<'a> {
    fn whole(access: CpuAccess<'a>, mapping: Mapping) -> Self {
        let own = 0..mapping.len();
        Self { access: Some(access), mapping: Arc::new(mapping), own }
    }

    fn private(memory: &Private) -> Self {
        Self { access: None, mapping: Arc::clone(memory.mapping()), own: memory.own() }
    }

    fn len(&self) -> u64 {
        self.own.end - self.own.start
    }

    fn first(&self) -> *mut u8 {
        self.mapping.at(self.own.start)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        check_range(self.len(), offset, out.len() as u64)?;
        let (out, len) = (out.as_mut_ptr().cast::<MaybeUninit<u8>>(), out.len());
        // SAFETY: these are the same bytes, and `read` writes only initialised ones.
        self.mapping.read(self.own.start + offset, unsafe { slice::from_raw_parts_mut(out, len) })
    }
}

macro_rules! common_methods {
    () => {
        /// Length in bytes.
        pub fn len(&self) -> u64 {
            self.0.len()
        }

        /// Whether the view has no bytes.
        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        /// Copies bytes from `offset` into `out`. Each byte written concurrently may be old or new.
        ///
        /// # Errors
        ///
        /// [`Error::RangeBeyondBuffer`](crate::Error::RangeBeyondBuffer);
        /// [`Error::Buffer`](crate::Error::Buffer) with `EFAULT` if the buffer is a memfd that was
        /// shrunk; some bytes may have been copied.
        pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
            self.0.read_at(offset, out)
        }

        /// Copies the whole buffer.
        ///
        /// # Errors
        ///
        /// [`Error::Buffer`](crate::Error::Buffer) as for [`read_at`](Self::read_at).
        pub fn to_vec(&self) -> Result<Vec<u8>> {
            self.0.mapping.to_vec(self.0.own.start, self.len())
        }

        /// The address of the first byte, at least page-aligned, except in a part
        /// ([`Buffer::into_parts`](crate::Buffer::into_parts)).
        pub fn as_ptr(&self) -> *const u8 {
            self.0.first()
        }

        /// Borrows the content as a slice.
        ///
        /// # Safety
        ///
        /// While the slice lives, nothing may write or shrink the buffer: no device, no other
        /// process, no other mapping in this one.
        pub unsafe fn as_slice(&self) -> &[u8] {
            // SAFETY: the mapping has `len` bytes and lives as long as `self`; the caller promises
            // that nothing writes them.
            unsafe { slice::from_raw_parts(self.as_ptr(), self.len() as usize) }
        }

        /// Ends the access like dropping the view, and reports a failure to do so.
        ///
        /// # Errors
        ///
        /// [`Error::Buffer`](crate::Error::Buffer).
        pub fn finish(self) -> Result<()> {
            self.0.access.map_or(Ok(()), CpuAccess::end)
        }
    };
}

impl Map<'_> {
    pub(super) fn private(memory: &Private) -> Self {
        Self(View::private(memory))
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.0.mapping
    }

    common_methods!();
}

impl MapMut<'_> {
    pub(super) fn private(memory: &Private) -> Self {
        Self(View::private(memory))
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.0.mapping
    }

    common_methods!();

    /// Copies `bytes` to byte `offset`.
    ///
    /// # Errors
    ///
    /// As for [`read_at`](Self::read_at).
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        check_range(self.0.len(), offset, bytes.len() as u64)?;
        self.0.mapping.write(self.0.own.start + offset, bytes)
    }

    /// Sets `length` bytes from byte `offset` on to `byte`.
    ///
    /// # Errors
    ///
    /// As for [`read_at`](Self::read_at).
    pub fn fill_at(&mut self, offset: u64, length: u64, byte: u8) -> Result<()> {
        check_range(self.0.len(), offset, length)?;
        self.0.mapping.fill(self.0.own.start + offset, length, byte)
    }

    /// The address of the first byte, as [`as_ptr`](Self::as_ptr).
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.first()
    }

    /// Borrows the content as a mutable slice.
    ///
    /// # Safety
    ///
    /// While the slice lives, nothing else may read, write or shrink the buffer: no device, no
    /// other process, no other mapping in this one.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has `len` bytes and lives as long as `self`; the caller promises that
        // nothing else uses them.
        unsafe { slice::from_raw_parts_mut(self.as_mut_ptr(), self.len() as usize) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Buffer, Error};

    #[test]
    fn written_bytes_are_read_back() {
        let mut buf = Buffer::memfd(8192).expect("memfd");
        let last = buf.len() - 1;
        let mut map = buf.map_mut().expect("map");
        map.write_at(4095, b"abc").expect("write");
        map.fill_at(0, 2, 7).expect("fill");
        assert!(matches!(map.write_at(last, b"ab"), Err(Error::RangeBeyondBuffer { .. })));
        map.finish().expect("finish");
        let map = buf.map().expect("map");
        let mut out = [0; 5];
        map.read_at(4094, &mut out).expect("read");
        assert_eq!(&out, b"\0abc\0");
        assert_eq!(map.to_vec().expect("all")[..3], [7, 7, 0]);
        assert!(matches!(map.read_at(u64::MAX, &mut out), Err(Error::RangeOverflow { .. })));
    }
}
