// SPDX-License-Identifier: MIT OR Apache-2.0
//! A read of a range of an object, as its threads share it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dmabuf_dio::content::{Fetched, Fill};
use dmabuf_dio::{Errno, Error};

use crate::pace::Pace;
use crate::source::Source;
use crate::trouble::{Trouble, failed};

/// Ranges are not made shorter than this to give each connection one.
const WORTH_A_REQUEST: u64 = 1 << 20;

/// How often a wait looks at whether the load was cancelled.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// The read of a range of an object.
pub(crate) struct Job<'a> {
    pub(crate) source: &'a Source,
    /// Where the range starts in the object.
    pub(crate) offset: u64,
    pub(crate) fill: &'a Fill<'a>,
    state: Mutex<State>,
    changed: Condvar,
    /// One failed, so the others need not go on.
    stop: AtomicBool,
    start: Instant,
}

#[derive(Debug)]
pub(crate) struct State {
    /// What is still to be asked for. Offsets in this file are those in the object.
    pub(crate) left: Range<u64>,
    /// Ranges for which there was no thread.
    pub(crate) back: Vec<Range<u64>>,
    pub(crate) pace: Pace,
    pub(crate) workers: u32,
    pub(crate) fetched: Fetched,
    pub(crate) error: Option<Error>,
    /// Everything before is there.
    there: u64,
    /// Ranges that are there behind a gap, by their starts.
    behind: BTreeMap<u64, u64>,
}

impl<'a> Job<'a> {
    pub(crate) fn new(source: &'a Source, offset: u64, fill: &'a Fill<'a>) -> Self {
        let settings = &source.settings;
        let left = offset..offset + fill.length();
        let each = fill.length().div_ceil(settings.ranges.max(1).into()).max(WORTH_A_REQUEST);
        let size = settings.range_size.min(each);
        let state = State {
            there: left.start,
            left,
            back: Vec::new(),
            pace: Pace::new(settings.ranges, settings.most_ranges, size),
            workers: 0,
            fetched: Fetched::default(),
            error: None,
            behind: BTreeMap::new(),
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Self { source, offset, fill, state, changed, stop: false.into(), start: Instant::now() }
    }

    /// Takes the next range.
    pub(crate) fn take(&self, state: &mut State) -> Option<Range<u64>> {
        if self.is_stopped() {
            return None;
        }
        if let Some(range) = state.back.pop() {
            return Some(range);
        }
        if state.left.is_empty() {
            return None;
        }
        let start = state.left.start;
        let mut end = start.saturating_add(state.pace.size());
        if let Some(sums) = &self.source.settings.sums {
            // Chunks that are cut would be fetched twice.
            end = end.div_ceil(sums.chunk_size()).saturating_mul(sums.chunk_size());
        }
        state.left.start = end.min(state.left.end);
        Some(start..state.left.start)
    }

    pub(crate) fn arrived(
        &self,
        state: &mut State,
        range: Range<u64>,
        fetched: Fetched,
        since: Instant,
    ) {
        state.fetched = state.fetched.and(fetched);
        state.pace.arrived(range.end - range.start, since.elapsed(), self.start.elapsed());
        state.behind.insert(range.start, range.end);
        while let Some(end) = state.behind.remove(&state.there) {
            state.there = end;
        }
        self.changed.notify_all();
    }

    /// Waits until there is more than the bytes before `offset`. `None` if there never will be.
    pub(crate) fn wait_beyond(&self, offset: u64) -> Option<u64> {
        let mut state = self.state();
        while state.there <= offset {
            if state.error.is_some() || self.is_stopped() {
                return None;
            }
            // A load that is cancelled changes nothing here.
            let waited = self.changed.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state.there)
    }

    /// Ends the read with its first error.
    pub(crate) fn fail(&self, error: Error) {
        // The first error is there before others see that they are to stop.
        self.state().error.get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// The store wants fewer requests.
    pub(crate) fn too_much(&self) {
        self.state().pace.too_much();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.fill.is_cancelled()
    }

    /// The error of a read that was stopped.
    pub(crate) fn cancelled(&self) -> Error {
        // Otherwise another range has failed, and its error is the one that is told.
        self.fill
            .check()
            .err()
            .unwrap_or_else(|| cannot_start(&std::io::ErrorKind::Interrupted.into()))
    }

    /// Waits until something has changed.
    pub(crate) fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread has ended. One that panics brings nothing more, and would be waited for.
    pub(crate) fn leave(&self) {
        if std::thread::panicking() {
            let trouble = Trouble::Other("a thread of the load has panicked".into());
            self.fail(failed(&self.source.name, 0..0, &trouble));
        }
        self.state().workers -= 1;
        self.changed.notify_all();
    }

    /// Ends what waits for bytes that will not come.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread could not be started.
pub(crate) fn cannot_start(error: &std::io::Error) -> Error {
    Error::Thread { errno: Errno::from(error) }
}
