// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memfd of small pages, written from a stage: memory of the process that the file is read into
//! piece by piece.
//!
//! To have the disk write into small pages each of them has to be zeroed, mapped and pinned, and
//! that takes more of the CPU than copying into them, which the kernel does without zeroing them
//! first (docs/performance.md).

use std::os::fd::AsFd;
use std::slice;

use io_uring::IoUring;
use rustix::io::Errno as Os;

use super::{Layout, Moved, Task, buffered, plain};
use crate::buf::DmaBuf;
use crate::error::{Error, Result};
use crate::memory::{self, HUGE_PAGE, Mapping, PageSizes, page_size, round_up};
use crate::uring::{self, Job, Memory, Place, Progress, Stop};

/// Chunks that the stage has room for beyond those in flight, so that the next request need not
/// wait for a copy.
const SPARE: u64 = 2;
/// Larger than this the stage is only if three chunks are.
const MOST: u64 = 64 << 20;
/// Copied at a time.
const STEP: u64 = 4 << 20;

/// Loads the range of a task into a new memfd that is laid out for it.
pub(crate) fn load(
    task: &Task<'_>,
    ring: Option<IoUring>,
    buf: &DmaBuf,
    layout: Layout,
) -> Result<Moved> {
    let end = layout.data_offset + task.length;
    let extent = task.extent_in(layout);
    let len = extent.len;
    let memory = stage(task, len, layout.buffer)?;
    let mut stage = Stage { memory, buf, len, end, copied: layout.data_offset };
    let mut edge = |_| -> Result<u64> { unreachable!("a buffer is laid out in whole blocks") };
    let mut moved = if let Some(mut ring) = ring {
        // SAFETY: the stage outlives this call, and its places lie in its memory, which outlives
        // the process if it is kept.
        let mut core = |job: &Job<'_>| unsafe {
            uring::run(&mut ring, job, &mut stage)?;
            stage.finish(job)
        };
        task.in_parts(extent, &mut core, &mut edge)?
    } else {
        let mut core = |job: &Job<'_>| {
            plain::run(job, &stage.memory)?;
            stage.finish(job)
        };
        task.in_parts(extent, &mut core, &mut edge)?
    };
    // The kernel may have chosen huge ones all the same.
    let huge = if len >= HUGE_PAGE && memory::memfds_are_huge() { buf.page_sizes() } else { None };
    moved.pages = huge.or(Some(PageSizes { page_size: page_size(), huge_bytes: 0 }));
    if len >= HUGE_PAGE {
        moved.notes.push(format!(
            "the CPU copied the bytes: that takes less than to make pages of {} KiB ready for the \
             disk",
            page_size() / 1024
        ));
    }
    Ok(moved)
}

/// Memory for the stage of a file of `len` bytes that goes into a buffer of `buffer` bytes.
fn stage(task: &Task<'_>, len: u64, buffer: u64) -> Result<Mapping> {
    let chunks = (u64::from(task.depth()) + SPARE).min((MOST / task.chunk()).max(1 + SPARE));
    let window = round_up(len, page_size()).unwrap_or(len).min(task.chunk() * chunks);
    memory::ensure_available(buffer.saturating_add(window))?;
    let stage = Mapping::anonymous(window)?;
    stage.advise(task.options.huge_pages);
    Ok(stage)
}

/// A window that moves over the buffer: memory for what is being read and not copied yet.
struct Stage<'a> {
    memory: Mapping,
    buf: &'a DmaBuf,
    /// Of what is read.
    len: u64,
    /// Of what is wanted in the buffer.
    end: u64,
    /// Up to where the buffer has it.
    copied: u64,
}

impl Stage<'_> {
    /// Copies all up to `until`, which has been read.
    fn copy(&mut self, until: u64) -> Result<()> {
        let until = until.min(self.end);
        while self.copied < until {
            let (start, limit) = self.find(self.copied);
            let len = until.min(limit) - self.copied;
            // SAFETY: the range lies in the mapping, and all that was read there is complete.
            let bytes = unsafe { slice::from_raw_parts(self.memory.at(start), len as usize) };
            write_all(self.buf, bytes, self.copied)?;
            self.copied += len;
        }
        Ok(())
    }

    /// Copies what is left of a job of which everything has been read.
    fn finish(&mut self, job: &Job<'_>) -> Result<(), Stop> {
        while self.copied < self.end {
            if job.watch.is_cancelled() {
                return Err(Stop::Cancelled { done: self.copied });
            }
            self.copy(self.copied + STEP).map_err(Stop::Memory)?;
        }
        Ok(())
    }

    /// Where in the memory a byte of the buffer is, and up to where in the buffer that holds.
    fn find(&self, offset: u64) -> (u64, u64) {
        let window = self.memory.len();
        let at = offset % window;
        (at, (offset - at + window).min(self.len))
    }
}

impl Memory for Stage<'_> {
    fn prepare(&mut self, ring: &IoUring, end: u64, so_far: Progress) -> Result<bool> {
        let in_the_way = end.saturating_sub(self.memory.len());
        if in_the_way > so_far.done {
            return Ok(false);
        }
        if in_the_way > self.copied {
            // The disk is to be busy meanwhile. What is not submitted now is so later.
            let _ = ring.submit();
            self.copy(in_the_way)?;
        }
        Ok(true)
    }

    fn meanwhile(&mut self, ring: &IoUring, so_far: Progress) -> Result<()> {
        if so_far.done <= self.copied {
            return Ok(());
        }
        let _ = ring.submit();
        self.copy(so_far.done.min(self.copied + STEP))
    }

    fn place(&self, offset: u64) -> (Place, u64) {
        let (at, limit) = self.find(offset);
        (Place::Plain { addr: self.memory.at(at) as u64 }, limit)
    }

    fn keep(&self) {
        self.memory.keep();
    }
}

fn write_all(buf: &DmaBuf, bytes: &[u8], offset: u64) -> Result<()> {
    buffered::write_fully(buf.as_fd(), bytes, offset).map_err(|(_, errno)| match errno {
        // There is nothing else that a memfd could lack.
        Os::NOMEM | Os::NOSPC => Error::NoMemory { wanted: buf.len(), available: None },
        _ => Error::Buffer { call: "write", errno: errno.into() },
    })
}
