// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watching a transfer and stopping it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Progress of a transfer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes moved so far.
    pub done: u64,
    /// Bytes to move in all.
    pub total: u64,
}

/// Stops a transfer from another thread or from a signal handler.
///
/// Clones share their state. The transfer ends with [`Error::Cancelled`](crate::Error::Cancelled)
/// once its requests in flight complete, within about 100 ms. With
/// [`Backend::Heap`](crate::Backend::Heap) it ends only when everything has been read.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops all current and future transfers that use this token. Async-signal-safe.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) has been called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

type Callback = dyn Fn(Progress) + Send + Sync;

/// The caller's callback and token.
#[derive(Clone, Default)]
pub(crate) struct Control {
    pub(crate) progress: Option<Arc<Callback>>,
    pub(crate) cancel: CancelToken,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}

/// A [`Control`] during a transfer: keeps the count, which never decreases.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    control: &'a Control,
    total: u64,
    done: AtomicU64,
}

impl<'a> Watch<'a> {
    /// Reports 0 of `total` bytes.
    pub(crate) fn start(control: &'a Control, total: u64) -> Self {
        let watch = Self { control, total, done: AtomicU64::new(0) };
        watch.report(0);
        watch
    }

    /// Counts `bytes` more as moved.
    pub(crate) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.report(self.done.load(Ordering::Relaxed));
    }

    /// Sets the count of bytes moved.
    pub(crate) fn set(&self, done: u64) {
        let before = self.done.fetch_max(done, Ordering::Relaxed);
        if done > before {
            self.report(done);
        }
    }

    /// Bytes to move.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Bytes moved so far.
    #[cfg(test)]
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn report(&self, done: u64) {
        if let Some(callback) = &self.control.progress {
            callback(Progress { done: done.min(self.total), total: self.total });
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.control.cancel.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// The counts that a callback receives during a transfer of 100 bytes.
    fn told(transfer: impl FnOnce(&Watch<'_>)) -> Vec<u64> {
        let all = Arc::new(Mutex::new(Vec::new()));
        let progress = {
            let all = all.clone();
            move |progress: Progress| {
                assert_eq!(progress.total, 100);
                all.lock().unwrap_or_else(PoisonError::into_inner).push(progress.done);
            }
        };
        let control = Control { progress: Some(Arc::new(progress)), ..Control::default() };
        let watch = Watch::start(&control, 100);
        assert_eq!(watch.total(), 100);
        transfer(&watch);
        std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[test]
    fn progress_reports_every_step_from_zero() {
        assert_eq!(told(|_| ()), [0]);
        assert_eq!(told(|watch| (0..3).for_each(|_| watch.add(30))), [0, 30, 60, 90]);
        let set = |watch: &Watch<'_>| [10, 70, 100].into_iter().for_each(|done| watch.set(done));
        assert_eq!(told(set), [0, 10, 70, 100]);
    }

    #[test]
    fn progress_only_grows_up_to_the_total() {
        let set = |watch: &Watch<'_>| [10, 10, 5, 11].into_iter().for_each(|done| watch.set(done));
        assert_eq!(told(set), [0, 10, 11]);
        assert_eq!(told(|watch| watch.add(4096)), [0, 100], "of the last block, what was wanted");
        assert_eq!(told(|watch| watch.set(101)), [0, 100]);
    }

    #[test]
    fn clones_of_a_token_are_cancelled_together() {
        let token = CancelToken::new();
        let control = Control { cancel: token.clone(), ..Control::default() };
        let watch = Watch::start(&control, 1);
        assert!(!token.is_cancelled() && !watch.is_cancelled());
        token.cancel();
        assert!(token.is_cancelled() && watch.is_cancelled());
        assert!(!CancelToken::new().is_cancelled());
    }
}
