// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the process, transferred by `io_uring`.
//!
//! A second thread allocates the pages in order, while requests for the allocated ones are in
//! flight. If one request is enough, neither ring nor thread is used.
//!
//! The memory is not registered with the ring: with huge pages that gains nothing, and contiguous
//! small pages would no longer be merged (docs/notes/performance.md).

use std::sync::Arc;

use io_uring::IoUring;

use super::edge::edge;
use super::layout::Layout;
use super::supply::{StopOnDrop, Supply};
use super::task::{Task, Transferred};
use super::{Job, Progress, plain, ring};
use crate::direction::Direction;
use crate::error::Result;
use crate::file::extent::Extent;
use crate::lend::{self, Ring};
use crate::memory::page::{huge_page, page_size};
use crate::memory::{self, Mapping};
use crate::threads;

/// The origin of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Newly created, and not shared.
    New,
    /// It existed before.
    Given,
}

/// Loads the range of a task into new memory with a matching layout.
pub(crate) fn load(
    task: &Task<'_>,
    uring: Option<IoUring>,
    mapping: &Arc<Mapping>,
    layout: Layout,
) -> Result<Transferred> {
    let room = mapping.len();
    let mut moved = fill(task, uring, mapping, task.extent_in(layout, room), Origin::New)?;
    task.note_pages(&mut moved, mapping);
    let end = layout.data_offset + task.length;
    // The whole blocks at the ends also contain bytes outside the range.
    mapping.fill(0, layout.data_offset, 0)?;
    mapping.fill(end, layout.buffer.min(room) - end, 0)?;
    Ok(moved)
}

/// Transfers an extent of mapped memory; without a ring, one request after the other.
pub(crate) fn fill(
    task: &Task<'_>,
    uring: Option<IoUring>,
    mapping: &Arc<Mapping>,
    extent: Extent,
    origin: Origin,
) -> Result<Transferred> {
    let mut edge = |part: Extent| edge(task, mapping, part);
    let Some(uring) = uring else {
        let mut core = |job: &Job<'_>| plain::run(job, mapping);
        return task.in_parts(extent, &mut core, &mut edge);
    };
    let mut ring = Ring::new(uring, lend::Memory::process(mapping));
    let start = extent.buf & !(page_size() - 1);
    let end = extent.buf_end();
    let supply = Supply::default();
    std::thread::scope(|scope| {
        let loading = task.direction == Direction::Load;
        if loading {
            let step = task.options.allocation_step;
            let step = step.unwrap_or_else(|| task.chunk().next_multiple_of(huge_page()));
            let supply = &supply;
            threads::spawn(scope, move || supply.run(mapping, start, end, step))?;
        }
        let _stop = StopOnDrop(&supply);
        let mut buffer = Supplied {
            len: mapping.len(),
            shrinks: origin == Origin::Given && mapping.shrinks(),
            end,
            supply: loading.then_some(&supply),
        };
        let mut core = |job: &Job<'_>| ring::run(&mut ring, job, &mut buffer);
        task.in_parts(extent, &mut core, &mut edge)
    })
}

/// A range of a mapping whose pages are being allocated.
struct Supplied<'a> {
    /// Length of the mapping.
    len: u64,
    /// Whether the pages may have been taken away.
    shrinks: bool,
    end: u64,
    supply: Option<&'a Supply>,
}

impl ring::Buffer for Supplied<'_> {
    fn prepare(&mut self, _: &Ring, end: u64, so_far: Progress) -> Result<bool> {
        self.supply.map_or(Ok(true), |supply| {
            let there = supply.reaches(end, so_far.idle);
            there.map_err(|errno| memory::populate_error(errno, self.len, self.shrinks))
        })
    }

    fn place(&self, offset: u64) -> (u16, u64, u64) {
        (0, offset, self.end)
    }
}
