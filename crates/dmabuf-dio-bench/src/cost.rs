// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cost`: the CPU cost of each way of loading a file into memory.

use clap::{Args, value_parser};
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::size::show_size;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::disk::{Caches, DiskFile};
use crate::host::facts::Facts;
use crate::host::prepare;
use crate::measure::clock::{Clock, Unit};
use crate::measure::meter::Meter;
use crate::measure::outcome::Trouble;
use crate::measure::phase::Phase;
use crate::measure::time::Summary;
use crate::measure::turns::{Samples, select};
use crate::pattern::Pattern;
use crate::report::grid::thousands;
use crate::report::json::Object;
use crate::report::page::{Page, Report};
use crate::report::row::{Column, Row, Run, Size, grid};
use crate::ways::registry;
use crate::ways::{Setup, Way};

/// Arguments of `cost`.
#[derive(Debug, Args)]
#[command(about = "CPU cost of each way, in instructions per MiB, by phase")]
#[command(after_help = format!("\
Under vm/run --icount a nanosecond is an instruction, and the figures are instructions. Elsewhere
they are nanoseconds, and no more repeatable than times are. Of sizes below 1 MiB the figures are
per transfer, of others per MiB.

  allocation  with mapping, attaching and registering     I/O    moving the bytes
  +           allocated within the call that reads        close  until all is free again

Examples:
  vm/run --kernel 7.3 --icount --memory 4096 -- target/release/dmabuf-dio-bench cost
  dmabuf-dio-bench cost --sizes 4K,64K
  dmabuf-dio-bench cost --only LOAD --only library --sizes 128M --runs 9
  vm/run --kernel 7.3-series --icount --profile functions.txt -- \
      target/release/dmabuf-dio-bench cost --only READ --sizes 128M

{EXIT_CODES}"))]
pub(crate) struct CostArgs {
    /// Sizes of the file, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "8M,128M,1G")]
    pub(crate) sizes: Vec<u64>,
    /// Runs of each way
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Only ways whose name contains TEXT; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// A run transfers at least this much, if necessary in several transfers, so that a single timer tick
/// is insignificant. The number of transfers is limited.
const RUN: u64 = 64 << 20;
const MOST_TRANSFERS: u64 = 128;

/// Writing to this file does the work that is otherwise done once a second. Each time, the limit of
/// pages kept per CPU decreases by an eighth; after this many times only the minimum is kept.
const STAT_REFRESH: &str = "/proc/sys/vm/stat_refresh";
const TIMES: u32 = 60;

/// The unit of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Per {
    MiB,
    /// One transfer of the whole size.
    Transfer,
}

impl Per {
    const MIB: u64 = 1 << 20;

    fn name(self) -> &'static str {
        match self {
            Self::MiB => "MiB",
            Self::Transfer => "transfer",
        }
    }

    fn of(bytes: u64) -> Self {
        if bytes < Self::MIB { Self::Transfer } else { Self::MiB }
    }

    /// The divisor for a transfer's cost.
    fn count(self, bytes: u64) -> f64 {
        match self {
            Self::MiB => bytes as f64 / Self::MIB as f64,
            Self::Transfer => 1.0,
        }
    }
}

pub(crate) fn measure(args: &CostArgs) -> Result<Report, Failure> {
    let ways = selected(&args.only)?;
    let facts = Facts::begin(&args.common)?;
    let clock = Clock::start()?;
    let sizes = args.sizes.iter().map(|bytes| size(args, &ways, &clock, *bytes));
    let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    let json = Object::of_bench("cost", &facts.json)
        .with("runs", args.runs)
        .with("unit", clock.unit().name())
        .with("counted", clock.counted())
        .list("sizes", sizes.iter().map(|size| size.json("ways")));
    let statuses = sizes.iter().flat_map(Size::rows).map(Row::status).collect();
    Ok(Report { page: page(args, &facts, &clock, &sizes), json, statuses })
}

fn selected(only: &[String]) -> Result<Vec<(String, Way)>, Failure> {
    select(registry::cost(), only, |(name, _)| name.clone(), "no way has this name")
}

fn size(
    args: &CostArgs,
    ways: &[(String, Way)],
    clock: &Clock,
    bytes: u64,
) -> Result<Size, Failure> {
    let content = Pattern::new(bytes);
    // The buffer and the page cache: to reclaim memory would be part of the figures.
    let rows = match prepare(&args.common, bytes, bytes.saturating_mul(2), content)? {
        Ok(disk) => Ok(CostBench { args, clock, disk: &disk, content }.ways(ways)?),
        Err(reason) => Err(reason),
    };
    Ok(Size { bytes, facts: Object::default().with("per", Per::of(bytes).name()), rows })
}

struct CostBench<'a> {
    args: &'a CostArgs,
    clock: &'a Clock,
    disk: &'a DiskFile,
    content: Pattern,
}

impl CostBench<'_> {
    /// First, every way runs once and is compared, while no memory has data of earlier runs. Then
    /// each way runs uncounted and, right after that, counted: it so finds all caches in the state
    /// that it leaves them in itself.
    fn ways(&self, ways: &[(String, Way)]) -> Result<Vec<Row>, Failure> {
        let (bar, runs) = (Bar::steps(), self.args.runs);
        let caches = Caches::new(self.args.common.keep_caches);
        let steps = u64::from(runs + 2) * ways.len() as u64;
        let mut step = 0;
        let mut attempt =
            |(name, way): &(String, Way), what: &str, setup: &mut Setup<'_>, content| {
                Failure::if_interrupted().inspect_err(|_| bar.finish())?;
                bar.say(format!("{}, {what}: {}", show_size(self.disk.len()), name));
                bar.update(step, steps);
                step += 1;
                Ok::<_, Failure>(self.run(*way, setup, content))
            };
        let mut results: Vec<Samples<Run>> = Vec::new();
        for way in ways {
            let mut setup = Setup::of_disk(self.disk, self.disk.len(), None);
            let compared = attempt(way, "comparing", &mut setup, Some(self.content))?;
            results.push(compared.map(|_| Vec::new()));
        }
        for (way, result) in ways.iter().zip(&mut results) {
            caches.drop(self.disk);
            let mut setup = Setup::of_disk(self.disk, self.disk.len(), None);
            for run in 0..=runs {
                let Ok(samples) = result else { break };
                match attempt(way, &format!("run {run} of {runs}"), &mut setup, None)? {
                    Ok(_) if run == 0 => {}
                    Ok(sample) => samples.push(sample),
                    // What worked before is not what the kernel lacks.
                    Err(trouble) => *result = Err(trouble.grave()),
                }
            }
        }
        bar.finish();
        Ok(ways.iter().zip(&results).map(|(way, result)| line(way, result)).collect())
    }

    /// One run: the mean of its transfers.
    fn run(
        &self,
        way: Way,
        setup: &mut Setup<'_>,
        content: Option<Pattern>,
    ) -> Result<Run, Trouble> {
        let bytes = self.disk.len();
        let transfers = match content {
            Some(_) => 1,
            None => (RUN / bytes).clamp(1, MOST_TRANSFERS),
        };
        return_free_pages();
        self.clock.settle();
        let mut meter = Meter::with(self.clock);
        for _ in 0..transfers {
            let mut held = way.run(setup, &mut meter)?;
            if let Some(content) = content {
                held.compare(content, bytes)?;
            }
            setup.close(held, &mut meter);
            self.disk.forget();
        }
        meter.settle();
        Ok(costs(&meter, transfers as f64 * Per::of(bytes).count(bytes)))
    }
}

/// The cost of each phase that there was, and of all, per unit.
fn costs(meter: &Meter<'_>, units: f64) -> Run {
    let tenths = |value: f64| (value * 10.0).round() / 10.0;
    let of = |phase| meter.of(phase).map(|spent| spent.busy / units);
    let phases = Phase::ALL.into_iter().filter_map(|phase| Some((phase.name(), of(phase)?)));
    let total = phases.clone().map(|(_, spent)| spent).sum();
    phases.chain([("total", total)]).map(|(name, spent)| (name, tenths(spent))).collect()
}

fn line((name, way): &(String, Way), result: &Samples<Run>) -> Row {
    let moved = way.moves();
    let [copied, zeroed] = moved.map(f64::from);
    let facts =
        Object::default().with("name", name.clone()).with("copied", copied).with("zeroed", zeroed);
    let mut row = Row::of(vec![name.clone()], facts, result, Run::clone);
    row.cells = moved.map(|bytes| bytes.to_string()).to_vec();
    row
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

fn page(args: &CostArgs, facts: &Facts, clock: &Clock, sizes: &[Size]) -> Page {
    let mut page = Page::default();
    let unit = match clock.unit() {
        Unit::Instructions => "instructions",
        Unit::Nanoseconds => "nanoseconds of the CPU",
    };
    page.title(format!("What a file in a buffer costs: {unit}, runs: {}", args.runs));
    page.line(facts.line());
    for size in sizes {
        let per = Per::of(size.bytes).name();
        page.size(size, format!("{}: {unit} per {per}", show_size(size.bytes)), || {
            grid(&["way"], columns().map(Some), size.rows())
        });
    }
    page.note("counted", clock.counted());
    page.notes(LEGEND);
    page
}

fn columns() -> [Column<'static>; 7] {
    let show = |value: Option<f64>| value.map_or_else(String::new, thousands);
    [
        Column::new("allocation", move |row| match row.figure("load") {
            Some(_) => "+".into(),
            None => show(row.median("allocation")),
        }),
        Column::new("I/O", move |row| show(row.median("load").or(row.median("io")))),
        Column::median("close", "close", thousands),
        Column::median("total", "total", thousands),
        Column::new("spread", |row| {
            let spread = |total: &Summary| (total.max - total.min) / total.median * 100.0;
            row.figure("total").map_or_else(String::new, |total| format!("{:.1}%", spread(total)))
        }),
        Column::cell("copied", 0),
        Column::cell("zeroed", 1),
    ]
}

const LEGEND: [(&str, &str); 7] = [
    (
        "allocation",
        "whatever is needed before a byte can be moved: with mapping, page faults in \
      advance, attaching and registering",
    ),
    ("+", "allocated by the call that reads"),
    (
        "close",
        "unregistering, unmapping and closing, until all is free again and nothing goes on \
      in the background",
    ),
    ("total", "median over the runs; spread: maximum minus minimum, in per cent of the median"),
    (
        "copied, zeroed",
        "bytes by the CPU per byte of the file; a kernel booted with \
      init_on_alloc=1, Debian's for one, zeroes what it allocates once more",
    ),
    ("library", "all of dmabuf_dio::Loader, and freeing the result"),
    ("content", "every byte was compared in an uncounted run of each way at each size"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_transfer_counts_as_one_unit() {
        let counts = [4096, 1 << 20, 8 << 20].map(|bytes| Per::of(bytes).count(bytes) as u64);
        assert_eq!(counts, [1, 1, 8]);
    }
    #[test]
    fn ways_are_selected_by_parts_of_their_names() {
        let count = |only: &[&str]| {
            selected(&only.iter().map(ToString::to_string).collect::<Vec<_>>())
                .map(|cases| cases.len())
                .map_err(|failure| failure.what().to_owned())
        };
        let all = count(&[]).expect("all");
        assert_eq!(count(&["library: "]), Ok(dmabuf_dio::Backend::ALL.len() + 1));
        assert_eq!(count(&["library: ", "library: heap"]), count(&["library: "]));
        assert_eq!(count(&[""]), Ok(all));
        assert!(count(&["LOAD", "no such"]).expect_err("unknown").contains("no such"));
    }
}
