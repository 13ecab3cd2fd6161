// SPDX-License-Identifier: MIT OR Apache-2.0
//! The progress of several transfers as one.

use std::sync::{Arc, Mutex, PoisonError};

use crate::load::Progress;

pub(crate) type Callback = Arc<dyn Fn(Progress) + Send + Sync>;

/// Adds up what transfers report, and reports the sum.
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
            // A transfer of whole pages counts more than what is wanted of them.
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
