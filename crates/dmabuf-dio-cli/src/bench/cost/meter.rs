// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each phase of a transfer cost.

use rustix::io::Errno as Os;

use super::window;
use crate::bench::buffers::Buffer;
use crate::bench::clock::Clock;
use crate::bench::pattern::{Difference, POISON, Pattern};
use crate::bench::trouble::Trouble;

/// A part of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Whatever is needed before the first byte can be moved.
    Allocation,
    Io,
    /// Allocation and I/O in one call.
    Load,
    /// Until all is free again.
    Close,
}

/// What phases cost; `None` is a phase that the way does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spent([Option<f64>; 4]);

impl Spent {
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

/// Measures phases, and compares what arrived where that is wanted: comparing leaves memory in
/// another state than a transfer alone.
#[derive(Debug)]
pub(crate) struct Meter<'a> {
    clock: &'a Clock,
    content: Option<Pattern>,
    spent: Spent,
}

impl<'a> Meter<'a> {
    /// Compares with `content`, if there is one.
    pub(crate) fn new(clock: &'a Clock, content: Option<Pattern>) -> Self {
        Self { clock, content, spent: Spent::default() }
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

    /// Compares every byte of a buffer and destroys it, so that what is read next is not there
    /// already.
    pub(crate) fn compare(&self, buffer: &Buffer) -> Result<(), Trouble> {
        self.compare_with(|content| {
            let found = buffer.check(content, 0)?;
            buffer.poison()?;
            Ok(found)
        })
    }

    /// The same with memory of this process.
    pub(crate) fn compare_bytes(&self, bytes: &mut [u8]) -> Result<(), Trouble> {
        self.compare_with(|content| {
            let found = content.check(bytes, 0);
            bytes.fill(POISON);
            Ok(found)
        })
    }

    /// The same with something else: `look` compares and destroys.
    pub(crate) fn compare_with(
        &self,
        look: impl FnOnce(Pattern) -> Result<Result<(), Difference>, Trouble>,
    ) -> Result<(), Trouble> {
        let Some(content) = self.content else { return Ok(()) };
        look(content)?.map_err(|difference| Trouble::different(&difference))
    }

    /// What was spent, with what is still being freed.
    pub(crate) fn finish(mut self) -> Spent {
        self.spent.add(Phase::Close, self.clock.settle());
        self.spent
    }

    fn phase<T>(&mut self, phase: Phase, what: impl FnOnce() -> T) -> T {
        let start = self.clock.mark();
        window::open(phase);
        let result = what();
        window::close();
        self.spent.add(phase, self.clock.busy_since(start));
        result
    }
}

/// Fails if a call moved less than all.
pub(crate) fn whole(what: &str, done: u64, wanted: u64) -> Result<(), Trouble> {
    if done == wanted { Ok(()) } else { Err(Trouble::short(what, done, wanted)) }
}

/// A call that should have worked.
pub(crate) fn failed(what: &str) -> impl Fn(Os) -> Trouble + '_ {
    move |errno| Trouble::failed(what, errno)
}

/// The same where the standard library makes the call.
pub(crate) fn io_failed(what: &str) -> impl Fn(std::io::Error) -> Trouble + '_ {
    move |error| Trouble::failed(what, Os::from_io_error(&error).unwrap_or(Os::IO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::buffers::memfd;
    use crate::bench::trouble::Status;

    #[test]
    fn phases_add_up() {
        let mut spent = Spent::default();
        spent.add(Phase::Load, 6.0);
        spent.add(Phase::Close, 2.0);
        spent.add(Phase::Close, 2.0);
        let half = spent.divided_by(2.0);
        assert_eq!(half.0, [None, None, Some(3.0), Some(2.0)]);
        assert_eq!((half.of(Phase::Io), Some(half.total())), (None, Some(5.0)));
    }

    #[test]
    fn a_wrong_byte_is_told_and_right_ones_are_destroyed() {
        let clock = Clock::start().expect("a clock");
        let content = Pattern::new(3);
        let buffer = memfd(8192).expect("a memfd");
        buffer.fill(content, 0).expect("filled");
        let meter = Meter::new(&clock, Some(content));
        assert_eq!(meter.compare(&buffer), Ok(()));
        let trouble = meter.compare(&buffer).expect_err("destroyed");
        assert_eq!(trouble.status, Status::Different);
        assert_eq!(Meter::new(&clock, None).compare(&buffer), Ok(()), "not compared");
    }
}
