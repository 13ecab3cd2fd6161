// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load`: the time that each way of loading files into new buffers takes, of those in the threads "`DMA_HEAP_ALLOC_AND_READ_FILE`
//! heap flag" and "dmabuf direct I/O via `copy_file_range`". `cost`: the CPU cost of each way there is.

use clap::{Args, value_parser};
use dmabuf_dio_terminal::exit::Failure;
use serde_json::json;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::disk::{DiskFile, drop_caches};
use crate::host::prepare;
use crate::measure::Meter;
use crate::measure::clock::Clock;
use crate::measure::phase::Phase;
use crate::outcome::Result;
use crate::pattern::Pattern;
use crate::rows::{Case, Order, Report, Run};
use crate::ways::registry::{self, LOAD};
use crate::ways::{Setup, Way};

/// Arguments of `load`.
#[derive(Debug, Args)]
#[command(about = "Time to load files into new buffers: the ways of two threads about dma-bufs")]
#[command(after_help = format!("\
  normal    a dma-buf of the system heap, then read() into its mapping
  udmabuf   a dma-buf made of a memfd, into which bytes are read
  LOAD      allocates and reads in one call, by the heap flag of kernel/series or by the module; without
            gather it allocates all memory before it reads

Example: dmabuf-dio-bench load --dir /mnt/nvme --buffers 32 --sizes 32M

{EXIT_CODES}"))]
pub(crate) struct LoadArgs {
    /// Sizes of a file, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "512K,8M,1G,3G")]
    pub(crate) sizes: Vec<u64>,
    /// Files, each with a buffer of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u64).range(1..=512))]
    pub(crate) buffers: u64,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Arguments of `cost`.
#[derive(Debug, Args)]
#[command(about = "CPU cost of each way, in instructions per MiB, by phase")]
#[command(after_help = format!("\
Under vm/run --icount a nanosecond is an instruction, and the figures are instructions. Of sizes below
1 MiB they are per transfer, of others per MiB; copied and zeroed are bytes by the CPU per byte.

Example: vm/run --kernel 7.3 --icount --memory 4096 -- target/release/dmabuf-dio-bench cost --only LOAD

{EXIT_CODES}"))]
pub(crate) struct CostArgs {
    /// Sizes of the file, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "8M,128M,1G")]
    pub(crate) sizes: Vec<u64>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Bytes of each file that are transferred in the uncounted run.
const FIRST: u64 = 8 << 20;

const MIB: u64 = 1 << 20;
/// A run transfers at least this much, if necessary in several transfers, so that a single timer tick
/// is insignificant. The number of transfers is limited.
const RUN: u64 = 64 << 20;
const MOST_TRANSFERS: u64 = 128;

/// Writing to this file does the work that is otherwise done once a second. Each time, the limit of
/// pages kept per CPU decreases by an eighth; after this many times only the minimum is kept.
const STAT_REFRESH: &str = "/proc/sys/vm/stat_refresh";
const TIMES: u32 = 60;

pub(crate) fn load(args: &LoadArgs) -> Result<Report, Failure> {
    let mut report = Report::start("load", &args.common)?;
    report.fact("buffers", args.buffers);
    for &bytes in &args.sizes {
        let memory = bytes.saturating_mul(args.buffers);
        let content = |_| Pattern::new(bytes);
        let disks = &prepare(&args.common.dir, None, (args.buffers, bytes), memory, content)?;
        let cases = LOAD.map(|(name, way)| {
            Case::new(vec![("size", bytes.into()), ("way", name.into())], move |run| {
                let len = if run == 0 { bytes.min(FIRST) } else { bytes };
                sample(disks.as_ref().map_err(Clone::clone)?, way, len, args.common.keep_caches)
            })
        });
        report.measure(cases.into(), 0..=args.common.runs, Order::Turns)?;
    }
    Ok(report)
}

/// Fills a buffer from each file, compares and overwrites all, then closes them.
fn sample(disks: &[DiskFile], way: Way, len: u64, keep_caches: bool) -> Result<Run> {
    disks.iter().for_each(DiskFile::forget);
    drop_caches(&disks[0], keep_caches);
    let mut meter = Meter::default();
    let fill = |disk| {
        let mut setup = Setup::new(disk, len);
        Ok((way.run(&mut setup, &mut meter)?, setup))
    };
    let mut filled = disks.iter().map(fill).collect::<Result<Vec<_>>>()?;
    for ((held, _), disk) in filled.iter_mut().zip(disks) {
        held.check(len, true, |bytes| disk.check(bytes, 0))?;
    }
    for (held, setup) in filled {
        setup.close(held, &mut meter);
    }
    let ms = |(name, phase)| Some((name, meter.of(phase)?.wall_ms));
    let phases =
        [("allocation_ms", Phase::Allocation), ("io_ms", Phase::Io), ("close_ms", Phase::Close)];
    let phases = phases.into_iter().filter_map(ms);
    let io_cpu = meter.of(Phase::Io).map(|io| ("io_cpu_ms", io.cpu_ms));
    let total = meter.until_loaded();
    let all = [("total_ms", total.wall_ms), ("total_cpu_ms", total.cpu_ms)];
    Ok(phases.chain(io_cpu).chain(all).collect())
}

pub(crate) fn cost(args: &CostArgs) -> Result<Report, Failure> {
    let mut report = Report::start("cost", &args.common)?;
    let clock = Clock::start()?;
    report.fact("unit", json!(clock.unit));
    for &bytes in &args.sizes {
        // The buffer and the page cache: to reclaim memory would be part of the figures.
        let memory = bytes.saturating_mul(2);
        let disk = prepare(&args.common.dir, None, (1, bytes), memory, |_| Pattern::new(bytes))?;
        let disk = disk.as_ref().map(|disks| &disks[0]);
        let cases = registry::cost().into_iter().map(|(name, way)| {
            let [copied, zeroed] = way.moves();
            let about = vec![
                ("size", bytes.into()),
                ("way", name.into()),
                ("copied", copied.into()),
                ("zeroed", zeroed.into()),
            ];
            let (clock, mut setup) = (&clock, None);
            Case::new(about, move |run| {
                let disk = disk.map_err(Clone::clone)?;
                if run < 1 {
                    setup = Some(Setup::new(disk, bytes));
                }
                if run == 0 {
                    drop_caches(disk, args.common.keep_caches);
                }
                let setup = setup.get_or_insert_with(|| Setup::new(disk, bytes));
                transfer(way, setup, disk, clock, run < 0)
            })
        });
        // Run -1 of every way is compared, while no memory has data of earlier runs. Then each way runs
        // uncounted and, right after that, counted: it so finds all caches in the state that it leaves
        // them in itself.
        report.measure(cases.collect(), -1..=args.common.runs, Order::Rows)?;
    }
    Ok(report)
}

/// One run: the mean of its transfers.
fn transfer(
    way: Way,
    setup: &mut Setup<'_>,
    disk: &DiskFile,
    clock: &Clock,
    compare: bool,
) -> Result<Run> {
    let bytes = disk.len;
    let transfers = if compare { 1 } else { (RUN / bytes).clamp(1, MOST_TRANSFERS) };
    return_free_pages();
    clock.settle();
    let mut meter = Meter::with(clock);
    for _ in 0..transfers {
        let mut held = way.run(setup, &mut meter)?;
        if compare {
            held.check(bytes, true, |bytes| disk.check(bytes, 0))?;
        }
        setup.close(held, &mut meter);
        disk.forget();
    }
    meter.settle();
    // A small transfer counts as a MiB.
    Ok(costs(&meter, transfers as f64 * bytes.max(MIB) as f64 / MIB as f64))
}

/// The cost of each phase that there was, and of all, per unit.
fn costs(meter: &Meter<'_>, units: f64) -> Run {
    let phases = meter.phases().map(|(name, spent)| (name, spent.busy / units));
    let total = phases.clone().map(|(_, cost)| cost).sum();
    let tenths = |cost: f64| (cost * 10.0).round() / 10.0;
    phases.chain([("total", total)]).map(|(name, cost)| (name, tenths(cost))).collect()
}

/// Makes the page allocator release the pages that it keeps per CPU, which it otherwise does in steps
/// once a second, possibly during a run. In addition, these pages are allocated in the order in which
/// they were freed, so that small pages would be adjacent in every other run.
fn return_free_pages() {
    for _ in 0..TIMES {
        // Only root may; without it figures are less repeatable.
        if std::fs::write(STAT_REFRESH, "1").is_err() {
            break;
        }
    }
}
