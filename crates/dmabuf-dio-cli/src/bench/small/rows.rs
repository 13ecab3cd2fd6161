// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of the table, and a run of one at a queue depth.

use serde::Serialize;

use super::args::SmallArgs;
use super::engine::{Engine, Worker};
use super::fio::Fio;
use super::gather::Gather;
use super::libaio::Libaio;
use super::memory::{Kind, Memory};
use super::results::Sample;
use super::target::Target;
use super::uring::Uring;
use crate::bench::clock::Clock;
use crate::bench::cost::meter::Phase;
use crate::bench::cost::window;
use crate::bench::measure::Start;
use crate::bench::only::select;
use crate::bench::trouble::Trouble;
use crate::exit::Failure;

/// How requests are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Way {
    #[serde(rename = "libaio")]
    Libaio,
    #[serde(rename = "io_uring")]
    Uring,
    #[serde(rename = "io_uring polled")]
    Polled,
    /// The library's.
    #[serde(rename = "gather")]
    Gather,
    #[serde(rename = "gather polled")]
    GatherPolled,
}

impl Way {
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

/// Who makes the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    Us,
    Fio,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'t> {
    pub(crate) target: &'t Target,
    pub(crate) way: Way,
    pub(crate) memory: Kind,
    pub(crate) by: By,
    /// How much of the target is read from.
    pub(crate) size: u64,
}

const LINES: [(Way, Kind, By); 14] = [
    (Way::Libaio, Kind::User, By::Us),
    (Way::Libaio, Kind::User, By::Fio),
    (Way::Uring, Kind::User, By::Us),
    (Way::Uring, Kind::User, By::Fio),
    (Way::Uring, Kind::Registered, By::Us),
    (Way::Uring, Kind::Registered, By::Fio),
    (Way::Uring, Kind::Lent, By::Us),
    (Way::Gather, Kind::Lent, By::Us),
    (Way::Polled, Kind::User, By::Us),
    (Way::Polled, Kind::User, By::Fio),
    (Way::Polled, Kind::Registered, By::Us),
    (Way::Polled, Kind::Registered, By::Fio),
    (Way::Polled, Kind::Lent, By::Us),
    (Way::GatherPolled, Kind::Lent, By::Us),
];

impl<'t> Row<'t> {
    pub(crate) fn name(&self) -> String {
        let fio = if self.by == By::Fio { ", fio" } else { "" };
        format!("{}, {}, {}{fio}", self.target.name, self.way.name(), self.memory.name())
    }

    /// Those that are asked for.
    pub(crate) fn selected(targets: &'t [Target], args: &SmallArgs) -> Result<Vec<Self>, Failure> {
        let lines = LINES.iter().filter(|(.., by)| !(args.no_fio && *by == By::Fio));
        let of = |target| {
            let size = args.size;
            lines.clone().map(move |&(way, memory, by)| Self { target, way, memory, by, size })
        };
        let rows = targets.iter().flat_map(of).collect();
        select(rows, &args.only, Self::name, "no line has it")
    }

    /// What reads from these offsets.
    fn reader(&self, depth: u32, offsets: &[u64]) -> Result<Reader<'t>, Trouble> {
        let polled = matches!(self.way, Way::Polled | Way::GatherPolled);
        let file = self.target.direct()?;
        let memory = || Memory::new(self.memory, depth);
        let engine: Box<dyn Engine + 't> = match self.way {
            Way::Libaio => Box::new(Libaio::new(file, memory()?, depth)?),
            Way::Uring | Way::Polled => Box::new(Uring::new(file, memory()?, depth, polled)?),
            Way::Gather | Way::GatherPolled => {
                let gather = Gather::new(self.target, depth, offsets, polled)?;
                return Ok(Reader::Gather(Box::new(gather)));
            }
        };
        Ok(Reader::Worker(Worker { engine, depth, polled }))
    }

    /// Reads from all offsets and compares, which fio leaves to others.
    pub(crate) fn compare(&self, depth: u32, offsets: &[u64]) -> Result<(), Trouble> {
        if self.by == By::Fio {
            return Ok(());
        }
        match self.reader(depth, offsets)? {
            Reader::Worker(mut worker) => worker.compare(offsets, self.target),
            Reader::Gather(mut gather) => gather.compare(self.target),
        }
    }

    /// Reads from all offsets, and says what it took.
    pub(crate) fn run(
        &self,
        depth: u32,
        offsets: &[u64],
        clock: &Clock,
    ) -> Result<Sample, Trouble> {
        if self.by == By::Fio {
            return Fio { row: self, depth }.run(offsets.len() as u64, clock);
        }
        let mut reader = self.reader(depth, offsets)?;
        // What is set up with a first request is not counted.
        reader.read(&offsets[..(depth as usize).min(offsets.len())])?;
        clock.settle();
        let (mark, start) = (clock.mark(), Start::now());
        window::open(Phase::Io);
        let result = reader.read(offsets);
        window::close();
        let (busy, took) = (clock.busy_since(mark), start.took());
        result?;
        Ok(Sample::of(offsets.len() as u64, took.wall_ms, busy))
    }
}

/// What makes the reads of a line.
enum Reader<'t> {
    Worker(Worker<'t>),
    Gather(Box<Gather>),
}

impl Reader<'_> {
    /// Reads from the offsets, the first of those that it was made for.
    fn read(&mut self, offsets: &[u64]) -> Result<(), Trouble> {
        match self {
            Self::Worker(worker) => worker.read(offsets),
            Self::Gather(gather) => gather.read(offsets.len()),
        }
    }
}
