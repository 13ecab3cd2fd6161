// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wall-clock time and CPU time.

use std::ops::AddAssign;
use std::time::Instant;

use serde_json::{Value, json};

/// The start of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    wall: Instant,
    cpu: Cpu,
}

/// CPU time of this process, all its threads, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) user: f64,
    pub(crate) sys: f64,
}

/// A duration in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Took {
    pub(crate) wall_ms: f64,
    pub(crate) cpu: Cpu,
}

impl AddAssign for Took {
    fn add_assign(&mut self, other: Self) {
        self.wall_ms += other.wall_ms;
        self.cpu.user += other.cpu.user;
        self.cpu.sys += other.cpu.sys;
    }
}

impl Took {
    /// User and system time of this process.
    pub(crate) fn cpu_ms(self) -> f64 {
        self.cpu.ms()
    }
}

impl Start {
    pub(crate) fn now() -> Self {
        Self { cpu: Cpu::now(), wall: Instant::now() }
    }

    pub(crate) fn took(self) -> Took {
        let wall = self.wall.elapsed();
        let cpu = Cpu::now();
        let cpu = Cpu { user: cpu.user - self.cpu.user, sys: cpu.sys - self.cpu.sys };
        Took { wall_ms: wall.as_nanos() as f64 / 1e6, cpu }
    }
}

impl Cpu {
    fn now() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    /// That of the programs that have ended.
    pub(crate) fn children() -> Self {
        Self::of(libc::RUSAGE_CHILDREN)
    }

    pub(crate) fn ms(self) -> f64 {
        self.user + self.sys
    }

    fn of(whom: libc::c_int) -> Self {
        // SAFETY: an all-zero rusage is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: fills the structure it is given, which outlives the call.
        unsafe { libc::getrusage(whom, &raw mut usage) };
        let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
        Self { user: ms(usage.ru_utime), sys: ms(usage.ru_stime) }
    }
}

/// The values of all runs and their summary.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) values: Vec<f64>,
}

impl Summary {
    /// `None` if there are no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => return None,
            count if count % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        Some(Self { median, min: sorted[0], max: sorted[sorted.len() - 1], values })
    }

    pub(crate) fn json(&self) -> Value {
        json!({"median": self.median, "min": self.min, "max": self.max, "values": self.values})
    }
}

/// Millions of bytes per second.
pub(crate) fn mb_per_s(bytes: u64, ms: f64) -> f64 {
    bytes as f64 / 1e3 / ms
}

/// A number with about three digits.
pub(crate) fn show(value: f64) -> String {
    let digits = match value.abs() {
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

/// Minimum and maximum.
pub(crate) fn show_range(summary: &Summary) -> String {
    format!("{}-{}", show(summary.min), show(summary.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_median_and_range() {
        let median = |values: &[f64]| Summary::of(values.to_vec()).map(|summary| summary.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        let summary = Summary::of([9.0, 1.0, 2.0]).expect("values");
        assert_eq!((summary.min, summary.max), (1.0, 9.0));
        assert_eq!(summary.values, [9.0, 1.0, 2.0], "in the order of the runs");
        assert_eq!(show_range(&summary), "1.00-9.00");
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 0.126, 9.994, 9.996, 99.94, 99.96, 1170.4, -3.2].map(show);
        assert_eq!(shown, ["0.00", "0.13", "9.99", "10.0", "99.9", "100", "1170", "-3.20"]);
        // As in the thread: 1024 MiB in 1170 ms.
        assert_eq!(show(mb_per_s(1 << 30, 1170.0)), "918");
    }

    #[test]
    fn cpu_time_is_counted() {
        let start = Start::now();
        let mut sum = 0_u64;
        while start.took().cpu_ms() < 1.0 {
            sum = std::hint::black_box(sum + 1);
        }
        let took = start.took();
        assert!(took.wall_ms > 0.0 && took.cpu_ms() >= 1.0, "{took:?}");
    }
}
