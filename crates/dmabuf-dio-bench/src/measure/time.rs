// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wall-clock time and CPU time.

use std::ops::AddAssign;
use std::time::Instant;

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

impl Start {
    pub(crate) fn now() -> Self {
        Self { cpu: Cpu::of(libc::RUSAGE_SELF), wall: Instant::now() }
    }

    pub(crate) fn took(self) -> Took {
        let wall = self.wall.elapsed();
        let cpu = Cpu::of(libc::RUSAGE_SELF).since(self.cpu);
        Took { wall_ms: wall.as_nanos() as f64 / 1e6, cpu }
    }
}

impl Cpu {
    /// That of the programs that have ended.
    pub(crate) fn children() -> Self {
        Self::of(libc::RUSAGE_CHILDREN)
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self { user: self.user - before.user, sys: self.sys - before.sys }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_counted() {
        let start = Start::now();
        let mut sum = 0_u64;
        while start.took().cpu.ms() < 1.0 {
            sum = std::hint::black_box(sum + 1);
        }
        let took = start.took();
        assert!(took.wall_ms > 0.0 && took.cpu.ms() >= 1.0, "{took:?}");
    }
}
