// SPDX-License-Identifier: MIT OR Apache-2.0
//! One request after the other, by `pread` and `pwrite` on mapped memory.

use std::os::fd::BorrowedFd;

use rustix::io::Errno as Os;

use crate::error::Direction;
use crate::memory::Mapping;
use crate::raw;
use crate::shared::{self, Shared};
use crate::uring::{Job, Stop};

/// Moves all bytes of the job, or says why not.
pub(crate) fn run(job: &Job<'_>, mapping: &Mapping) -> Result<(), Stop> {
    let extent = job.extent;
    assert!(extent.buf_end() <= mapping.len());
    let mut done = 0;
    while done < extent.len {
        if job.watch.is_cancelled() {
            return Err(Stop::Cancelled { done });
        }
        let offset = extent.file + done;
        let needed = job.needed_end.saturating_sub(offset);
        let len = job.chunk.min(extent.len - done) as usize;
        let start = mapping.at(extent.buf + done);
        let result = match job.direction {
            // SAFETY: the range lies in the mapping, as was asserted, and is there to be loaded to.
            Direction::Load => unsafe { read_at(job.file, start, len, offset) },
            // SAFETY: as above; it is only read.
            Direction::Save => unsafe { write_at(job.file, start, len, offset) },
        };
        let moved = match result {
            Ok(moved) => moved as u64,
            Err(Os::INTR) => continue,
            Err(Os::INVAL) if job.ends_within_block(offset) => {
                return Err(Stop::Short { end: offset });
            }
            Err(errno) => return Err(Stop::Failed { offset, errno: errno.into(), done }),
        };
        job.watch.add(moved.min(needed));
        if moved >= needed {
            // What is behind the range may lie beyond the end of the file.
            return Ok(());
        }
        if moved == 0 {
            return Err(Stop::Short { end: offset });
        }
        done += moved;
    }
    Ok(())
}

/// Bytes that are copied at a time.
const COPIED: usize = 1 << 20;

/// Reads into mapped memory. A file system that keeps no page cache for the file (9p, FUSE with
/// `direct_io`) moves bytes to pages, and of a dma-buf's mapping it finds none: `EFAULT`. These
/// bytes are copied.
///
/// # Safety
///
/// The range is of a mapping, and there to be written.
pub(crate) unsafe fn read_at(
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
