// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memfd of small pages, written from a stage: memory of the process that the file is read into
//! piece by piece.
//!
//! To have the disk write into small pages each of them has to be zeroed, mapped and pinned, and
//! that takes more of the CPU than copying into them, which the kernel does without zeroing them
//! first (docs/performance.md).

use std::os::fd::{AsFd, BorrowedFd};
use std::slice;

use io_uring::IoUring;
use rustix::io::Errno as Os;

use super::{Layout, Moved, Task, buffered, plain};
use crate::buf::DmaBuf;
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::memory::{Mapping, PageSizes, page_size, round_up};
use crate::uring::{self, Job, Memory, Place, Progress, Stop};

/// Chunks that the stage has room for beyond those in flight, so that the next request need not
/// wait for a copy.
const SPARE: u64 = 2;

/// Loads the range of a task into a new memfd that is laid out for it.
pub(crate) fn load(
    task: &Task<'_>,
    ring: Option<IoUring>,
    buf: &DmaBuf,
    layout: Layout,
) -> Result<Moved> {
    let end = layout.data_offset + task.length;
    let len = if task.file.is_direct() { layout.buffer } else { end };
    let window = task.chunk() * (u64::from(task.depth()) + SPARE);
    let memory = Mapping::anonymous(round_up(len, page_size()).unwrap_or(len).min(window))?;
    memory.advise(true);
    let start = layout.data_offset;
    let mut stage = Stage { memory, buf: buf.as_fd(), len, end, copied: start, step: task.chunk() };
    let mut edge = |part: Extent| {
        let mut bytes = vec![0; part.len as usize];
        let direct = buffered::read_edge(task, &mut bytes, part.file)?;
        write_all(buf.as_fd(), &bytes, part.buf)?;
        Ok(direct)
    };
    let extent = Extent { file: layout.base, buf: 0, len };
    let mut moved = if let Some(mut ring) = ring {
        // SAFETY: the stage outlives this call, and its places lie in its memory.
        let mut core = |job: &Job<'_>| unsafe {
            uring::run(&mut ring, job, &mut stage)?;
            stage.copy(job.extent.buf_end()).map_err(Stop::Memory)
        };
        task.in_parts(extent, &mut core, &mut edge)?
    } else {
        let mut core = |job: &Job<'_>| {
            plain::run(job, &stage.memory)?;
            stage.copy(job.extent.buf_end()).map_err(Stop::Memory)
        };
        task.in_parts(extent, &mut core, &mut edge)?
    };
    moved.pages = Some(PageSizes { page_size: page_size(), huge_bytes: 0 });
    Ok(moved)
}

/// A window that moves over the buffer: memory for what is being read and not copied yet.
struct Stage<'a> {
    memory: Mapping,
    buf: BorrowedFd<'a>,
    /// Of what is read.
    len: u64,
    /// Of what is wanted in the buffer.
    end: u64,
    /// Up to where the buffer has it.
    copied: u64,
    step: u64,
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
        self.copy(so_far.done.min(self.copied + self.step))
    }

    fn place(&self, offset: u64) -> (Place, u64) {
        let (at, limit) = self.find(offset);
        (Place::Plain { addr: self.memory.at(at) as u64 }, limit)
    }
}

fn write_all(buf: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(buf, &bytes[done..], offset + done as u64) {
            Ok(written) => done += written,
            Err(Os::INTR) => {}
            // There is nothing else that a memfd could lack.
            Err(Os::NOMEM | Os::NOSPC) => {
                return Err(Error::NoMemory { wanted: bytes.len() as u64, available: None });
            }
            Err(errno) => return Err(Error::Buffer { call: "write", errno: errno.into() }),
        }
    }
    Ok(())
}
