// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared mappings, in two parts: the second begins at an offset, as programs' do.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::pages::PAGE;

/// `MADV_PAGEOUT`
pub(crate) const PAGE_OUT: i32 = 21;
/// `MADV_COLLAPSE`
pub(crate) const COLLAPSE: i32 = 25;

/// A part of a mapping.
struct Part {
    start: NonNull<u8>,
    length: usize,
}

impl Part {
    fn of(fd: BorrowedFd<'_>, at: usize, length: usize, writable: bool) -> Result<Self, String> {
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses an unused address.
        let start =
            unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, fd, at as u64) };
        let start = start.map_err(|errno| format!("mmap at {at:#x}: {errno}"))?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or("mmap returned 0")?, length })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `of`, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A whole buffer or memfd.
pub(crate) struct Mapping(Vec<Part>);

impl Mapping {
    pub(crate) fn of(fd: BorrowedFd<'_>, length: usize, writable: bool) -> Result<Self, String> {
        Self::cut(fd, length, length / 2 / PAGE * PAGE, writable)
    }

    /// In one part, as huge pages need it.
    pub(crate) fn whole(fd: BorrowedFd<'_>, length: usize, writable: bool) -> Result<Self, String> {
        Self::cut(fd, length, 0, writable)
    }

    fn cut(
        fd: BorrowedFd<'_>,
        length: usize,
        first: usize,
        writable: bool,
    ) -> Result<Self, String> {
        let parts = [(0, first), (first, length - first)];
        let parts = parts.into_iter().filter(|(_, length)| *length > 0);
        Ok(Self(parts.map(|(at, len)| Part::of(fd, at, len, writable)).collect::<Result<_, _>>()?))
    }

    /// The bytes at this moment.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.iter().map(|part| part.length).sum());
        for part in &self.0 {
            // SAFETY: the range is mapped; others may store into it, but not while this thread,
            // the only one of the campaign, reads.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(part.start.as_ptr(), part.length)
            });
        }
        bytes
    }

    /// Reads a byte, which maps its page.
    pub(crate) fn touch(&self, at: usize) {
        let mut start = 0;
        for part in &self.0 {
            if (start..start + part.length).contains(&at) {
                // SAFETY: the address lies in the mapped range.
                unsafe { part.start.as_ptr().add(at - start).read_volatile() };
            }
            start += part.length;
        }
    }

    /// Stores into a mapping that is writable.
    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        let mut start = 0;
        for part in &self.0 {
            let from = at.clamp(start, start + part.length);
            let end = (at + bytes.len()).clamp(start, start + part.length);
            if from < end {
                // SAFETY: the target lies in the mapped range, the source in `bytes`.
                unsafe {
                    let target = part.start.as_ptr().add(from - start);
                    target.copy_from_nonoverlapping(bytes[from - at..].as_ptr(), end - from);
                }
            }
            start += part.length;
        }
    }

    /// `madvise(2)` on the whole; what it refuses is left as it is.
    pub(crate) fn advise(&self, advice: i32) {
        for part in &self.0 {
            // SAFETY: the range is mapped; the advice does not change what a shared mapping holds.
            unsafe { libc::madvise(part.start.as_ptr().cast(), part.length, advice) };
        }
    }
}
