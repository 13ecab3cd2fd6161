// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mapped memory.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::outcome::{Result, failed};

/// The size of a huge page, in bytes. Where the kernel has none and does not say, what one page of a
/// page table maps.
pub(crate) fn huge_page() -> u64 {
    static SIZE: OnceLock<u64> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let told = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
        let told = told.ok().and_then(|text| text.trim().parse::<u64>().ok());
        let page = rustix::param::page_size() as u64;
        told.filter(|size| size.is_power_of_two()).unwrap_or(page * (page / 8))
    })
}

/// A mapping, unmapped when dropped. Its pages are not populated.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: *mut c_void,
    len: usize,
    /// The whole mapping, with the unused part before an aligned start.
    reserved: (*mut c_void, usize),
}

/// Page size of anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Aligned, with huge pages if there are any.
    Huge,
    /// The smallest pages.
    Small,
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Mapping {
    /// Maps the first `len` bytes of a buffer for reading and writing.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: u64) -> Result<Self> {
        Self::shared(fd, len, READ_WRITE)
    }

    /// Maps the first `len` bytes of a buffer, or of a file for reading.
    pub(crate) fn shared(fd: BorrowedFd<'_>, len: u64, protection: ProtFlags) -> Result<Self> {
        let len = len as usize;
        // SAFETY: asks for new address space where the kernel likes; no existing memory changes.
        let start = unsafe { mm::mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0) };
        let start = start.map_err(failed("mmap"))?;
        Ok(Self { start, len, reserved: (start, len) })
    }

    /// Maps private memory.
    pub(crate) fn anonymous(len: u64, pages: Pages) -> Result<Self> {
        let (align, advice) = match pages {
            Pages::Huge => (huge_page(), Advice::LinuxHugepage),
            Pages::Small => (0, Advice::LinuxNoHugepage),
        };
        let mapping = Self::private(len, align, READ_WRITE, MapFlags::PRIVATE)?;
        // SAFETY: this advice changes neither content nor validity of the mapping. It fails where
        // the kernel has no huge pages: then they are small.
        let _ = unsafe { mm::madvise(mapping.start, mapping.len, advice) };
        Ok(mapping)
    }

    /// Maps the first `len` bytes of a buffer for reading and writing, aligned for huge pages.
    pub(crate) fn aligned(fd: BorrowedFd<'_>, len: u64) -> Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let mapping = Self::private(len, huge_page(), ProtFlags::empty(), flags)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: replaces a part of the address space that was reserved above, which nobody uses.
        unsafe { mm::mmap(mapping.start, mapping.len, READ_WRITE, flags, fd, 0) }
            .map_err(failed("mmap"))?;
        Ok(mapping)
    }

    /// New address space whose start is a multiple of `align`, if that is not 0.
    fn private(len: u64, align: u64, protection: ProtFlags, flags: MapFlags) -> Result<Self> {
        let (len, slack) = (len as usize, align as usize);
        // SAFETY: asks for new address space where the kernel likes; no existing memory changes.
        let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), len + slack, protection, flags) };
        let base = base.map_err(failed("mmap"))?;
        let skip = if slack == 0 { 0 } else { base.align_offset(slack).min(slack) };
        // SAFETY: `skip` is at most the slack, so the address is within what was mapped.
        let start = unsafe { base.byte_add(skip) };
        Ok(Self { start, len, reserved: (base, len + slack) })
    }

    /// Populates the pages of a range; existing ones keep their content.
    pub(crate) fn populate(&mut self, at: u64, len: u64) -> Result<()> {
        assert!(at + len <= self.len as u64, "outside the mapping");
        // SAFETY: this advice keeps the content; the range lies in the mapping.
        unsafe {
            mm::madvise(self.start.byte_add(at as usize), len as usize, Advice::LinuxPopulateWrite)
        }
        .map_err(failed("MADV_POPULATE_WRITE"))
    }

    /// Its first byte.
    pub(crate) fn address(&self) -> *const u8 {
        self.start.cast()
    }

    /// The content.
    ///
    /// # Safety
    ///
    /// While the slice lives, the mapped object is neither modified nor shrunk.
    pub(crate) unsafe fn content(&self) -> &[u8] {
        // SAFETY: the mapping has `len` bytes and lives as long as `self`; that nobody else
        // changes them is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }

    /// The content, writable.
    ///
    /// # Safety
    ///
    /// The mapping is not of a file. While the slice lives, the buffer is not used otherwise and not
    /// shrunk.
    pub(crate) unsafe fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has `len` bytes and lives as long as `self`; that nobody else uses
        // them is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.len) }
    }
}

/// Allocates the whole huge pages among `bytes`, the first of which is aligned for them. Those that have
/// no pages yet are zeroed, others keep their content.
pub(crate) fn collapse(bytes: &mut [u8]) -> Result<(), Errno> {
    let huge = huge_page() as usize;
    let whole = bytes.len() / huge * huge;
    // Only a range with a page in it is collapsed.
    for page in bytes[..whole].chunks_mut(huge) {
        page[0] = 0;
    }
    if whole == 0 {
        return Ok(());
    }
    // SAFETY: this advice keeps the content of the range, which the slice contains.
    match unsafe { libc::madvise(bytes.as_mut_ptr().cast(), whole, libc::MADV_COLLAPSE) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps what was mapped; slices of it borrow the mapping.
        let _ = unsafe { mm::munmap(self.reserved.0, self.reserved.1) };
    }
}
