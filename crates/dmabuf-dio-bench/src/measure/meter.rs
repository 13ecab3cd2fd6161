// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the phases of a transfer cost: time and, with a clock, all that the CPU did.

use std::ops::AddAssign;

use super::clock::{Clock, Mark};
use super::phase::{self, Phase};
use super::time::{Start, Took};

/// The cost of a phase.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) took: Took,
    /// The clock's count; 0 without a clock.
    pub(crate) busy: f64,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.took += other.took;
        self.busy += other.busy;
    }
}

/// A phase that goes on.
#[derive(Debug)]
pub(crate) struct Span<'a> {
    start: Start,
    clock: Option<(&'a Clock, Mark)>,
}

impl<'a> Span<'a> {
    pub(crate) fn begin(clock: Option<&'a Clock>, phase: Phase) -> Self {
        let start = Start::now();
        // Last, so that it does not count the calls above.
        let span = Self { start, clock: clock.map(|clock| (clock, clock.mark())) };
        phase::open(phase);
        span
    }

    pub(crate) fn end(self) -> Spent {
        phase::close();
        let busy = self.clock.map_or(0.0, |(clock, mark)| clock.busy_since(mark));
        Spent { took: self.start.took(), busy }
    }
}

/// Adds up the phases.
#[derive(Debug, Default)]
pub(crate) struct Meter<'a> {
    clock: Option<&'a Clock>,
    spent: [Option<Spent>; Phase::ALL.len()],
}

impl<'a> Meter<'a> {
    pub(crate) fn with(clock: &'a Clock) -> Self {
        Self { clock: Some(clock), ..Self::default() }
    }

    pub(crate) fn allocation<T>(&mut self, what: impl FnOnce() -> T) -> T {
        self.phase(Phase::Allocation, what)
    }

    pub(crate) fn io<T>(&mut self, what: impl FnOnce() -> T) -> T {
        self.phase(Phase::Io, what)
    }

    pub(crate) fn load<T>(&mut self, what: impl FnOnce() -> T) -> T {
        self.phase(Phase::Load, what)
    }

    pub(crate) fn close<T>(&mut self, what: impl FnOnce() -> T) -> T {
        self.phase(Phase::Close, what)
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

    /// Everything until the bytes are there.
    pub(crate) fn until_loaded(&self) -> Took {
        let mut all = Spent::default();
        for phase in [Phase::Allocation, Phase::Io, Phase::Load] {
            all += self.of(phase).unwrap_or_default();
        }
        all.took
    }

    fn add(&mut self, phase: Phase, spent: Spent) {
        *self.spent[phase as usize].get_or_insert_default() += spent;
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
            meter.load(|| std::thread::sleep(std::time::Duration::from_millis(2)));
            meter.until_loaded().wall_ms
        };
        let (once, twice) = (load(), load());
        assert!(once >= 2.0 && twice >= once + 2.0, "{once} {twice}");
        assert!(meter.of(Phase::Io).is_none());
        meter.add(Phase::Close, Spent { busy: 2.0, ..Spent::default() });
        meter.add(Phase::Close, Spent { busy: 3.0, ..Spent::default() });
        assert_eq!(meter.of(Phase::Close).map(|spent| spent.busy), Some(5.0));
    }
}
