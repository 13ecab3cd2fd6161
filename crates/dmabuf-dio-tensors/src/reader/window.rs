// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much is read ahead.

use dmabuf_dio::probe;

/// What a disk delivers in this time is in memory ahead of the program, unless it says otherwise.
const AHEAD_SECONDS: f64 = 0.05;
/// The bounds of what is chosen.
const LEAST: u64 = 32 << 20;
const MOST: u64 = 256 << 20;
/// What is chosen before the speed of the disk is known.
const FIRST: u64 = 128 << 20;
/// The part of the free memory that may be used.
const OF_FREE: u64 = 8;

/// The bytes that may be in memory before they are requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    bytes: u64,
    /// No speed changes it.
    is_fixed: bool,
    /// Most that is chosen here.
    most: u64,
}

impl Window {
    /// `bytes`: what the caller wants, or else it is chosen from the free memory and the speed of
    /// the disk. Of contents it is all that is allowed: the more is requested at once, the faster they come.
    pub(super) fn new(bytes: Option<u64>, of_contents: bool) -> Self {
        let free = || probe::available_memory().map_or(MOST, |free| free / OF_FREE);
        let most = if bytes.is_some() { MOST } else { free().clamp(LEAST, MOST) };
        let first = if of_contents { most } else { FIRST.min(most) };
        Self { bytes: bytes.unwrap_or(first), is_fixed: bytes.is_some() || of_contents, most }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is read at once. Two reads at a time keep the disk busy; smaller ones would cost more
    /// to set up, larger ones leave no room for the second.
    pub(super) fn step(&self) -> u64 {
        (self.bytes / 4).clamp(4 << 20, 64 << 20)
    }

    /// Takes note of a read: the window follows the disk's speed.
    pub(super) fn measured(&mut self, bytes: u64, seconds: f64) {
        if !self.is_fixed && bytes >= LEAST / 8 && seconds > 0.0 {
            let wanted = bytes as f64 / seconds * AHEAD_SECONDS;
            // Half of the way, as one read says little.
            self.bytes = (u64::midpoint(self.bytes, wanted as u64)).clamp(LEAST, self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_follows_the_disk_unless_it_is_given() {
        let mut given = Window::new(Some(1 << 20), false);
        given.measured(1 << 30, 0.1);
        assert_eq!((given.bytes(), given.step()), (1 << 20, 4 << 20));
        let mut chosen = Window { bytes: FIRST, is_fixed: false, most: MOST };
        for _ in 0..20 {
            chosen.measured(64 << 20, 0.064);
        }
        assert_eq!(chosen.bytes() >> 20, 50);
        for _ in 0..20 {
            chosen.measured(64 << 20, 0.001);
        }
        assert_eq!(chosen.bytes(), MOST);
        for _ in 0..20 {
            chosen.measured(64 << 20, 10.0);
        }
        assert_eq!((chosen.bytes(), chosen.step()), (LEAST, LEAST / 4));
        let mut contents = Window { most: 200 << 20, ..Window::new(None, true) };
        contents.bytes = contents.most;
        contents.measured(64 << 20, 10.0);
        assert_eq!((contents.bytes(), contents.step()), (200 << 20, 50 << 20));
    }
}
