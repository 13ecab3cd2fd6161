// SPDX-License-Identifier: MIT OR Apache-2.0
//! The progress of several transfers as one.

use std::sync::{Arc, Mutex, PoisonError};

/// Progress of a load or a save, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes moved so far, of all files.
    pub done: u64,
    /// Bytes to move, of all files.
    pub total: u64,
}

pub(crate) type Callback = Arc<dyn Fn(Progress) + Send + Sync>;

/// Adds up the progress of transfers, and reports the sum.
pub(crate) struct Meter {
    callback: Callback,
    total: u64,
    done: Mutex<u64>,
}

impl Meter {
    pub(crate) fn new(callback: Callback, total: u64) -> Arc<Self> {
        Arc::new(Self { callback, total, done: Mutex::new(0) })
    }

    /// The callback of one of the transfers, which moves `share` bytes in this crate's count.
    pub(crate) fn part(
        self: &Arc<Self>,
        share: u64,
    ) -> impl Fn(dmabuf_dio::Progress) + Send + Sync + 'static {
        let meter = Arc::clone(self);
        let before = Mutex::new(0);
        move |progress| {
            let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
            // A transfer of whole pages counts more bytes than are wanted.
            let now = progress.done.min(share).max(*before);
            meter.add(now - *before);
            *before = now;
        }
    }

    fn add(&self, bytes: u64) {
        // Held during the callback, so that calls come one after the other.
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        *done += bytes;
        (self.callback)(Progress { done: *done, total: self.total });
    }
}
