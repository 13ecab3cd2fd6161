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
use crate::error::{Direction, Result};
use crate::extent::Extent;
use crate::memory::{self, HUGE_PAGE, Mapping, PageSizes, page_size};
use crate::threads;
use crate::uring::{self, Job, Memory, Place, Progress};

/// The ring that moving `len` bytes needs, if it needs one and the file goes with it.
pub(crate) fn ring(
    backend: Backend,
    task: &Task<'_>,
    len: u64,
) -> Result<Option<IoUring>, Refusal> {
    if len <= task.chunk() || super::check_ring(backend, task.file).is_err() {
        return Ok(None);
    }
    super::ring(backend, task.depth()).map(Some)
}

/// Where the memory comes from that is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was made for this, and nobody else has it.
    New,
    /// It was there.
    Given,
}

/// Loads the range of a task into new memory that is laid out for it.
pub(crate) fn load(
    task: &Task<'_>,
    ring: Option<IoUring>,
    mapping: &Mapping,
    layout: Layout,
) -> Result<Moved> {
    let room = mapping.len();
    let mut moved = fill(task, ring, mapping, task.extent_in(layout, room), Origin::New)?;
    moved.pages = PageSizes::of(mapping);
    let end = layout.data_offset + task.length;
    // What lies before and after the range came along with its blocks.
    mapping.fill(0, layout.data_offset, 0)?;
    mapping.fill(end, layout.buffer.min(room) - end, 0)?;
    Ok(moved)
}

/// Moves an extent of mapped memory, without a ring in one request after the other.
pub(crate) fn fill(
    task: &Task<'_>,
    ring: Option<IoUring>,
    mapping: &Mapping,
    extent: Extent,
    origin: Origin,
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
            let step = task.options.allocation_step;
            let step = step.unwrap_or_else(|| task.chunk().next_multiple_of(HUGE_PAGE));
            let supply = &supply;
            threads::spawn(scope, move || supply.run(mapping, start, end, step))?;
        }
        let _stop = StopOnDrop(&supply);
        let mut memory = UserMemory {
            mapping,
            shrinks: origin == Origin::Given && mapping.shrinks(),
            end,
            supply: loading.then_some(&supply),
        };
        // SAFETY: the mapping outlives this call, or the process if it is kept; the range lies in
        // it.
        let mut core = |job: &Job<'_>| unsafe { uring::run(&mut ring, job, &mut memory) };
        task.in_parts(extent, &mut core, &mut edge)
    })
}

/// Moves less than a block.
fn edge(task: &Task<'_>, mapping: &Mapping, part: Extent) -> Result<u64> {
    match task.direction {
        Direction::Load => {
            let mut bytes = vec![0; part.len as usize];
            let direct = super::buffered::read_edge(task, &mut bytes, part.file)?;
            mapping.write(part.buf, &bytes)?;
            task.watch.add(part.len);
            Ok(direct)
        }
        Direction::Save => {
            let bytes = mapping.to_vec(part.buf, part.len)?;
            super::buffered::write_all(task, &bytes, part.file)?;
            task.watch.add(part.len);
            Ok(0)
        }
    }
}

/// A range of a mapping, as it becomes ready.
struct UserMemory<'a> {
    mapping: &'a Mapping,
    /// Whether somebody may have taken its pages away.
    shrinks: bool,
    end: u64,
    supply: Option<&'a Supply>,
}

impl Memory for UserMemory<'_> {
    fn prepare(&mut self, _: &IoUring, end: u64, so_far: Progress) -> Result<bool> {
        let wanted = self.mapping.len();
        self.supply.map_or(Ok(true), |supply| {
            let there = supply.reaches(end, so_far.idle);
            there.map_err(|errno| memory::populate_error(errno, wanted, self.shrinks))
        })
    }

    fn place(&self, offset: u64) -> (Place, u64) {
        (Place::Plain { addr: self.mapping.at(offset) as u64 }, self.end)
    }

    fn keep(&self) {
        self.mapping.keep();
    }
}
