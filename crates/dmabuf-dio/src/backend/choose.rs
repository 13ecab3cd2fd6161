// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries backends in order, and takes the first that is available.

use super::attempt::Attempt;
use super::{Backend, Refusal};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::report::Report;
use crate::report::facts::Facts;
use crate::report::measure::Before;
use crate::transfer::task::{Task, Transferred};

/// A transfer that a backend made.
pub(crate) struct Run<T> {
    pub(crate) value: T,
    backend: Option<Backend>,
    moved: Transferred,
    refusals: Vec<Refusal>,
    before: Before,
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
    try_one: impl FnMut(C) -> Result<(T, Transferred), Attempt>,
) -> Result<Run<T>> {
    // Once: on a small file it takes as long as the transfer, and a backend that refuses has moved
    // no data.
    let before = Before::now(task.file.fd());
    let asked = task.options.backend;
    let (backend, (value, moved), refusals) = choose(asked, candidates, try_one)?;
    Ok(Run { value, backend: Some(backend), moved, refusals, before })
}

/// Makes a transfer that no backend is chosen for.
pub(crate) fn alone<T>(
    task: &Task<'_>,
    transfer: impl FnOnce() -> Result<(T, Transferred)>,
) -> Result<(T, Report)> {
    let before = Before::now(task.file.fd());
    let (value, moved) = transfer()?;
    let run = Run { value, backend: None, moved, refusals: Vec::new(), before };
    Ok(run.report(task, |_| None))
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
