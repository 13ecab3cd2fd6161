// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries backends in order, and reports on the one that ran.

use crate::backend::{Backend, Refusal};
use crate::buf::Kind;
use crate::error::{Attempt, Error, Result};
use crate::measure::{Before, judge};
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

/// Lets the first backend that is available make the transfer: of those in `order`, or the one
/// that the task's options ask for.
pub(crate) fn first_available<T>(
    task: &Task<'_>,
    order: &[Backend],
    mut try_one: impl FnMut(Backend) -> Result<(T, Moved), Attempt>,
) -> Result<Run<T>> {
    let asked = task.options.backend;
    let mut refusals = Vec::new();
    // Once: on a small file it takes as long as the transfer, and who refuses moves nothing.
    let before = Before::now(task.file.fd());
    for &backend in asked.as_ref().map_or(order, std::slice::from_ref) {
        match try_one(backend) {
            Ok((value, moved)) => return Ok(Run { value, backend, moved, refusals, before }),
            Err(Attempt::Refused(refusal)) => refusals.push(refusal),
            Err(Attempt::Failed(error)) => return Err(error),
        }
    }
    Err(Error::Unavailable { asked, refusals })
}

impl<T> Run<T> {
    /// What the transfer did and cost up to now, and what it gave.
    pub(crate) fn report(self, task: &Task<'_>, kind: impl Fn(&T) -> Option<Kind>) -> (T, Report) {
        let cost = self.before.until_now(task.file.fd(), task.direction);
        let asked = self.moved.direct.min(task.length);
        let (mode, evidence) =
            judge(task.direction, task.length, asked, task.file.unallocated, &cost);
        let seconds = cost.elapsed.as_secs_f64();
        let mut notes = self.moved.notes;
        if let Some(why) = &task.file.why_buffered
            && self.backend != Backend::Buffered
        {
            notes.push(format!("buffered: {why}"));
        }
        let report = Report {
            operation: task.direction,
            backend: self.backend,
            buffer: kind(&self.value),
            mode,
            evidence,
            bytes: task.length,
            seconds,
            cpu_seconds: cost.cpu.as_secs_f64(),
            gb_per_second: if seconds > 0.0 { task.length as f64 / seconds / 1e9 } else { 0.0 },
            page_cache_grown: cost.cache_growth,
            storage_bytes: cost.storage,
            page_size: self.moved.pages.map(|pages| pages.page_size),
            huge_bytes: self.moved.pages.map(|pages| pages.huge_bytes),
            segments: self.moved.segments,
            notes,
            refusals: self.refusals,
        };
        (self.value, report)
    }
}
