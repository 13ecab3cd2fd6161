// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values that a process determines once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number below `u64::MAX` that is determined once. Threads that need it at the same time
/// determine it, too, so no thread waits. A child of fork(2) would wait for ever for a thread that
/// only its parent has.
#[derive(Debug)]
pub(crate) struct Known(AtomicU64);

impl Known {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// The number, if it was found.
    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.0.load(Relaxed)).filter(|number| *number != u64::MAX)
    }

    pub(crate) fn get_or_find(&self, find: impl FnOnce() -> u64) -> u64 {
        self.get().unwrap_or_else(|| {
            let found = find();
            self.0.store(found, Relaxed);
            found
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_computed_once_without_blocking() {
        static NUMBER: Known = Known::new();
        assert_eq!(NUMBER.get(), None);
        // A second call while the number is being determined determines it, too.
        assert_eq!(NUMBER.get_or_find(|| NUMBER.get_or_find(|| 7)), 7);
        assert_eq!(NUMBER.get_or_find(|| unreachable!()), 7);
    }
}
