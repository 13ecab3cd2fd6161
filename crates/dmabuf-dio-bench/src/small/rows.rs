// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of the table, and a run of a line at a queue depth.

use super::appends::Appends;
use super::engine::{Engine, Worker};
use super::fio::RandomFio;
use super::gather::GatherReader;
use super::libaio::Libaio;
use super::memory::{MemoryKind, ReadBlocks};
use super::target::Target;
use super::uring::Uring;
use crate::measure::clock::Clock;
use crate::measure::meter::Span;
use crate::measure::outcome::Trouble;
use crate::measure::phase::Phase;
use crate::report::row::Run;

/// How requests are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineKind {
    Libaio,
    Uring,
    Polled,
    /// By the library.
    Gather,
    GatherPolled,
}

impl EngineKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Libaio => "libaio",
            Self::Uring => "io_uring",
            Self::Polled => "io_uring polled",
            Self::Gather => "gather",
            Self::GatherPolled => "gather polled",
        }
    }
}

/// The program that submits the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IssuedBy {
    Us,
    Fio,
}

impl IssuedBy {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Us => "us",
            Self::Fio => "fio",
        }
    }
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRow<'t> {
    pub(crate) target: &'t Target,
    pub(crate) engine: EngineKind,
    pub(crate) memory: MemoryKind,
    pub(crate) by: IssuedBy,
    /// Bytes of the target that are read from.
    pub(crate) size: u64,
    /// Reads per block that is appended.
    pub(crate) append_every: Option<u32>,
}

const LINES: [(EngineKind, MemoryKind, IssuedBy); 14] = [
    (EngineKind::Libaio, MemoryKind::User, IssuedBy::Us),
    (EngineKind::Libaio, MemoryKind::User, IssuedBy::Fio),
    (EngineKind::Uring, MemoryKind::User, IssuedBy::Us),
    (EngineKind::Uring, MemoryKind::User, IssuedBy::Fio),
    (EngineKind::Uring, MemoryKind::Registered, IssuedBy::Us),
    (EngineKind::Uring, MemoryKind::Registered, IssuedBy::Fio),
    (EngineKind::Uring, MemoryKind::Lent, IssuedBy::Us),
    (EngineKind::Gather, MemoryKind::Lent, IssuedBy::Us),
    (EngineKind::Polled, MemoryKind::User, IssuedBy::Us),
    (EngineKind::Polled, MemoryKind::User, IssuedBy::Fio),
    (EngineKind::Polled, MemoryKind::Registered, IssuedBy::Us),
    (EngineKind::Polled, MemoryKind::Registered, IssuedBy::Fio),
    (EngineKind::Polled, MemoryKind::Lent, IssuedBy::Us),
    (EngineKind::GatherPolled, MemoryKind::Lent, IssuedBy::Us),
];

impl<'t> ReadRow<'t> {
    pub(crate) fn name(&self) -> String {
        let fio = if self.by == IssuedBy::Fio { ", fio" } else { "" };
        format!("{}, {}, {}{fio}", self.target.name, self.engine.name(), self.memory.name())
    }

    /// The names of the target, the program and engine, and the memory.
    pub(crate) fn names(&self) -> Vec<String> {
        let fio = if self.by == IssuedBy::Fio { ", fio" } else { "" };
        let by = format!("{}{fio}", self.engine.name());
        vec![self.target.name.clone(), by, self.memory.name().to_owned()]
    }

    /// The lines of a target: all, or those that can append to it meanwhile.
    pub(crate) fn all(
        target: &'t Target,
        size: u64,
        fio: bool,
        append_every: Option<u32>,
    ) -> impl Iterator<Item = Self> {
        // One call of gather makes all reads, and fio does not append.
        let one_by_one = |engine| !matches!(engine, EngineKind::Gather | EngineKind::GatherPolled);
        let lines = LINES.iter().filter(move |(engine, _, by)| match by {
            IssuedBy::Fio => fio && append_every.is_none(),
            IssuedBy::Us => append_every.is_none() || one_by_one(*engine),
        });
        lines.map(move |&(engine, memory, by)| Self {
            target,
            engine,
            memory,
            by,
            size,
            append_every,
        })
    }

    /// Creates the reader for these offsets.
    fn reader(&self, depth: u32, offsets: &[u64]) -> Result<RowReader<'t>, Trouble> {
        let polled = matches!(self.engine, EngineKind::Polled | EngineKind::GatherPolled);
        let file = self.target.direct()?;
        let memory = || ReadBlocks::new(self.memory, depth);
        let engine: Box<dyn Engine + 't> = match self.engine {
            EngineKind::Libaio => Box::new(Libaio::new(file, memory()?, depth)?),
            EngineKind::Uring | EngineKind::Polled => {
                Box::new(Uring::new(file, memory()?, depth, polled)?)
            }
            EngineKind::Gather | EngineKind::GatherPolled => {
                let gather = GatherReader::new(self.target, depth, offsets, polled)?;
                return Ok(RowReader::Gather(Box::new(gather)));
            }
        };
        let appends =
            self.append_every.map(|every| Appends::new(self.target, every)).transpose()?;
        Ok(RowReader::Worker(Worker { engine, depth, polled, appends }))
    }

    /// Reads from all offsets and compares. fio is not compared.
    pub(crate) fn compare(&self, depth: u32, offsets: &[u64]) -> Result<(), Trouble> {
        if self.by == IssuedBy::Fio {
            return Ok(());
        }
        match self.reader(depth, offsets)? {
            RowReader::Worker(mut worker) => worker.compare(offsets, self.target),
            RowReader::Gather(mut gather) => gather.compare(self.target),
        }
    }

    /// Reads from all offsets, and returns the cost.
    pub(crate) fn run(&self, depth: u32, offsets: &[u64], clock: &Clock) -> Result<Run, Trouble> {
        if self.by == IssuedBy::Fio {
            return RandomFio { row: self, depth }.run(offsets.len() as u64, clock);
        }
        let mut reader = self.reader(depth, offsets)?;
        // What is set up with a first request is not counted.
        reader.read(&offsets[..(depth as usize).min(offsets.len())])?;
        clock.settle();
        let span = Span::begin(Some(clock), Phase::Io);
        let result = reader.read(offsets);
        let spent = span.end();
        result?;
        let reads = offsets.len() as f64;
        Ok(costs(reads * 1e3 / spent.took.wall_ms, spent.busy / reads))
    }
}

/// Reads per second, and the clock's count per read.
pub(crate) fn costs(iops: f64, per_read: f64) -> Run {
    vec![("iops", iops), ("per_read", per_read)]
}

/// The reader of a line.
enum RowReader<'t> {
    Worker(Worker<'t>),
    Gather(Box<GatherReader>),
}

impl RowReader<'_> {
    /// Reads from the offsets, which are the first of those it was created for.
    fn read(&mut self, offsets: &[u64]) -> Result<(), Trouble> {
        match self {
            Self::Worker(worker) => worker.read(offsets),
            Self::Gather(gather) => gather.read(offsets.len()),
        }
    }
}
