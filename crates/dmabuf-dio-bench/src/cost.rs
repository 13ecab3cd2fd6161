// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cost`: the CPU cost of each way of loading a file into memory.

use clap::Args;
use dmabuf_dio_terminal::exit::Failure;
use serde_json::json;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::disk::{DiskFile, drop_caches};
use crate::host::prepare;
use crate::measure::Meter;
use crate::measure::clock::Clock;
use crate::outcome::Result;
use crate::pattern::Pattern;
use crate::rows::{Case, Order, Report, Run};
use crate::ways::registry;
use crate::ways::{Setup, Way};

/// CPU cost of each way, in instructions per MiB, by phase
#[derive(Debug, Args)]
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

const MIB: u64 = 1 << 20;
/// A run transfers at least this much, if necessary in several transfers, so that a single timer tick
/// is insignificant. The number of transfers is limited.
const RUN: u64 = 64 << 20;
const MOST_TRANSFERS: u64 = 128;

/// Writing to this file does the work that is otherwise done once a second. Each time, the limit of
/// pages kept per CPU decreases by an eighth; after this many times only the minimum is kept.
const STAT_REFRESH: &str = "/proc/sys/vm/stat_refresh";
const TIMES: u32 = 60;

pub(crate) fn measure(args: &CostArgs) -> Result<Report, Failure> {
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
