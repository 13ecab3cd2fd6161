// SPDX-License-Identifier: MIT OR Apache-2.0
//! A buffer in the address space.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr;

use rustix::io::Result;
use rustix::mm::{self, MapFlags, ProtFlags};

/// A shared mapping that ends with its owner. Pages are not touched before they are used.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: *mut c_void,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes for reading and writing.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: u64) -> Result<Self> {
        let len = len as usize;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: asks for new address space where the kernel likes; no existing memory changes.
        let start = unsafe { mm::mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0)? };
        Ok(Self { start, len })
    }

    /// Allocates the pages of a range, which keep their content.
    pub(crate) fn populate(&mut self, at: u64, len: u64) -> Result<()> {
        assert!(at + len <= self.len as u64, "outside the mapping");
        // SAFETY: this advice keeps the content; the range lies in the mapping.
        unsafe {
            mm::madvise(
                self.start.byte_add(at as usize),
                len as usize,
                mm::Advice::LinuxPopulateWrite,
            )
        }
    }

    /// The content.
    ///
    /// # Safety
    ///
    /// While the slice lives, nobody else uses the buffer, and nobody shrinks it.
    pub(crate) unsafe fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has `len` bytes and lives as long as `self`; that nobody else uses
        // them is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; slices of it borrow the mapping.
        let _ = unsafe { mm::munmap(self.start, self.len) };
    }
}
