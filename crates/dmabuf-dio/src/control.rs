// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watching a transfer and stopping it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use crate::sync::{AtomicU64, Mutex};

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
    /// What was reported last. Held during a call: bytes of a content arrive in several threads.
    told: Mutex<u64>,
}

impl<'a> Watch<'a> {
    /// Reports 0 of `total` bytes.
    pub(crate) fn start(control: &'a Control, total: u64) -> Self {
        let watch = Self { control, total, done: AtomicU64::new(0), told: Mutex::new(0) };
        watch.call(0);
        watch
    }

    /// Counts `bytes` more as moved.
    pub(crate) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.report();
    }

    /// Sets the count of bytes moved.
    pub(crate) fn set(&self, done: u64) {
        self.done.fetch_max(done, Ordering::Relaxed);
        self.report();
    }

    /// Bytes to move.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Bytes moved so far.
    #[cfg(any(test, fuzzed))]
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Reports the count, if no thread has.
    fn report(&self) {
        if self.control.progress.is_none() {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.done.load(Ordering::Relaxed);
        if done > *told {
            *told = done;
            self.call(done);
        }
    }

    fn call(&self, done: u64) {
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
    fn calls_of_several_threads_come_one_by_one_and_only_grow() {
        const EACH: u64 = 20_000;
        let (last, inside) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new((last, inside));
        let progress = {
            let shared = Arc::clone(&shared);
            move |progress: Progress| {
                let (last, inside) = &*shared;
                assert!(!inside.swap(true, Ordering::Acquire), "a call during another");
                let before = last.swap(progress.done, Ordering::Relaxed);
                assert!(progress.done >= before, "{} after {before}", progress.done);
                inside.store(false, Ordering::Release);
            }
        };
        let control = Control { progress: Some(Arc::new(progress)), ..Control::default() };
        let watch = Watch::start(&control, 2 * EACH);
        std::thread::scope(|scope| {
            let count = || (0..EACH).for_each(|_| watch.add(1));
            scope.spawn(count);
            count();
        });
        assert_eq!(shared.0.load(Ordering::Relaxed), 2 * EACH);
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

/// Every order of two threads: tests/sanitize/run loom
#[cfg(all(test, loom))]
mod every_order {
    use loom::sync::{Arc, atomic::AtomicBool};
    use loom::thread;

    use super::*;

    #[test]
    fn loom_calls_come_one_by_one_only_grow_and_end_with_the_total() {
        loom::model(|| {
            // Threads of loom outlive the function, so what they borrow does.
            let shared: &_ = Box::leak(Box::new((AtomicU64::new(0), AtomicBool::new(false))));
            let progress = move |progress: Progress| {
                assert!(!shared.1.swap(true, Ordering::Relaxed), "a call during another");
                let before = shared.0.swap(progress.done, Ordering::Relaxed);
                assert!(progress.done >= before, "{} after {before}", progress.done);
                shared.1.store(false, Ordering::Relaxed);
            };
            let progress: std::sync::Arc<Callback> = std::sync::Arc::new(progress);
            let control = Control { progress: Some(progress), ..Control::default() };
            let control: &'static Control = Box::leak(Box::new(control));
            let watch = Arc::new(Watch::start(control, 30));
            let other = {
                let watch = Arc::clone(&watch);
                thread::spawn(move || watch.add(10))
            };
            watch.add(20);
            other.join().expect("no panic");
            assert_eq!(shared.0.load(Ordering::Relaxed), 30);
        });
    }
}
