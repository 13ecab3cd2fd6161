// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of each phase of a transfer.

use crate::buffer::Buffer;
use crate::measure::clock::Clock;
use crate::measure::outcome::Trouble;
use crate::measure::phase::{self, Phase};
use crate::pattern::{Difference, POISON, Pattern};

/// The costs of the phases; `None` if the case does not have the phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PhaseCosts([Option<f64>; 4]);

impl PhaseCosts {
    pub(crate) fn of(&self, phase: Phase) -> Option<f64> {
        self.0[phase as usize]
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.iter().flatten().sum()
    }

    pub(crate) fn divided_by(mut self, count: f64) -> Self {
        self.0.iter_mut().flatten().for_each(|spent| *spent /= count);
        self
    }

    fn add(&mut self, phase: Phase, spent: f64) {
        *self.0[phase as usize].get_or_insert(0.0) += spent;
    }
}

/// Measures phases and, if requested, compares the content, which changes the state of memory.
#[derive(Debug)]
pub(crate) struct PhaseMeter<'a> {
    clock: &'a Clock,
    content: Option<Pattern>,
    spent: PhaseCosts,
}

impl<'a> PhaseMeter<'a> {
    /// The content to compare with, if requested.
    pub(crate) fn new(clock: &'a Clock, content: Option<Pattern>) -> Self {
        Self { clock, content, spent: PhaseCosts::default() }
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

    /// Compares every byte of a buffer and overwrites it, so that the next run does not find correct
    /// data.
    pub(crate) fn compare(&self, buffer: &Buffer) -> Result<(), Trouble> {
        self.compare_with(|content| {
            let found = buffer.check(content, 0)?;
            buffer.poison()?;
            Ok(found)
        })
    }

    /// The same for memory of this process.
    pub(crate) fn compare_bytes(&self, bytes: &mut [u8]) -> Result<(), Trouble> {
        self.compare_with(|content| {
            let found = content.check(bytes, 0);
            bytes.fill(POISON);
            Ok(found)
        })
    }

    /// The same for other memory: `look` compares and overwrites.
    pub(crate) fn compare_with(
        &self,
        look: impl FnOnce(Pattern) -> Result<Result<(), Difference>, Trouble>,
    ) -> Result<(), Trouble> {
        let Some(content) = self.content else { return Ok(()) };
        look(content)?.map_err(|difference| Trouble::different(&difference))
    }

    /// The costs so far, including memory that is still being freed.
    pub(crate) fn finish(mut self) -> PhaseCosts {
        self.spent.add(Phase::Close, self.clock.settle());
        self.spent
    }

    fn phase<T>(&mut self, phase: Phase, what: impl FnOnce() -> T) -> T {
        let start = self.clock.mark();
        phase::open(phase);
        let result = what();
        phase::close();
        self.spent.add(phase, self.clock.busy_since(start));
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::memfd;
    use crate::measure::outcome::Status;

    #[test]
    fn phases_add_up() {
        let mut spent = PhaseCosts::default();
        spent.add(Phase::Load, 6.0);
        spent.add(Phase::Close, 2.0);
        spent.add(Phase::Close, 2.0);
        let half = spent.divided_by(2.0);
        assert_eq!(half.0, [None, None, Some(3.0), Some(2.0)]);
        assert_eq!((half.of(Phase::Io), Some(half.total())), (None, Some(5.0)));
    }

    #[test]
    fn comparison_reports_a_wrong_byte_and_destroys_the_content() {
        let clock = Clock::start().expect("a clock");
        let content = Pattern::new(3);
        let buffer = memfd(8192).expect("a memfd");
        buffer.fill(content, 0).expect("filled");
        let meter = PhaseMeter::new(&clock, Some(content));
        assert_eq!(meter.compare(&buffer), Ok(()));
        let trouble = meter.compare(&buffer).expect_err("destroyed");
        assert_eq!(trouble.status, Status::Different);
        assert_eq!(PhaseMeter::new(&clock, None).compare(&buffer), Ok(()), "not compared");
    }
}
