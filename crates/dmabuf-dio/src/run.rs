// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries backends in order, and reports on the one that ran.

use crate::backend::{Backend, Refusal};
use crate::buf::Kind;
use crate::error::{Attempt, Direction, Error, Result};
use crate::measure::{Before, Cost, judge, through_cache};
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

/// Something to try: a backend, and what else tells it from others.
pub(crate) trait Candidate: Copy {
    fn backend(self) -> Backend;
}

impl Candidate for Backend {
    fn backend(self) -> Backend {
        self
    }
}

/// A backend, and what it is to make.
impl Candidate for (Backend, Kind) {
    fn backend(self) -> Backend {
        self.0
    }
}

/// Takes the first candidate that is available, and why those before it are not. `asked` is the
/// backend that the caller asked for, if one.
pub(crate) fn choose<C: Candidate, T>(
    asked: Option<Backend>,
    candidates: &[C],
    mut try_one: impl FnMut(C) -> Result<T, Attempt>,
) -> Result<(Backend, T, Vec<Refusal>)> {
    let mut refusals = Vec::new();
    for &candidate in candidates {
        match try_one(candidate) {
            Ok(value) => return Ok((candidate.backend(), value, refusals)),
            Err(Attempt::Refused(refusal)) => refusals.push(refusal),
            Err(Attempt::Failed(error)) => return Err(error),
        }
    }
    Err(Error::Unavailable { asked, kind: None, refusals })
}

/// Lets the first candidate that is available make the transfer.
pub(crate) fn first_available<C: Candidate, T>(
    task: &Task<'_>,
    candidates: &[C],
    try_one: impl FnMut(C) -> Result<(T, Moved), Attempt>,
) -> Result<Run<T>> {
    // Once: on a small file it takes as long as the transfer, and a backend that refuses has moved
    // no data.
    let before = Before::now(task.file.fd());
    let asked = task.options.backend;
    let (backend, (value, moved), refusals) = choose(asked, candidates, try_one)?;
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
        // What was asked for is not what was done: file systems fall back to the page cache silently.
        let copied = bytes - asked + moved.copied.min(asked);
        let copied = copied.max(through_cache(mode, bytes, self.unallocated, &cost));
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
            copied_bytes: copied,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// How many of 100,000 bytes, asked for with `O_DIRECT`, are reported as copied.
    fn copied(growth: i64, storage: u64, copied: u64) -> u64 {
        let zero = Duration::ZERO;
        let facts = Facts {
            operation: Direction::Load,
            backend: Backend::Memfd,
            buffer: Some(Kind::Memfd),
            bytes: 100_000,
            unallocated: 0,
            why_buffered: None,
            moved: Moved { direct: 100_000, copied, ..Moved::default() },
            refusals: Vec::new(),
            cost: Cost {
                elapsed: zero,
                cpu: zero,
                cache_growth: Some(growth),
                storage: Some(storage),
            },
        };
        facts.report().copied_bytes
    }

    #[test]
    fn what_the_page_cache_gave_was_copied() {
        assert_eq!(copied(0, 100_000, 0), 0, "direct");
        assert_eq!(copied(0, 100_000, 700), 700, "direct, but for less than a block");
        assert_eq!(copied(102_400, 100_000, 0), 100_000, "buffered");
        assert_eq!(copied(0, 0, 0), 100_000, "it was there already");
        assert_eq!(copied(8192, 100_000, 700), 8192, "mixed: the cache grew");
        assert_eq!(copied(0, 60_000, 700), 40_000, "mixed: storage gave less");
        assert_eq!(copied(0, 60_000, 100_000), 100_000, "all by way of a stage");
    }
}
