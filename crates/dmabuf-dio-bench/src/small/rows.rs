// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of the table, and a run of a line at a queue depth.

use std::process::Command;

use super::appends::Appends;
use super::engine::{Engine, Worker, batch};
use super::gather::GatherReader;
use super::libaio::Libaio;
use super::memory::{MemoryKind, ReadBlocks};
use super::target::BLOCK;
use super::target::Target;
use super::uring::Uring;
use crate::fio::{self, FioJob};
use crate::measure::clock::{Clock, Unit};
use crate::measure::meter::Span;
use crate::measure::outcome::{Status, Trouble};
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
fn costs(iops: f64, per_read: f64) -> Run {
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

/// A line at a queue depth.
struct RandomFio<'r> {
    row: &'r ReadRow<'r>,
    depth: u32,
}

/// The output of a run of fio, and the CPU's work meanwhile.
struct FioRun {
    job: FioJob,
    busy: f64,
}

impl RandomFio<'_> {
    /// Where all CPU work is counted, fio runs with the number of reads and with twice that number: the
    /// difference does not contain fio's start-up.
    fn run(&self, reads: u64, clock: &Clock) -> Result<Run, Trouble> {
        if clock.unit() == Unit::Nanoseconds {
            let FioJob { read, usr_cpu, sys_cpu } = self.once(reads, clock)?.job;
            let cpu_ns = read.runtime as f64 * 1e6 * (usr_cpu + sys_cpu) / 100.0;
            return Ok(costs(read.iops, cpu_ns / read.total_ios as f64));
        }
        let (some, more) = (self.once(reads, clock)?, self.once(2 * reads, clock)?);
        let per_read = (more.busy - some.busy) / reads as f64;
        Ok(costs(more.job.read.iops, per_read))
    }

    fn once(&self, reads: u64, clock: &Clock) -> Result<FioRun, Trouble> {
        clock.settle();
        let mark = clock.mark();
        let jobs = fio::run(self.command(reads)?)?;
        let busy = clock.busy_since(mark);
        match jobs.into_iter().next() {
            Some(job) if job.read.total_ios >= reads => Ok(FioRun { job, busy }),
            _ => {
                let reason = format!("fio made fewer than {reads} reads");
                Err(Trouble::new(Status::Failed, reason))
            }
        }
    }

    /// The cheapest options of fio: requests in batches, no statistics per request.
    fn command(&self, reads: u64) -> Result<Command, Trouble> {
        self.row.target.direct()?;
        let batch = batch(self.depth);
        let mut command = Command::new("fio");
        command.args(["--output-format=json", "--thread", "--readonly", "--allow_file_create=0"]);
        command.args(["--name=small", "--rw=randread", "--direct=1", "--norandommap"]);
        command.args(["--gtod_reduce=1", "--invalidate=0", "--mem=mmap"]);
        command.arg(fio::filename(&self.row.target.path));
        command.arg(format!("--bs={BLOCK}"));
        command.arg(format!("--size={}", self.row.size));
        command.arg(format!("--io_size={}", reads * BLOCK));
        command.arg(format!("--iodepth={}", self.depth));
        command.arg(format!("--iodepth_batch_submit={batch}"));
        command.arg(format!("--iodepth_batch_complete_min={batch}"));
        command.arg(format!("--iodepth_batch_complete_max={}", self.depth));
        match self.row.engine {
            EngineKind::Libaio => {
                command.arg("--ioengine=libaio");
            }
            _ => {
                command.args(["--ioengine=io_uring", "--registerfiles=1", "--nonvectored=1"]);
            }
        }
        if self.row.engine == EngineKind::Polled {
            command.arg("--hipri=1");
        }
        if self.row.memory == MemoryKind::Registered {
            command.arg("--fixedbufs=1");
        }
        Ok(command)
    }
}
