// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries backends in order and uses the first available one.

pub(crate) mod kept;
pub(crate) mod table;

use self::kept::not_kept;
use crate::backend::{Backend, Refusal};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::refusal::attempt::Attempt;
use crate::report::Report;
use crate::report::facts::Facts;
use crate::report::measure::Before;
use crate::transfer::task::{Task, Transferred};

/// A transfer made by a backend.
pub(crate) struct Run<T> {
    pub(crate) value: T,
    backend: Option<Backend>,
    moved: Transferred,
    refusals: Vec<Refusal>,
    before: Before,
}

/// A candidate to try: a backend and its settings.
pub(crate) trait Candidate: Copy {
    fn backend(self) -> Backend;
}

impl Candidate for Backend {
    fn backend(self) -> Backend {
        self
    }
}

/// A backend, and the kind of buffer it creates.
impl Candidate for (Backend, Kind) {
    fn backend(self) -> Backend {
        self.0
    }
}

/// The backend in use, its result, and the refusals of those before it.
type Chosen<T> = (Backend, T, Vec<Refusal>);

/// Returns the first available candidate and the refusals of those before it. `asked` is the
/// backend that the caller selected, if any.
///
/// If the buffer's memory itself is refused, no other candidate is tried: its data would be lost, or
/// it has no valid data. That refusal is then the first one, and the error names its remedy.
pub(crate) fn choose<C: Candidate, T>(
    asked: Option<Backend>,
    candidates: &[C],
    mut try_one: impl FnMut(C) -> Result<T, Attempt>,
) -> Result<Chosen<T>> {
    let mut refusals = Vec::new();
    for &candidate in candidates {
        match try_one(candidate) {
            Ok(value) => return Ok((candidate.backend(), value, refusals)),
            Err(Attempt::Refused(refusal)) if refusal.is_of_the_memory() => {
                refusals.insert(0, refusal);
                break;
            }
            Err(Attempt::Refused(refusal)) => refusals.push(refusal),
            Err(Attempt::Failed(error)) => return Err(error),
        }
    }
    Err(Error::Unavailable { asked, kind: None, refusals })
}

/// Takes the measurements before a transfer, once for all candidates. For a small file this takes as
/// long as the transfer, and a backend that refuses has moved no data.
pub(crate) fn before(task: &Task<'_>) -> Before {
    Before::now(task.file.fd(), task.file.system, task.offset..task.end())
}

impl<T> Run<T> {
    /// A transfer by the backend that was chosen.
    pub(crate) fn by(before: Before, chosen: Chosen<(T, Transferred)>) -> Self {
        let (backend, (value, moved), refusals) = chosen;
        Self { value, backend: Some(backend), moved, refusals, before }
    }

    /// A transfer that does not depend on a backend.
    pub(crate) fn alone(before: Before, (value, moved): (T, Transferred)) -> Self {
        Self { value, backend: None, moved, refusals: Vec::new(), before }
    }

    /// Reports the transfer up to now, and returns its result.
    pub(crate) fn report(self, task: &Task<'_>, kind: impl Fn(&T) -> Option<Kind>) -> (T, Report) {
        let (value, facts) = self.facts(task, kind);
        (value, facts.report())
    }

    /// The result of the transfer, and the facts for its report up to now.
    pub(crate) fn facts(self, task: &Task<'_>, kind: impl Fn(&T) -> Option<Kind>) -> (T, Facts) {
        let facts = Facts {
            operation: task.direction,
            backend: self.backend,
            buffer: kind(&self.value),
            bytes: task.length,
            unallocated: task.file.unallocated,
            why_buffered: task.file.why_buffered.clone(),
            copies: task.file.copies(),
            moved: self.moved,
            refusals: self.refusals,
            cost: self.before.until_now(task.file.fd(), task.file.system, task.direction),
            dma: task.file.dma(|| not_kept(self.backend)),
        };
        (self.value, facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lend::NotLent;

    /// The tried backends and the result if the module refuses a buffer for this reason.
    fn tried(why: NotLent) -> (Vec<Backend>, Result<Backend>) {
        let mut tried = Vec::new();
        let result = choose(None, Backend::for_gathering(Kind::DmaBuf), |backend| {
            tried.push(backend);
            match backend {
                Backend::UringSlot => {
                    Err(backend.refuse("no slots").remedy("another kernel").into())
                }
                Backend::Module => {
                    let refusal = backend.refuse("not borrowed").remedy("another buffer");
                    Err(Refusal { not_lent: Some(why), ..refusal }.into())
                }
                _ => Ok(()),
            }
        });
        (tried, result.map(|(backend, (), _)| backend))
    }

    #[test]
    fn refused_memory_is_not_used_by_another_backend() {
        for why in [NotLent::Exporter, NotLent::Pages, NotLent::Mapping, NotLent::Unsynced] {
            assert_eq!(tried(why).1.expect("by another backend"), Backend::Buffered, "{why:?}");
        }
        for why in [NotLent::Unfilled, NotLent::Poisoned] {
            let (tried, result) = tried(why);
            assert_eq!(tried, [Backend::UringSlot, Backend::Module]);
            let error = result.expect_err("no backend");
            assert_eq!(error.hint(), "another buffer".into());
            let Error::Unavailable { asked: None, refusals, .. } = error else { panic!("{error}") };
            assert_eq!(refusals[0].not_lent, Some(why));
            assert_eq!(refusals[1].backend, Backend::UringSlot);
        }
    }
}
