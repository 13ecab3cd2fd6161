// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a call, its progress, and its cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dmabuf_dio::{Backend, CancelToken, Options, Progress};

use crate::world::Outcome;

/// What a call is asked for; 0: the default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The number of a backend, from 1.
    pub(crate) backend: u64,
    pub(crate) block: u64,
    pub(crate) depth: u64,
    pub(crate) step: u64,
    pub(crate) direct: u64,
    /// It is cancelled once so many bytes less one are done: 1 before it moves any.
    pub(crate) cancel: u64,
}

impl Settings {
    pub(crate) fn new(backend: u64, block: u64, depth: u64, direct: u64, cancel: u64) -> Self {
        Self { backend, block, depth, step: 0, direct, cancel }
    }

    pub(crate) fn backend(&self) -> Option<Backend> {
        Backend::ALL.get((self.backend as usize).checked_sub(1)?).copied()
    }

    pub(crate) fn options(&self) -> Options {
        let some = |value: u64| (value > 0).then_some(value);
        Options {
            backend: self.backend(),
            block_size: some(self.block),
            queue_depth: some(self.depth).map(|depth| depth as u32),
            allocation_step: some(self.step),
            direct: self.direct != 0,
            ..Options::default()
        }
    }
}

/// What a call has told of its progress.
pub(crate) struct Told {
    pub(crate) token: CancelToken,
    cancel: u64,
    /// The count that was told last, plus one; 0: none yet.
    last: AtomicU64,
    total: AtomicU64,
    /// The first call had another count than 0, or one went back or beyond the total.
    wrong: AtomicBool,
}

impl Told {
    pub(crate) fn new(cancel: u64) -> Arc<Self> {
        Arc::new(Self {
            token: CancelToken::new(),
            cancel,
            last: AtomicU64::new(0),
            total: AtomicU64::new(0),
            wrong: AtomicBool::new(false),
        })
    }

    pub(crate) fn callback(self: &Arc<Self>) -> impl Fn(Progress) + Send + Sync + use<> {
        let told = Arc::clone(self);
        move |progress| told.note(progress.done, progress.total)
    }

    pub(crate) fn note(&self, done: u64, total: u64) {
        let before = self.last.swap(done + 1, Ordering::Relaxed);
        let goes = if before == 0 { done == 0 } else { done + 1 >= before };
        if !goes || done > total {
            self.wrong.store(true, Ordering::Relaxed);
        }
        self.total.store(total, Ordering::Relaxed);
        if self.cancel > 0 && done + 1 >= self.cancel {
            self.token.cancel();
        }
    }

    /// After a call of so many bytes. Before it moved any, it must have been stopped.
    pub(crate) fn check(&self, succeeded: bool, length: u64) -> Outcome {
        if self.wrong.load(Ordering::Relaxed) {
            return Err("progress does not begin at 0, goes back, or exceeds its total".into());
        }
        if !succeeded {
            return Ok(());
        }
        if self.cancel == 1 && length > 0 {
            return Err("it was cancelled before it began, and succeeds".into());
        }
        let (last, total) = (self.last.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        if (last, total) != (length + 1, length) {
            return Err(format!("the last progress was {last} less 1 of {total}, not {length}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_begins_at_zero_and_ends_with_the_total() {
        let told = |counts: &[u64]| {
            let told = Told::new(0);
            for count in counts {
                told.note(*count, 10);
            }
            told.check(true, 10).is_ok()
        };
        assert!(told(&[0, 3, 3, 10]));
        for wrong in [&[3, 10][..], &[0, 5, 4, 10], &[0, 9], &[0, 11]] {
            assert!(!told(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn what_was_cancelled_before_must_not_succeed() {
        let told = Told::new(1);
        told.note(0, 10);
        assert!(told.token.is_cancelled());
        told.note(10, 10);
        assert!(told.check(true, 10).is_err());
        assert!(told.check(false, 10).is_ok());
    }
}
