// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second thread of a load: it allocates the pages that the first thread reads into.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rustix::io::Errno as Os;

use crate::memory;
use crate::memory::Mapping;
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard};

/// Allocates, zeroes and maps every page, and tracks how far it is.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    until: u64,
    error: Option<Os>,
}

/// Stops the thread when the transfer ends, however it ends.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a Supply);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// A thread that panics brings no more pages, and would be waited for.
struct ErrorOnPanic<'a>(&'a Supply);

impl Drop for ErrorOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state().error.get_or_insert(Os::CANCELED);
            self.0.changed.notify_all();
        }
    }
}

impl Supply {
    /// Allocates a range of the mapping, `step` bytes at a time.
    pub(crate) fn run(&self, mapping: &Mapping, start: u64, end: u64, step: u64) {
        self.run_with(|at, len| mapping.populate(at, len, true), start, end, step);
    }

    fn run_with(
        &self,
        populate: impl Fn(u64, u64) -> rustix::io::Result<()>,
        start: u64,
        end: u64,
        step: u64,
    ) {
        let _panic = ErrorOnPanic(self);
        let mut at = start;
        while at < end && !self.stop.load(Ordering::Relaxed) {
            let len = step.min(end - at);
            let result = populate(at, len);
            at += len;
            let mut state = self.state();
            match result {
                Ok(()) => state.until = at,
                // The requests themselves have to touch the pages.
                Err(errno) if memory::cannot_populate(errno) => state.until = at,
                Err(errno) => state.error = Some(errno),
            }
            let failed = state.error.is_some();
            drop(state);
            self.changed.notify_all();
            if failed {
                return;
            }
        }
    }

    /// Whether all pages before `end` are allocated. With `wait`, blocks until they are.
    pub(crate) fn reaches(&self, end: u64, wait: bool) -> rustix::io::Result<bool> {
        let mut state = self.state();
        loop {
            if state.until >= end {
                return Ok(true);
            }
            if let Some(errno) = state.error {
                return Err(errno);
            }
            if !wait {
                return Ok(false);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::buffer::shared::Shared;
    use crate::memory::huge;
    use crate::memory::page::page_size;

    /// Pages that a memfd has.
    fn pages(buf: &Shared) -> u64 {
        rustix::fs::fstat(buf).expect("stat").st_blocks as u64 * 512 / page_size()
    }

    #[test]
    fn supply_allocates_exactly_the_range() {
        let page = page_size();
        for step in [page, 2 * page, 100 * page] {
            let buf = Shared::memfd(8 * page).expect("a memfd");
            let mapping = buf.mapping(true).expect("mapped");
            let supply = Supply::default();
            assert_eq!(supply.reaches(1, false), Ok(false), "nothing is there");
            assert_eq!(supply.reaches(0, false), Ok(true), "nothing is needed");
            supply.run(&mapping, page, 4 * page, step);
            assert_eq!(supply.reaches(4 * page, false), Ok(true));
            assert_eq!(supply.reaches(4 * page, true), Ok(true));
            assert_eq!(supply.reaches(4 * page + 1, false), Ok(false));
            assert!(pages(&buf) == 3 || huge::memfds_are_huge(), "{} pages", pages(&buf));
        }
    }

    #[test]
    fn waiter_is_woken_by_pages_and_errors() {
        let page = page_size();
        let buf = Shared::memfd(page).expect("a memfd");
        // Only one page of this mapping can exist.
        let mapping = Mapping::new(buf.as_fd(), 3 * page, true).expect("mapped");
        let supply = Supply::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| [page, 2 * page].map(|end| supply.reaches(end, true)));
            supply.run(&mapping, 0, 3 * page, page);
            let results = waiting.join().expect("it waited");
            assert_eq!(results, [Ok(true), Err(Os::FAULT)]);
        });
        assert_eq!(supply.reaches(page, false), Ok(true), "this page is there");
        assert_eq!(supply.reaches(3 * page, false), Err(Os::FAULT));
    }

    #[test]
    fn waiter_is_woken_by_a_panic() {
        let supply = Supply::default();
        std::thread::scope(|scope| {
            let supplier = scope.spawn(|| supply.run_with(|_, _| panic!("as a fault"), 0, 2, 1));
            assert_eq!(supply.reaches(1, true), Err(Os::CANCELED));
            assert!(supplier.join().is_err());
        });
    }

    #[test]
    fn unsupported_populate_leaves_pages_to_the_requests() {
        let page = page_size();
        let buf = Shared::memfd(2 * page).expect("a memfd");
        let mapping = buf.mapping(false).expect("mapped for reading");
        assert_eq!(mapping.populate(0, page, true), Err(Os::INVAL));
        let supply = Supply::default();
        supply.run(&mapping, 0, 2 * page, page);
        assert_eq!(supply.reaches(2 * page, false), Ok(true));
    }

    #[test]
    fn stopped_supply_allocates_nothing() {
        let buf = Shared::memfd(2 * page_size()).expect("a memfd");
        let supply = Supply::default();
        drop(StopOnDrop(&supply));
        supply.run(&buf.mapping(true).expect("mapped"), 0, buf.len(), page_size());
        assert_eq!(supply.reaches(1, false), Ok(false));
        assert_eq!(pages(&buf), 0);
    }
}

/// Every order of two threads: tests/sanitize/run loom
#[cfg(all(test, loom))]
mod every_order {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::sync::AtomicU64;

    #[test]
    fn loom_waiter_always_learns_of_pages_and_errors() {
        loom::model(|| {
            let supply = Arc::new(Supply::default());
            let supplier = {
                let supply = Arc::clone(&supply);
                let populate = |at, _| if at < 2 { Ok(()) } else { Err(Os::NOMEM) };
                thread::spawn(move || supply.run_with(populate, 0, 4, 1))
            };
            assert_eq!(supply.reaches(2, true), Ok(true));
            assert_eq!(supply.reaches(3, true), Err(Os::NOMEM));
            assert_eq!(supply.reaches(1, true), Ok(true), "this page is there");
            supplier.join().expect("no panic");
        });
    }

    #[test]
    fn loom_supply_that_is_stopped_ends_and_tells_only_what_is_there() {
        loom::model(|| {
            let supply = Arc::new(Supply::default());
            let there = Arc::new(AtomicU64::new(0));
            let supplier = {
                let (supply, there) = (Arc::clone(&supply), Arc::clone(&there));
                let populate = move |at, len| {
                    there.store(at + len, Ordering::Relaxed);
                    Ok(())
                };
                thread::spawn(move || supply.run_with(populate, 0, 2, 1))
            };
            if supply.reaches(1, false) == Ok(true) {
                // The page is there for who has seen that it is.
                assert!(there.load(Ordering::Relaxed) >= 1);
            }
            drop(StopOnDrop(&supply));
            supplier.join().expect("no panic");
        });
    }
}
