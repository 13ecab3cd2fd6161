// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries backends in order, and reports on the one that ran.

use crate::backend::{Backend, Refusal};
use crate::buf::Kind;
use crate::error::{Attempt, Direction, Error, Result};
use crate::measure::{Before, Cost, judge};
use crate::report::Report;
use crate::via::{Moved, Task};

/// A transfer that a backend made.
pub(crate) struct Run<T> {
    pub(crate) value: T,
    backend: Backend,
    moved: Moved,
    refusals: Vec<Refusal>,
    before: Before,
}

/// What a report is made of.
pub(crate) struct Facts {
    pub(crate) operation: Direction,
    pub(crate) backend: Backend,
    pub(crate) buffer: Option<Kind>,
    pub(crate) bytes: u64,
    pub(crate) unallocated: u64,
    pub(crate) why_buffered: Option<String>,
    pub(crate) moved: Moved,
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) cost: Cost,
}

/// Takes the first backend that is available, of those in `order` or the one that is asked for,
/// and why those before it are not.
pub(crate) fn choose<T>(
    asked: Option<Backend>,
    order: &[Backend],
    mut try_one: impl FnMut(Backend) -> Result<T, Attempt>,
) -> Result<(Backend, T, Vec<Refusal>)> {
    let mut refusals = Vec::new();
    for &backend in asked.as_ref().map_or(order, std::slice::from_ref) {
        match try_one(backend) {
            Ok(value) => return Ok((backend, value, refusals)),
            Err(Attempt::Refused(refusal)) => refusals.push(refusal),
            Err(Attempt::Failed(error)) => return Err(error),
        }
    }
    Err(Error::Unavailable { asked, refusals })
}

/// Lets the first backend that is available make the transfer: of those in `order`, or the one
/// that the task's options ask for.
pub(crate) fn first_available<T>(
    task: &Task<'_>,
    order: &[Backend],
    try_one: impl FnMut(Backend) -> Result<(T, Moved), Attempt>,
) -> Result<Run<T>> {
    // Once: on a small file it takes as long as the transfer, and who refuses moves nothing.
    let before = Before::now(task.file.fd());
    let (backend, (value, moved), refusals) = choose(task.options.backend, order, try_one)?;
    Ok(Run { value, backend, moved, refusals, before })
}

impl<T> Run<T> {
    /// What the transfer did and cost up to now, and what it gave.
    pub(crate) fn report(self, task: &Task<'_>, kind: impl Fn(&T) -> Option<Kind>) -> (T, Report) {
        let facts = Facts {
            operation: task.direction,
            backend: self.backend,
            buffer: kind(&self.value),
            bytes: task.length,
            unallocated: task.file.unallocated,
            why_buffered: task.file.why_buffered.clone(),
            moved: self.moved,
            refusals: self.refusals,
            cost: self.before.until_now(task.file.fd(), task.direction),
        };
        (self.value, facts.report())
    }
}

impl Facts {
    pub(crate) fn report(self) -> Report {
        let Self { operation, bytes, cost, moved, .. } = self;
        let asked = moved.direct.min(bytes);
        let (mode, evidence) = judge(operation, bytes, asked, self.unallocated, &cost);
        let seconds = cost.elapsed.as_secs_f64();
        let mut notes = moved.notes;
        if let Some(why) = &self.why_buffered
            && self.backend != Backend::Buffered
        {
            notes.push(format!("buffered: {why}"));
        }
        Report {
            operation,
            backend: self.backend,
            buffer: self.buffer,
            mode,
            evidence,
            bytes,
            seconds,
            cpu_seconds: cost.cpu.as_secs_f64(),
            gb_per_second: if seconds > 0.0 { bytes as f64 / seconds / 1e9 } else { 0.0 },
            page_cache_grown: cost.cache_growth,
            storage_bytes: cost.storage,
            page_size: moved.pages.map(|pages| pages.page_size),
            huge_bytes: moved.pages.map(|pages| pages.huge_bytes),
            segments: moved.segments,
            notes,
            refusals: self.refusals,
        }
    }
}
