// SPDX-License-Identifier: MIT OR Apache-2.0
//! `small`: the table of the thread "iomap: add simple dio path for small direct I/O", for lent memory
//! and for memory of the process.

mod engine;
mod gather;
mod libaio;
mod memory;
mod target;
mod uring;

use std::path::PathBuf;
use std::process::Command;

use clap::{Args, value_parser};
use dmabuf_dio_terminal::exit::Failure;
use serde_json::Value;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::fio::{self, number};
use crate::host::facts::facts;
use crate::measure::clock::{Clock, Unit};
use crate::measure::meter::Span;
use crate::measure::phase::Phase;
use crate::outcome::{Status, Trouble};
use crate::rows::{Case, Members, Order, Report, Run, measure as run_all};
use engine::{Engine, Worker, batch};
use gather::GatherReader;
use libaio::Libaio;
use memory::{MemoryKind, ReadBlocks};
use target::{Appends, BLOCK, Target};
use uring::Uring;

/// Arguments of `small`.
#[derive(Debug, Args)]
#[command(
    about = "Random direct reads of 4 KiB: file systems and disk, libaio and io_uring, by queue depth"
)]
#[command(after_help = format!("\
Every read but fio's is compared in a run that does not count. Of a block device nothing is written.
Memory is the process's (user), registered with io_uring, or a dma-buf's that the module lends.

Example: dmabuf-dio-bench small --on /mnt/ext4 --on /mnt/xfs --on /dev/nvme1n1 --depths 32 --only lent

{EXIT_CODES}"))]
pub(crate) struct SmallArgs {
    /// Folder in which a file is created, or block device to read; may be repeated [default:
    /// that of --dir]
    #[arg(long, value_name = "PATH")]
    pub(crate) on: Vec<PathBuf>,
    /// Bytes of it to read from, a multiple of the page size
    #[arg(long, value_name = "SIZE", value_parser = whole_pages, default_value = "256M")]
    pub(crate) size: u64,
    /// Requests in flight
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',',
          value_parser = value_parser!(u32).range(1..=1024), default_value = "1,32,64,128,256")]
    pub(crate) depths: Vec<u32>,
    /// Reads in a run
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=10_000_000),
          default_value_t = 20_000)]
    pub(crate) reads: u32,
    /// Append 4 KiB to the file, by a direct write, once in READS reads, and count that with them; rows
    /// by fio and gather are left out
    #[arg(long, value_name = "READS", value_parser = value_parser!(u32).range(1..))]
    pub(crate) append_every: Option<u32>,
    /// Do not run fio for comparison
    #[arg(long)]
    pub(crate) no_fio: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// How requests are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineKind {
    Libaio,
    Uring,
    /// By the library.
    Gather,
}

/// A way of reading.
#[derive(Clone, Copy, Debug)]
struct Way {
    engine: EngineKind,
    polled: bool,
    memory: MemoryKind,
    /// By fio, not by this program.
    fio: bool,
}

const fn way(engine: EngineKind, polled: bool, memory: MemoryKind, fio: bool) -> Way {
    Way { engine, polled, memory, fio }
}

const WAYS: [Way; 14] = {
    use EngineKind::{Gather, Libaio, Uring};
    use MemoryKind::{Lent, Registered, User};
    [
        way(Libaio, false, User, false),
        way(Libaio, false, User, true),
        way(Uring, false, User, false),
        way(Uring, false, User, true),
        way(Uring, false, Registered, false),
        way(Uring, false, Registered, true),
        way(Uring, false, Lent, false),
        way(Gather, false, Lent, false),
        way(Uring, true, User, false),
        way(Uring, true, User, true),
        way(Uring, true, Registered, false),
        way(Uring, true, Registered, true),
        way(Uring, true, Lent, false),
        way(Gather, true, Lent, false),
    ]
};

pub(crate) fn measure(args: &SmallArgs) -> Result<Report, Failure> {
    let mut facts = facts(&args.common)?;
    let dir = [args.common.dir.clone()];
    let paths = if args.on.is_empty() { &dir[..] } else { &args.on };
    let targets = (0..).zip(paths).map(|(number, path)| Target::open(path, args.size, number));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    let clock = Clock::start()?;
    let fio = if args.no_fio { None } else { fio::version() };
    facts.extend([
        ("fio", fio.into()),
        ("reads", args.reads.into()),
        ("append_every", args.append_every.into()),
        ("unit", clock.unit().name().into()),
    ]);
    let offsets = offsets(args);
    let mut cases = Vec::new();
    for target in &targets {
        // One call of gather makes all reads, and fio does not append.
        let appends = |way: &&Way| !way.fio && way.engine != EngineKind::Gather;
        let ways = WAYS.iter().filter(|way| !(args.no_fio && way.fio));
        for way in ways.filter(|way| args.append_every.is_none() || appends(way)) {
            for &depth in &args.depths {
                let point = Point { way: *way, target, depth, args };
                let (clock, offsets) = (&clock, &offsets[..]);
                cases.push(Case::new(point.about(), move |run| match run {
                    0 => point.compare(offsets).map(|()| None),
                    _ => point.run(offsets, clock).map(Some),
                }));
            }
        }
    }
    let rows = run_all(cases, &args.common.only, 0..=args.common.runs, Order::Turns)?;
    Ok(Report { bench: "small", facts, rows })
}

/// The offsets to read from, the same for all rows.
fn offsets(args: &SmallArgs) -> Vec<u64> {
    let blocks = args.size / BLOCK;
    // Marsaglia's xorshift64 (Journal of Statistical Software 8(14), 2003).
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % blocks * BLOCK
    };
    std::iter::repeat_with(next).take(args.reads as usize).collect()
}

/// A way of reading a target at a queue depth.
#[derive(Clone, Copy, Debug)]
struct Point<'t> {
    way: Way,
    target: &'t Target,
    depth: u32,
    args: &'t SmallArgs,
}

impl<'t> Point<'t> {
    fn about(&self) -> Members {
        let engine = match self.way.engine {
            EngineKind::Libaio => "libaio",
            EngineKind::Uring => "io_uring",
            EngineKind::Gather => "gather",
        };
        let polled = if self.way.polled { " polled" } else { "" };
        vec![
            ("target", self.target.name.clone().into()),
            ("way", format!("{engine}{polled}").into()),
            ("memory", self.way.memory.name().into()),
            ("by", if self.way.fio { "fio" } else { "us" }.into()),
            ("depth", self.depth.into()),
        ]
    }

    /// Creates the reader for these offsets.
    fn reader(&self, offsets: &[u64]) -> Result<Reader<'t>, Trouble> {
        let Way { engine, polled, memory, .. } = self.way;
        let (file, depth) = (self.target.direct()?, self.depth);
        let memory = || ReadBlocks::new(memory, depth);
        let engine: Box<dyn Engine + 't> = match engine {
            EngineKind::Libaio => Box::new(Libaio::new(file, memory()?, depth)?),
            EngineKind::Uring => Box::new(Uring::new(file, memory()?, depth, polled)?),
            EngineKind::Gather => {
                let gather = GatherReader::new(self.target, depth, offsets, polled)?;
                return Ok(Reader::Gather(Box::new(gather)));
            }
        };
        let appends =
            self.args.append_every.map(|every| Appends::new(self.target, every)).transpose()?;
        Ok(Reader::Worker(Worker { engine, depth, polled, appends }))
    }

    /// Reads from all offsets and compares. fio is not compared.
    fn compare(&self, offsets: &[u64]) -> Result<(), Trouble> {
        if self.way.fio {
            return Ok(());
        }
        match self.reader(offsets)? {
            Reader::Worker(mut worker) => worker.compare(offsets, self.target),
            Reader::Gather(mut gather) => gather.compare(self.target),
        }
    }

    /// Reads from all offsets, and returns the cost.
    fn run(&self, offsets: &[u64], clock: &Clock) -> Result<Run, Trouble> {
        if self.way.fio {
            return self.by_fio(offsets.len() as u64, clock);
        }
        let mut reader = self.reader(offsets)?;
        // What is set up with a first request is not counted.
        reader.read(&offsets[..(self.depth as usize).min(offsets.len())])?;
        clock.settle();
        let span = Span::begin(Some(clock), Phase::Io);
        let result = reader.read(offsets);
        let spent = span.end();
        result?;
        let reads = offsets.len() as f64;
        Ok(costs(reads * 1e3 / spent.wall_ms, spent.busy / reads))
    }

    /// Where all CPU work is counted, fio runs with the number of reads and with twice that number: the
    /// difference does not contain fio's start-up.
    fn by_fio(&self, reads: u64, clock: &Clock) -> Result<Run, Trouble> {
        let (job, some) = self.fio_once(reads, clock)?;
        let of = |name| number(&job, name);
        if clock.unit() == Unit::Nanoseconds {
            let cpu_ns = of("/read/runtime") * 1e6 * (of("/usr_cpu") + of("/sys_cpu")) / 100.0;
            return Ok(costs(of("/read/iops"), cpu_ns / of("/read/total_ios")));
        }
        let (job, more) = self.fio_once(2 * reads, clock)?;
        Ok(costs(number(&job, "/read/iops"), (more - some) / reads as f64))
    }

    /// The output of a run of fio, and the CPU's work meanwhile.
    fn fio_once(&self, reads: u64, clock: &Clock) -> Result<(Value, f64), Trouble> {
        clock.settle();
        let mark = clock.mark();
        let jobs = fio::run(self.fio(reads)?)?;
        let busy = clock.busy_since(mark);
        let job =
            jobs.into_iter().next().filter(|job| number(job, "/read/total_ios") >= reads as f64);
        let few = || Trouble::new(Status::Failed, format!("fio made fewer than {reads} reads"));
        Ok((job.ok_or_else(few)?, busy))
    }

    /// The cheapest options of fio: requests in batches, no statistics per request.
    fn fio(&self, reads: u64) -> Result<Command, Trouble> {
        self.target.direct()?;
        let (depth, batch) = (self.depth, batch(self.depth));
        let mut command = Command::new("fio");
        command.args(["--output-format=json", "--thread", "--readonly", "--allow_file_create=0"]);
        command.args(["--name=small", "--rw=randread", "--direct=1", "--norandommap"]);
        command.args(["--gtod_reduce=1", "--invalidate=0", "--mem=mmap"]);
        command.arg(fio::filename(&self.target.path));
        command.args([format!("--bs={BLOCK}"), format!("--size={}", self.args.size)]);
        command.args([format!("--io_size={}", reads * BLOCK), format!("--iodepth={depth}")]);
        command.arg(format!("--iodepth_batch_submit={batch}"));
        command.arg(format!("--iodepth_batch_complete_min={batch}"));
        command.arg(format!("--iodepth_batch_complete_max={depth}"));
        if self.way.engine == EngineKind::Libaio {
            command.arg("--ioengine=libaio");
        } else {
            command.args(["--ioengine=io_uring", "--registerfiles=1", "--nonvectored=1"]);
        }
        command.args(self.way.polled.then_some("--hipri=1"));
        command.args((self.way.memory == MemoryKind::Registered).then_some("--fixedbufs=1"));
        Ok(command)
    }
}

/// Reads per second, and the clock's count per read.
fn costs(iops: f64, per_read: f64) -> Run {
    vec![("iops", iops), ("per_read", per_read)]
}

enum Reader<'t> {
    Worker(Worker<'t>),
    Gather(Box<GatherReader>),
}

impl Reader<'_> {
    /// Reads from the offsets, which are the first of those it was created for.
    fn read(&mut self, offsets: &[u64]) -> Result<(), Trouble> {
        match self {
            Self::Worker(worker) => worker.read(offsets),
            Self::Gather(gather) => gather.read(offsets.len()),
        }
    }
}
