// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files read into mapped memory and written from it.

use std::os::fd::BorrowedFd;

use super::raw;
use rustix::io::Errno as Os;

use super::Mapping;
use super::shared::{self, Shared};
use crate::errno::Errno;

impl Mapping {
    /// Reads up to `len` bytes from `offset` in a file to `at` in the memory, which its owner may
    /// write. Returns how many.
    pub(crate) fn read_from(
        &self,
        at: u64,
        len: u64,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> rustix::io::Result<u64> {
        let to = self.range(at, len as usize);
        // SAFETY: the range lies in the mapping, and is there to be read into.
        unsafe { read_at(file, to, len as usize, offset) }.map(|moved| moved as u64)
    }

    /// Reads what there is, up to `len` bytes, from a device or a socket to `at` in the memory, which
    /// its owner may write: read(2). Returns how many.
    ///
    /// # Errors
    ///
    /// The kernel's error number.
    ///
    /// # Panics
    ///
    /// If the range is not in the memory.
    pub fn receive(&self, at: u64, len: u64, from: BorrowedFd<'_>) -> Result<u64, Errno> {
        let to = self.range(at, len as usize);
        // SAFETY: the range lies in the mapping, and is there to be read into.
        counted(unsafe { raw::read(from, to, len as usize) })
    }

    /// Writes what there is room for, up to `len` bytes from `at` in the memory, to a device: write(2).
    /// Returns how many.
    ///
    /// # Errors
    ///
    /// The kernel's error number.
    ///
    /// # Panics
    ///
    /// If the range is not in the memory.
    pub fn give(&self, at: u64, len: u64, to: BorrowedFd<'_>) -> Result<u64, Errno> {
        let from = self.range(at, len as usize);
        // SAFETY: the range lies in the mapping.
        counted(unsafe { raw::write(to, from, len as usize) })
    }

    /// As [`give`](Self::give) to a socket, without a signal if the other end is gone: send(2) with
    /// `MSG_NOSIGNAL`.
    ///
    /// # Errors
    ///
    /// The kernel's error number.
    ///
    /// # Panics
    ///
    /// If the range is not in the memory.
    pub fn send(&self, at: u64, len: u64, to: BorrowedFd<'_>) -> Result<u64, Errno> {
        let from = self.range(at, len as usize);
        // SAFETY: the range lies in the mapping.
        counted(unsafe { raw::send(to, from, len as usize) })
    }

    /// Writes up to `len` bytes from `at` in the memory to `offset` in a file. Returns how many.
    pub(crate) fn write_to(
        &self,
        at: u64,
        len: u64,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> rustix::io::Result<u64> {
        let from = self.range(at, len as usize);
        // SAFETY: the range lies in the mapping.
        unsafe { write_at(file, from, len as usize, offset) }.map(|moved| moved as u64)
    }
}

/// Bytes that are copied at a time.
const COPIED: usize = 1 << 20;

fn counted(moved: rustix::io::Result<usize>) -> Result<u64, Errno> {
    moved.map(|bytes| bytes as u64).map_err(Errno::from)
}

/// A file system that keeps no page cache for the file (9p, FUSE with `direct_io`) moves bytes to
/// pages, and of a dma-buf's mapping it finds none: `EFAULT`. These bytes are copied.
///
/// # Safety
///
/// The range is of a mapping, and there to be written.
unsafe fn read_at(
    file: BorrowedFd<'_>,
    to: *mut u8,
    len: usize,
    offset: u64,
) -> rustix::io::Result<usize> {
    // SAFETY: the caller's promise.
    match unsafe { raw::pread(file, to, len, offset) } {
        Err(Os::FAULT) => {
            let mut copy = vec![0; len.min(COPIED)];
            let moved = rustix::io::pread(file, &mut copy, offset)?;
            // SAFETY: the copy is this function's own and as long; the caller's promise.
            unsafe { shared::copy_by_kernel(copy.as_ptr(), to, moved, Shared::To)? };
            Ok(moved)
        }
        result => result,
    }
}

/// Writes from mapped memory, in the same way.
///
/// # Safety
///
/// The range is of a mapping.
unsafe fn write_at(
    file: BorrowedFd<'_>,
    from: *const u8,
    len: usize,
    offset: u64,
) -> rustix::io::Result<usize> {
    // SAFETY: the caller's promise.
    match unsafe { raw::pwrite(file, from, len, offset) } {
        Err(Os::FAULT) => {
            let mut copy = vec![0; len.min(COPIED)];
            // SAFETY: the copy is this function's own and as long; the caller's promise.
            unsafe {
                shared::copy_by_kernel(from, copy.as_mut_ptr(), copy.len(), Shared::From)?;
            }
            rustix::io::pwrite(file, &copy, offset)
        }
        result => result,
    }
}
