// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second thread of a load: it makes the pages ready that the first one reads into.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::FallocateFlags;
use rustix::io::Errno as Os;

use crate::memory::Mapping;

/// Makes pages ready, and says how far it is.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    /// The file whose pages are reserved; without one they are touched.
    file: Option<OwnedFd>,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    until: u64,
    error: Option<Os>,
}

/// Ends the thread when the transfer is over, however it ends.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a Supply);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Supply {
    /// Allocates, zeroes and maps every page.
    pub(crate) fn by_touch() -> Self {
        Self::default()
    }

    /// Allocates the pages of a file and leaves zeroing and mapping them to the requests.
    pub(crate) fn by_reservation(file: OwnedFd) -> Self {
        Self { file: Some(file), ..Self::default() }
    }

    /// Makes a range of the mapping ready, `step` bytes at a time.
    pub(crate) fn run(&self, mapping: &Mapping, start: u64, end: u64, step: u64) {
        let mut at = start;
        while at < end && !self.stop.load(Ordering::Relaxed) {
            let len = step.min(end - at);
            let result = self.make_ready(mapping, at, len);
            at += len;
            let mut state = self.state();
            match result {
                // Before Linux 5.14 the requests themselves have to touch the pages.
                Ok(()) | Err(Os::INVAL) => state.until = at,
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

    fn make_ready(&self, mapping: &Mapping, at: u64, len: u64) -> rustix::io::Result<()> {
        let Some(file) = &self.file else {
            return mapping.populate(at, len, true);
        };
        loop {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), at, len) {
                Err(Os::INTR) => {}
                result => return result,
            }
        }
    }

    /// Whether everything before `end` is there; with `wait`, waits for it.
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
