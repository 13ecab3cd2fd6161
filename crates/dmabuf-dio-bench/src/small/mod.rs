// SPDX-License-Identifier: MIT OR Apache-2.0
//! `small`: the table of the thread "iomap: add simple dio path for small direct I/O", for lent memory
//! and for memory of the process.

mod libaio;
mod reader;

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, value_parser};
use dmabuf_dio_terminal::exit::Failure;
use io_uring::IoUring;
use rustix::fs::{SeekFrom, seek};
use serde_json::{Value, json};

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::disk::{DiskFile, IoMode};
use crate::fio::{self, number};
use crate::measure::Span;
use crate::measure::clock::{Clock, Unit};
use crate::measure::phase::Phase;
use crate::outcome::{Result, Trouble, failed, whole};
use crate::pattern::Pattern;
use crate::rows::{Case, Order, Report, Run};
use crate::ways::ring::Uring;
use libaio::Libaio;
use reader::{Appends, BLOCK, BlockReader, GatherReader, MemoryKind, ReadBlocks, Reader, batch};

/// Random direct reads of 4 KiB: file systems and disk, libaio and `io_uring`, by queue depth
#[derive(Debug, Args)]
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
    name: &'static str,
    engine: EngineKind,
    memory: MemoryKind,
    polled: bool,
    /// By fio, not by this program.
    fio: bool,
}

const ENGINES: [(&str, EngineKind, MemoryKind); 5] = [
    ("libaio", EngineKind::Libaio, MemoryKind::User),
    ("io_uring", EngineKind::Uring, MemoryKind::User),
    ("io_uring", EngineKind::Uring, MemoryKind::Registered),
    ("io_uring", EngineKind::Uring, MemoryKind::Lent),
    ("gather", EngineKind::Gather, MemoryKind::Lent),
];

/// Every way: libaio has no polling, fio no lent memory.
fn ways() -> impl Iterator<Item = Way> {
    let all = [false, true].into_iter().flat_map(|polled| {
        ENGINES.into_iter().flat_map(move |(name, engine, memory)| {
            [false, true].map(|fio| Way { name, engine, memory, polled, fio })
        })
    });
    all.filter(|way| {
        !(way.polled && way.engine == EngineKind::Libaio
            || way.fio && way.memory == MemoryKind::Lent)
    })
}

pub(crate) fn measure(args: &SmallArgs) -> Result<Report, Failure> {
    let mut report = Report::start("small", &args.common)?;
    let dir = [args.common.dir.clone()];
    let paths = if args.on.is_empty() { &dir[..] } else { &args.on };
    let targets = (0..).zip(paths).map(|(number, path)| target(path, args.size, number));
    let targets = targets.collect::<Result<Vec<_>>>()?;
    let clock = &Clock::start()?;
    report.fact("fio", if args.no_fio { None } else { fio::version() });
    report.fact("reads", args.reads);
    report.fact("append_every", args.append_every);
    report.fact("unit", json!(clock.unit));
    let offsets = &offsets(args);
    let mut cases = Vec::new();
    for (target, disk) in &targets {
        // One call of gather makes all reads, and fio does not append.
        let appends = |way: &Way| !way.fio && way.engine != EngineKind::Gather;
        let ways = ways().filter(|way| !(args.no_fio && way.fio));
        for way in ways.filter(|way| args.append_every.is_none() || appends(way)) {
            for &depth in &args.depths {
                let point = Point { way, disk, depth, args };
                let polled = if way.polled { " polled" } else { "" };
                let about = vec![
                    ("target", target.as_str().into()),
                    ("way", format!("{}{polled}", way.name).into()),
                    ("memory", format!("{:?}", way.memory).to_lowercase().into()),
                    ("by", if way.fio { "fio" } else { "us" }.into()),
                    ("depth", depth.into()),
                ];
                cases.push(Case::new(about, move |run| match run {
                    0 => point.compare(offsets),
                    _ => point.run(offsets, clock),
                }));
            }
        }
    }
    report.measure(cases, 0..=args.common.runs, Order::Turns)?;
    Ok(report)
}

/// Creates the file, or opens the block device. Its name is that of the file system, or "raw".
fn target(path: &Path, size: u64, number: u64) -> Result<(String, DiskFile)> {
    if !path.metadata().is_ok_and(|facts| facts.file_type().is_block_device()) {
        let disk = DiskFile::create(path, Some(""), size, Pattern::new(number))?;
        return Ok((disk.file_system.clone().unwrap_or_else(|| "file".into()), disk));
    }
    let disk = DiskFile::existing(path, size);
    disk.open(IoMode::Direct)?;
    let len = seek(disk.open(IoMode::Buffer)?, SeekFrom::End(0)).map_err(failed("seeking"))?;
    whole("the block device", len.min(size), size)?;
    Ok(("raw".into(), disk))
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
    disk: &'t DiskFile,
    depth: u32,
    args: &'t SmallArgs,
}

impl Point<'_> {
    /// Creates the reader for these offsets.
    fn reader(&self, offsets: &[u64]) -> Result<Box<dyn Reader>> {
        let (Way { engine, polled, memory, .. }, depth) = (self.way, self.depth);
        let file = self.disk.open(IoMode::Direct)?;
        if engine == EngineKind::Gather {
            return Ok(Box::new(GatherReader::new(self.disk, depth, offsets, polled)?));
        }
        let memory = ReadBlocks::new(memory, depth)?;
        let appends = self.args.append_every.map(|every| Appends::new(self.disk, every));
        let appends = appends.transpose()?;
        if engine == EngineKind::Libaio {
            let engine = Libaio::new(file, depth)?;
            return Ok(Box::new(BlockReader { engine, memory, depth, appends }));
        }
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        if polled {
            builder.setup_iopoll();
        }
        let mut engine = Uring::new(&builder, depth, file, polled)?;
        memory.register(&mut engine)?;
        Ok(Box::new(BlockReader { engine, memory, depth, appends }))
    }

    /// Reads from all offsets and compares. fio is not compared.
    fn compare(&self, offsets: &[u64]) -> Result<Run> {
        if self.way.fio {
            self.disk.open(IoMode::Direct)?;
        } else {
            self.reader(offsets)?.compare(offsets, self.disk)?;
            // The comparison may have left pages in the page cache, where direct reads look first.
            self.disk.forget();
        }
        Ok(Run::new())
    }

    /// Reads from all offsets, and returns the cost.
    fn run(&self, offsets: &[u64], clock: &Clock) -> Result<Run> {
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
    fn by_fio(&self, reads: u64, clock: &Clock) -> Result<Run> {
        let (job, some) = self.fio_once(reads, clock)?;
        let of = |name| number(&job, name);
        if clock.unit == Unit::Nanoseconds {
            let cpu_ns = of("/read/runtime") * 1e6 * (of("/usr_cpu") + of("/sys_cpu")) / 100.0;
            return Ok(costs(of("/read/iops"), cpu_ns / of("/read/total_ios")));
        }
        let (job, more) = self.fio_once(2 * reads, clock)?;
        Ok(costs(number(&job, "/read/iops"), (more - some) / reads as f64))
    }

    /// The output of a run of fio, and the CPU's work meanwhile.
    fn fio_once(&self, reads: u64, clock: &Clock) -> Result<(Value, f64)> {
        clock.settle();
        let mark = clock.mark();
        let jobs = fio::run(self.fio(reads))?;
        let busy = clock.busy_since(mark);
        let job = jobs.into_iter().next();
        let few = || Trouble::broken(format!("fio made fewer than {reads} reads"));
        let job = job.filter(|job| number(job, "/read/total_ios") >= reads as f64);
        Ok((job.ok_or_else(few)?, busy))
    }

    /// The cheapest options of fio: requests in batches, no statistics per request.
    fn fio(&self, reads: u64) -> impl Iterator<Item = String> {
        let Self { way, disk, depth, args } = *self;
        let batch = batch(depth);
        let engine = match way.engine {
            EngineKind::Libaio => "--ioengine=libaio",
            _ => "--ioengine=io_uring --registerfiles=1 --nonvectored=1",
        };
        let polled = if way.polled { "--hipri=1" } else { "" };
        let fixed = if way.memory == MemoryKind::Registered { "--fixedbufs=1" } else { "" };
        let options = format!(
            "--name=small --rw=randread --norandommap --gtod_reduce=1 --invalidate=0 --mem=mmap --bs={BLOCK} \
             --size={} --io_size={} --iodepth={depth} --iodepth_batch_submit={batch} \
             --iodepth_batch_complete_min={batch} --iodepth_batch_complete_max={depth} {engine} {polled} {fixed}",
            args.size,
            reads * BLOCK,
        );
        let options: Vec<_> = options.split_whitespace().map(str::to_owned).collect();
        options.into_iter().chain([fio::filename(disk)])
    }
}

/// Reads per second, and the clock's count per read.
fn costs(iops: f64, per_read: f64) -> Run {
    vec![("iops", iops), ("per_read", per_read)]
}
