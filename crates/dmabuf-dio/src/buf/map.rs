// SPDX-License-Identifier: MIT OR Apache-2.0
//! Views of a buffer's content.
//!
//! A view is a mapping together with the CPU access that devices without coherent memory have to
//! know of: it begins when the view is made and ends when the view is dropped.
//!
//! The memory is shared with other processes and with devices, which Rust's references do not
//! allow for. So the safe methods copy, in a way that may meet with others' writes and with others'
//! shrinking the buffer, and those that lend a slice are `unsafe`.

use std::mem::MaybeUninit;
use std::slice;

use super::DmaBuf;
use super::cpu_access::CpuAccess;
use crate::error::{Error, Result};
use crate::memory::Mapping;

/// A view for reading. Made by [`DmaBuf::map`].
#[derive(Debug)]
pub struct Map<'a>(View<'a>);

/// A view for reading and writing. Made by [`DmaBuf::map_mut`].
#[derive(Debug)]
pub struct MapMut<'a>(View<'a>);

impl DmaBuf {
    /// Maps the buffer for reading and begins CPU access to it. Waits for devices that write it.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`], with `ENODEV` or the like if the exporter offers no mapping.
    pub fn map(&self) -> Result<Map<'_>> {
        let mapping = self.mapping(false)?;
        Ok(Map(View { buf: self, access: CpuAccess::reading(self)?, mapping }))
    }

    /// Maps the buffer for reading and writing and begins CPU access to it. Waits for devices
    /// that use it.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnlyBuffer`]; [`Error::Buffer`] as for [`map`](Self::map).
    pub fn map_mut(&mut self) -> Result<MapMut<'_>> {
        self.map_shared()
    }

    /// As [`map_mut`](Self::map_mut), for transfers that share the buffer with no one by rule of
    /// their callers.
    pub(crate) fn map_shared(&self) -> Result<MapMut<'_>> {
        if !self.is_writable() {
            return Err(Error::ReadOnlyBuffer);
        }
        let mapping = self.mapping(true)?;
        Ok(MapMut(View { buf: self, access: CpuAccess::writing(self)?, mapping }))
    }
}

#[derive(Debug)]
struct View<'a> {
    buf: &'a DmaBuf,
    // Before the mapping: it ends before that goes.
    access: CpuAccess<'a>,
    mapping: Mapping,
}

impl View<'_> {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.buf.check_range(offset, out.len() as u64)?;
        let (out, len) = (out.as_mut_ptr().cast::<MaybeUninit<u8>>(), out.len());
        // SAFETY: these are the same bytes, and `read` puts none there that is not initialised.
        self.mapping.read(offset, unsafe { slice::from_raw_parts_mut(out, len) })
    }
}

macro_rules! common_methods {
    () => {
        /// Length in bytes.
        pub fn len(&self) -> u64 {
            self.0.mapping.len()
        }

        /// Whether the view has no bytes.
        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        /// Copies bytes from `offset` on into `out`. What somebody writes meanwhile arrives or
        /// does not, each byte for itself.
        ///
        /// # Errors
        ///
        /// [`Error::RangeBeyondBuffer`](crate::Error::RangeBeyondBuffer);
        /// [`Error::Buffer`](crate::Error::Buffer) with `EFAULT` if the buffer is a memfd that
        /// somebody has shrunk: some bytes may have been copied then.
        pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
            self.0.read_at(offset, out)
        }

        /// Copies all of it.
        ///
        /// # Errors
        ///
        /// [`Error::Buffer`](crate::Error::Buffer) as for [`read_at`](Self::read_at).
        pub fn to_vec(&self) -> Result<Vec<u8>> {
            self.0.mapping.to_vec(0, self.len())
        }

        /// The address of the first byte, aligned to the page size at least.
        pub fn as_ptr(&self) -> *const u8 {
            self.0.mapping.as_ptr()
        }

        /// Lends the content.
        ///
        /// # Safety
        ///
        /// While the slice lives, nobody writes or shrinks the buffer: no device, no other
        /// process, no other mapping in this one.
        pub unsafe fn as_slice(&self) -> &[u8] {
            // SAFETY: the mapping has `len` bytes and lives as long as `self`; that nobody
            // writes them is the caller's promise.
            unsafe { slice::from_raw_parts(self.as_ptr(), self.len() as usize) }
        }

        /// Ends the access, as dropping the view does, and says if that fails.
        ///
        /// # Errors
        ///
        /// [`Error::Buffer`](crate::Error::Buffer).
        pub fn finish(self) -> Result<()> {
            self.0.access.end()
        }
    };
}

impl Map<'_> {
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.0.mapping
    }

    common_methods!();
}

impl MapMut<'_> {
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.0.mapping
    }

    common_methods!();

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// As for [`read_at`](Self::read_at).
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.buf.check_range(offset, bytes.len() as u64)?;
        self.0.mapping.write(offset, bytes)
    }

    /// Sets `length` bytes from `offset` on to `byte`.
    ///
    /// # Errors
    ///
    /// As for [`read_at`](Self::read_at).
    pub fn fill_at(&mut self, offset: u64, length: u64, byte: u8) -> Result<()> {
        self.0.buf.check_range(offset, length)?;
        self.0.mapping.fill(offset, length, byte)
    }

    /// The address of the first byte, aligned to the page size at least.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.mapping.as_ptr()
    }

    /// Lends the content for writing.
    ///
    /// # Safety
    ///
    /// While the slice lives, nobody else reads, writes or shrinks the buffer: no device, no other
    /// process, no other mapping in this one.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has `len` bytes and lives as long as `self`; that nobody else
        // uses them is the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.as_mut_ptr(), self.len() as usize) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{DmaBuf, Error};

    #[test]
    fn what_is_written_is_read() {
        let mut buf = DmaBuf::memfd(8192).expect("memfd");
        let mut map = buf.map_mut().expect("map");
        map.write_at(4095, b"abc").expect("write");
        map.fill_at(0, 2, 7).expect("fill");
        assert!(matches!(map.write_at(8191, b"ab"), Err(Error::RangeBeyondBuffer { .. })));
        map.finish().expect("finish");
        let map = buf.map().expect("map");
        let mut out = [0; 5];
        map.read_at(4094, &mut out).expect("read");
        assert_eq!(&out, b"\0abc\0");
        assert_eq!(map.to_vec().expect("all")[..3], [7, 7, 0]);
        assert!(matches!(map.read_at(u64::MAX, &mut out), Err(Error::RangeOverflow { .. })));
    }
}
