// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two meters, time and all that the CPU did: what the phases of a transfer cost.

pub(crate) mod clock;
pub(crate) mod phase;

use std::time::Instant;

use crate::outcome::Result;
use clock::{Clock, Mark};
use phase::{PHASES, Phase};

/// The cost of a phase.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) wall_ms: f64,
    /// CPU time of this process, all its threads.
    pub(crate) cpu_ms: f64,
    /// The clock's count; 0 without a clock.
    pub(crate) busy: f64,
}

impl Spent {
    /// This and `part` of the other.
    pub(crate) fn plus(self, other: Self, part: f64) -> Self {
        Self {
            wall_ms: self.wall_ms + part * other.wall_ms,
            cpu_ms: self.cpu_ms + part * other.cpu_ms,
            busy: self.busy + part * other.busy,
        }
    }
}

/// CPU time in milliseconds: of this process, or of the programs that have ended.
pub(crate) fn cpu_ms(whom: libc::c_int) -> f64 {
    // SAFETY: an all-zero rusage is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: fills the structure it is given, which outlives the call.
    unsafe { libc::getrusage(whom, &raw mut usage) };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}

/// A phase that goes on.
#[derive(Debug)]
pub(crate) struct Span<'a> {
    cpu_ms: f64,
    wall: Instant,
    clock: Option<(&'a Clock, Mark)>,
}

impl<'a> Span<'a> {
    pub(crate) fn begin(clock: Option<&'a Clock>, phase: Phase) -> Self {
        let (cpu_ms, wall) = (cpu_ms(libc::RUSAGE_SELF), Instant::now());
        // Last, so that it does not count the calls above.
        let span = Self { cpu_ms, wall, clock: clock.map(|clock| (clock, clock.mark())) };
        phase::open(phase);
        span
    }

    pub(crate) fn end(self) -> Spent {
        phase::close();
        let busy = self.clock.map_or(0.0, |(clock, mark)| clock.busy_since(mark));
        let wall_ms = self.wall.elapsed().as_nanos() as f64 / 1e6;
        Spent { wall_ms, cpu_ms: cpu_ms(libc::RUSAGE_SELF) - self.cpu_ms, busy }
    }
}

/// Adds up the phases.
#[derive(Debug, Default)]
pub(crate) struct Meter<'a> {
    clock: Option<&'a Clock>,
    spent: [Option<Spent>; PHASES.len()],
}

impl<'a> Meter<'a> {
    pub(crate) fn with(clock: &'a Clock) -> Self {
        Self { clock: Some(clock), ..Self::default() }
    }

    pub(crate) fn allocation<T>(&mut self, what: impl FnOnce() -> Result<T>) -> Result<T> {
        self.phase(Phase::Allocation, what)
    }

    pub(crate) fn io<T>(&mut self, what: impl FnOnce() -> Result<T>) -> Result<T> {
        self.phase(Phase::Io, what)
    }

    pub(crate) fn load<T>(&mut self, what: impl FnOnce() -> Result<T>) -> Result<T> {
        self.phase(Phase::Load, what)
    }

    pub(crate) fn close(&mut self, what: impl FnOnce()) {
        self.phase(Phase::Close, what);
    }

    /// Adds what goes on in the background to the last phase.
    pub(crate) fn settle(&mut self) {
        let busy = self.clock.map_or(0.0, Clock::settle);
        self.add(Phase::Close, Spent { busy, ..Spent::default() });
    }

    /// `None` if there was no such phase.
    pub(crate) fn of(&self, phase: Phase) -> Option<Spent> {
        self.spent[phase as usize]
    }

    /// The phases that there were.
    pub(crate) fn phases(&self) -> impl Iterator<Item = (&'static str, Spent)> + Clone {
        PHASES.into_iter().zip(self.spent).filter_map(|(name, spent)| Some((name, spent?)))
    }

    /// Everything until the bytes are there.
    pub(crate) fn until_loaded(&self) -> Spent {
        let phases = self.phases().filter(|(name, _)| *name != "close");
        phases.fold(Spent::default(), |sum, (_, spent)| sum.plus(spent, 1.0))
    }

    fn add(&mut self, phase: Phase, spent: Spent) {
        let sum = self.spent[phase as usize].get_or_insert_default();
        *sum = sum.plus(spent, 1.0);
    }

    #[inline]
    fn phase<T>(&mut self, phase: Phase, what: impl FnOnce() -> T) -> T {
        let span = Span::begin(self.clock, phase);
        let result = what();
        let spent = span.end();
        self.add(phase, spent);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up() {
        let mut meter = Meter::default();
        let mut load = || {
            let work = || {
                let begin = cpu_ms(libc::RUSAGE_SELF);
                while cpu_ms(libc::RUSAGE_SELF) < begin + 2.0 {}
                Ok(())
            };
            meter.load(work).map(|()| meter.until_loaded().cpu_ms).expect("no trouble")
        };
        let (once, twice) = (load(), load());
        // Sums are rounded.
        assert!(once > 1.999 && twice > once + 1.999, "{once} {twice}");
        assert!(meter.of(Phase::Io).is_none());
        for busy in [2.0, 3.0] {
            meter.add(Phase::Close, Spent { busy, ..Spent::default() });
        }
        assert_eq!(meter.of(Phase::Close).map(|spent| spent.busy), Some(5.0));
    }
}
