// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many ranges are fetched at the same time, and how long they are.
//!
//! One connection brings what its server and the way there allow, several bring more, until something is full. So the
//! number grows by half as long as each step makes the whole at least a tenth faster, and goes back by the last step
//! when one does not. It is halved when the store is too busy. A range is to take about a second: long enough that
//! asking for it costs little, and short enough that the last ones end at the same time.

use std::time::Duration;

/// Bytes of the shortest and of the longest range, unless that was set otherwise.
const SHORTEST: u64 = 1 << 20;
const LONGEST: u64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct Pace {
    limit: u32,
    most: u32,
    size: u64,
    /// Bytes and ranges since the last step.
    bytes: u64,
    ranges: u32,
    /// When that was.
    since: Duration,
    /// The rate before the last step, in bytes per second, and the limit then.
    before: Option<(f64, u32)>,
    /// No further step is tried: it made nothing faster, or the store was too busy.
    settled: bool,
}

impl Pace {
    pub(crate) fn new(ranges: u32, most: u32, size: u64) -> Self {
        let most = most.max(1);
        let (limit, size) = (ranges.clamp(1, most), size.max(1));
        let (since, before) = (Duration::ZERO, None);
        Self { limit, most, size, bytes: 0, ranges: 0, since, before, settled: false }
    }

    /// Ranges at the same time.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Bytes of the next range.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// A range has arrived, `took` after it was asked for, and `now` after the start of all.
    pub(crate) fn arrived(&mut self, bytes: u64, took: Duration, now: Duration) {
        if bytes == self.size && (SHORTEST..=LONGEST).contains(&self.size) {
            if took < Duration::from_millis(250) {
                self.size = (self.size * 2).min(LONGEST);
            } else if took > Duration::from_secs(4) {
                self.size = (self.size / 2).max(SHORTEST);
            }
        }
        self.bytes += bytes;
        self.ranges += 1;
        if self.settled || self.ranges < 2 * self.limit {
            return;
        }
        let seconds = now.saturating_sub(self.since).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let rate = self.bytes as f64 / seconds;
        match self.before {
            Some((before, limit)) if rate < before * 1.1 => {
                self.limit = limit;
                self.settled = true;
            }
            _ if self.limit == self.most => self.settled = true,
            _ => {
                self.before = Some((rate, self.limit));
                self.limit = (self.limit + self.limit.div_ceil(2)).min(self.most);
            }
        }
        (self.bytes, self.ranges, self.since) = (0, 0, now);
    }

    /// There are no threads for more.
    pub(crate) fn no_more_than(&mut self, limit: u32) {
        self.limit = self.limit.min(limit.max(1));
        self.settled = true;
    }

    /// The store wants fewer requests.
    pub(crate) fn too_much(&mut self) {
        self.limit = (self.limit / 2).max(1);
        self.settled = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit after many ranges of 8 MiB, where `rate` says how fast so many ranges are together, in MiB/s.
    fn settles(most: u32, rate: impl Fn(u32) -> f64) -> u32 {
        let mut pace = Pace::new(8, most, 8 << 20);
        let mut now = 0.0;
        for _ in 0..2000 {
            let bytes = pace.size();
            now += bytes as f64 / (rate(pace.limit()) * f64::from(1 << 20));
            let took = Duration::from_secs(1);
            pace.arrived(bytes, took, Duration::from_secs_f64(now));
        }
        pace.limit()
    }

    #[test]
    fn number_grows_as_long_as_that_helps() {
        // From 62 to 64 would be no tenth more.
        assert_eq!(settles(64, f64::from), 62, "each connection has its own limit");
        assert_eq!(settles(64, |_| 100.0), 8, "all share one");
        assert_eq!(settles(64, |ranges| f64::from(ranges.min(18))), 18);
        assert_eq!(settles(8, f64::from), 8);
        assert_eq!(settles(1, f64::from), 1);
    }

    #[test]
    fn busy_store_gets_fewer_requests() {
        let mut pace = Pace::new(8, 64, 8 << 20);
        for limit in [4, 2, 1, 1] {
            pace.too_much();
            assert_eq!(pace.limit(), limit);
        }
        let second = Duration::from_secs(1);
        (1..100).for_each(|now| pace.arrived(pace.size(), second, now * second));
        assert_eq!(pace.limit(), 1, "it does not grow again");
    }

    #[test]
    fn ranges_take_about_a_second() {
        let size = |millis| {
            let mut pace = Pace::new(8, 64, 8 << 20);
            let took = Duration::from_millis(millis);
            (1..100).for_each(|now| pace.arrived(pace.size(), took, now * took));
            pace.size()
        };
        assert_eq!((size(10), size(1000), size(10_000)), (32 << 20, 8 << 20, 1 << 20));
        let mut small = Pace::new(8, 64, 1000);
        small.arrived(1000, Duration::ZERO, Duration::from_secs(1));
        assert_eq!(small.size(), 1000, "as it was set");
    }
}
