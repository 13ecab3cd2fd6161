// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second thread of a load: it allocates the pages that the first thread reads into.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno as Os;

use crate::memory;
use crate::memory::Mapping;

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

impl Supply {
    /// Allocates a range of the mapping, `step` bytes at a time.
    pub(crate) fn run(&self, mapping: &Mapping, start: u64, end: u64, step: u64) {
        let mut at = start;
        while at < end && !self.stop.load(Ordering::Relaxed) {
            let len = step.min(end - at);
            let result = mapping.populate(at, len, true);
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
