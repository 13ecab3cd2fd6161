// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the process, moved by `io_uring`.
//!
//! A second thread makes the pages ready, in order, and the requests for those that are there are
//! in flight meanwhile. What fits into one request needs neither ring nor thread.
//!
//! The memory is not registered with the ring: with huge pages that gains nothing, and small ones
//! would no longer be merged where they are contiguous (docs/performance.md).

use io_uring::IoUring;

use super::supply::{StopOnDrop, Supply};
use super::{Layout, Moved, Task, plain};
use crate::backend::{Backend, Refusal};
use crate::error::{Direction, Error, Result};
use crate::extent::Extent;
use crate::memory::{HUGE_PAGE, Mapping, PageSizes, page_size};
use crate::uring::{self, Job, Memory, Place, Progress};

/// The ring that moving `len` bytes needs, if it needs one.
pub(crate) fn ring(
    backend: Backend,
    task: &Task<'_>,
    len: u64,
) -> Result<Option<IoUring>, Refusal> {
    if len <= task.chunk() {
        return Ok(None);
    }
    super::ring(backend, task.depth()).map(Some)
}

/// Loads the range of a task into new memory that is laid out for it.
pub(crate) fn load(
    task: &Task<'_>,
    ring: Option<IoUring>,
    mapping: &Mapping,
    layout: Layout,
) -> Result<Moved> {
    let mut moved = fill(task, ring, mapping, task.extent_in(layout))?;
    moved.pages = PageSizes::of(mapping);
    let end = layout.data_offset + task.length;
    // What lies before and after the range came along with its blocks.
    zero(mapping, 0, layout.data_offset);
    zero(mapping, end, layout.buffer - end);
    Ok(moved)
}

fn zero(mapping: &Mapping, offset: u64, len: u64) {
    assert!(offset + len <= mapping.len());
    // SAFETY: the range lies in the mapping, which is writable, and nobody else has the buffer.
    unsafe { std::ptr::write_bytes(mapping.at(offset), 0, len as usize) };
}

/// Moves an extent of mapped memory, without a ring in one request after the other.
pub(crate) fn fill(
    task: &Task<'_>,
    ring: Option<IoUring>,
    mapping: &Mapping,
    extent: Extent,
) -> Result<Moved> {
    let mut edge = |part: Extent| edge(task, mapping, part);
    let Some(mut ring) = ring else {
        let mut core = |job: &Job<'_>| plain::run(job, mapping);
        return task.in_parts(extent, &mut core, &mut edge);
    };
    let start = extent.buf & !(page_size() - 1);
    let end = extent.buf_end();
    let supply = Supply::default();
    std::thread::scope(|scope| {
        let loading = task.direction == Direction::Load;
        if loading {
            let step = task.options.gather;
            let step = step.unwrap_or_else(|| task.chunk().next_multiple_of(HUGE_PAGE));
            let supply = &supply;
            scope.spawn(move || supply.run(mapping, start, end, step));
        }
        let _stop = StopOnDrop(&supply);
        let mut memory = UserMemory { mapping, end, supply: loading.then_some(&supply) };
        // SAFETY: the mapping outlives this call, or the process if it is kept; the range lies in
        // it.
        let mut core = |job: &Job<'_>| unsafe { uring::run(&mut ring, job, &mut memory) };
        task.in_parts(extent, &mut core, &mut edge)
    })
}

/// Moves less than a block.
fn edge(task: &Task<'_>, mapping: &Mapping, part: Extent) -> Result<u64> {
    assert!(part.buf_end() <= mapping.len());
    let (start, len) = (mapping.at(part.buf), part.len as usize);
    match task.direction {
        Direction::Load => {
            // SAFETY: the range lies in the mapping, which is writable, and for the time of the call nobody else in this process uses it.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, len) };
            super::buffered::read_edge(task, bytes, part.file)
        }
        Direction::Save => {
            // SAFETY: the range lies in the mapping; nobody in this process writes it for the
            // time of the call.
            let bytes = unsafe { std::slice::from_raw_parts(start, len) };
            super::buffered::write_all(task, bytes, part.file)?;
            task.watch.add(part.len);
            Ok(0)
        }
    }
}

/// A range of a mapping, as it becomes ready.
struct UserMemory<'a> {
    mapping: &'a Mapping,
    end: u64,
    supply: Option<&'a Supply>,
}

impl Memory for UserMemory<'_> {
    fn prepare(&mut self, _: &IoUring, end: u64, so_far: Progress) -> Result<bool> {
        let wanted = self.mapping.len();
        self.supply.map_or(Ok(true), |supply| {
            supply
                .reaches(end, so_far.idle)
                .map_err(|_| Error::NoMemory { wanted, available: None })
        })
    }

    fn place(&self, offset: u64) -> (Place, u64) {
        (Place::Plain { addr: self.mapping.at(offset) as u64 }, self.end)
    }

    fn keep(&self) {
        self.mapping.keep();
    }
}
