// SPDX-License-Identifier: MIT OR Apache-2.0
//! `small`: the table of the thread "iomap: add simple dio path for small direct I/O", for lent memory
//! and for memory of the process.

mod appends;
mod engine;
mod gather;
mod libaio;
mod memory;
mod rows;
mod target;
mod uring;

use std::path::PathBuf;

use clap::{Args, value_parser};
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::size::show_size;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::host::facts::Facts;
use crate::measure::clock::{Clock, Unit};
use crate::measure::turns::{select, take_turns};
use crate::report::grid::{Grid, thousands};
use crate::report::json::Object;
use crate::report::page::{Page, Report};
use crate::report::row::{Row, Run};
use rows::ReadRow;
use target::{BLOCK, Target};

/// Arguments of `small`.
#[derive(Debug, Args)]
#[command(
    about = "Random direct reads of 4 KiB: file systems and disk, libaio and io_uring, by queue depth"
)]
#[command(after_help = format!("\
A line is where is read from, how requests are made, and what memory they are for; a column is a
number of requests in flight. Every read is compared in a run that does not count. Of a block device
nothing is written; what arrives is compared with what the page cache has of it.

  user        memory of the process, as it comes
  registered  the same, registered with io_uring
  lent        pages of a dma-buf, lent to io_uring by the kernel module
  gather      the library's Gatherer into lent pages: all reads in one call

Under vm/run --icount the cost is in instructions, and speed means nothing.

Examples:
  dmabuf-dio-bench small --on /mnt/nvme
  dmabuf-dio-bench small --on /mnt/ext4 --on /mnt/xfs --on /dev/nvme1n1 --depths 32 --only lent
  dmabuf-dio-bench small --no-fio --json --output small.json
  vm/run --kernel 7.3-series --icount --raw-disks 4 --append nvme.poll_queues=1 -- \\
      bench/with-file-systems target/release/dmabuf-dio-bench small \\
      --on /mnt/ext4 --on /mnt/xfs --on /mnt/f2fs --on /dev/raw

{EXIT_CODES}"))]
pub(crate) struct SmallArgs {
    /// Folder in which a file is created, or block device to read; may be repeated [default: that of
    /// --dir]
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
    /// Append 4 KiB to the file, by a direct write, once in READS reads, and count that with them; lines
    /// by fio and gather are left out
    #[arg(long, value_name = "READS", value_parser = value_parser!(u32).range(1..))]
    pub(crate) append_every: Option<u32>,
    /// Runs of each point; points alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Only lines whose name contains TEXT: "ext4, libaio, user"; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Do not run fio for comparison
    #[arg(long)]
    pub(crate) no_fio: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// A line, and what was measured at each queue depth.
struct Line<'t> {
    row: ReadRow<'t>,
    points: Vec<Row>,
}

pub(crate) fn measure(args: &SmallArgs) -> Result<Report, Failure> {
    let facts = Facts::begin(&args.common)?;
    let dir = [args.common.dir.clone()];
    let paths = if args.on.is_empty() { &dir[..] } else { &args.on };
    let targets = (0..).zip(paths).map(|(number, path)| Target::open(path, args.size, number));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    let clock = Clock::start()?;
    let of = |target| ReadRow::all(target, args.size, !args.no_fio, args.append_every);
    let rows = targets.iter().flat_map(of).collect();
    let rows = select(rows, &args.only, ReadRow::name, "no line has this name")?;
    let lines = lines(rows, args, &clock)?;
    let fio = if args.no_fio { None } else { crate::fio::version() };
    let json = Object::of_bench("small", &facts.json)
        .with("fio", fio.clone())
        .with("runs", args.runs)
        .with("reads", args.reads)
        .with("size", args.size)
        .with("append_every", args.append_every)
        .with("unit", clock.unit().name())
        .with("counted", clock.counted())
        .with("depths", args.depths.clone())
        .list("lines", lines.iter().map(Line::json));
    let statuses = lines.iter().flat_map(|line| &line.points).map(Row::status).collect();
    Ok(Report { page: page(args, &facts, &clock, fio.as_deref(), &lines), json, statuses })
}

/// The offsets to read from, the same for all lines.
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

/// Runs every point once with comparison, then all points alternately.
fn lines<'t>(
    rows: Vec<ReadRow<'t>>,
    args: &SmallArgs,
    clock: &Clock,
) -> Result<Vec<Line<'t>>, Failure> {
    let offsets = offsets(args);
    let points: Vec<_> =
        rows.iter().flat_map(|row| args.depths.iter().map(move |depth| (row, *depth))).collect();
    let name = |(row, depth): &(&ReadRow<'_>, u32)| format!("{}, {depth} in flight", row.name());
    let run = |(row, depth): &(&ReadRow<'_>, u32), run| match run {
        0 => row.compare(*depth, &offsets).map(|()| None),
        _ => row.run(*depth, &offsets, clock).map(Some),
    };
    let results = take_turns(&points, 0..=args.runs, name, run)?;
    let points = points.iter().zip(&results).map(|((row, depth), result)| {
        let facts = Object::default().with("depth", *depth);
        Row::of([row.names(), vec![depth.to_string()]].concat(), facts, result, Run::clone)
    });
    let mut points = points.collect::<Vec<_>>().into_iter();
    let line = |row| Line { row, points: points.by_ref().take(args.depths.len()).collect() };
    Ok(rows.into_iter().map(line).collect())
}

impl Line<'_> {
    /// Whether there is a figure for any queue depth.
    fn is_measured(&self) -> bool {
        self.points.iter().any(Row::is_measured)
    }

    fn json(&self) -> Object {
        Object::default()
            .with("target", self.row.target.name.clone())
            .with("path", self.row.target.path.to_string_lossy())
            .with("way", self.row.engine.name())
            .with("memory", self.row.memory.name())
            .with("by", self.row.by.name())
            .list("points", self.points.iter().map(Row::json))
    }
}

fn page(
    args: &SmallArgs,
    facts: &Facts,
    clock: &Clock,
    fio: Option<&str>,
    lines: &[Line<'_>],
) -> Page {
    let mut page = Page::default();
    page.title(format!(
        "Random direct reads of 4 KiB from {}, {} in each of {} runs",
        show_size(args.size),
        args.reads,
        args.runs
    ));
    page.line(facts.line());
    let (cost, noisy) = match clock.unit() {
        Unit::Instructions => ("Instructions per read", "per_read"),
        Unit::Nanoseconds => ("CPU time per read, in nanoseconds", "iops"),
    };
    let appends = args
        .append_every
        .map_or_else(String::new, |every| format!(" (4 KiB appended in {every} reads)"));
    page.title(format!("{cost}{appends}, by requests in flight"));
    page.table(grid(args, lines, "per_read"));
    // Where instructions are counted, time is what they make of it.
    if clock.unit() == Unit::Nanoseconds {
        page.title("Reads per second, by requests in flight");
        page.table(grid(args, lines, "iops"));
    }
    let points = || lines.iter().filter(|line| line.is_measured()).flat_map(|line| &line.points);
    for point in points().filter(|point| !point.is_measured()) {
        page.note(point.label.clone(), point.sentence());
    }
    let spreads = points().filter_map(|point| point.figure(noisy));
    let spreads = spreads.map(|figure| (figure.max - figure.min) / figure.median * 100.0);
    if let Some(percent) = spreads.reduce(f64::max) {
        page.note(
            "runs",
            format!("figures are medians; runs of a point are up to {percent:.0} % apart"),
        );
    }
    page.note("counted", clock.counted());
    page.notes(LEGEND);
    if let Some(fio) = fio {
        page.note("fio", format!("{fio}, configured to make the same requests; {FIO}"));
    }
    page
}

fn grid(args: &SmallArgs, lines: &[Line<'_>], figure: &str) -> Grid {
    let depths: Vec<String> = args.depths.iter().map(ToString::to_string).collect();
    let mut head = vec!["on", "by", "memory"];
    head.extend(depths.iter().map(String::as_str));
    let mut grid = Grid::new(3, &head);
    for line in lines {
        let names = line.row.names();
        if let Some(first) = line.points.first().filter(|_| !line.is_measured()) {
            let name = names.join(", ");
            grid.reason(names, first.sentence(), name);
            continue;
        }
        let cells = line.points.iter().map(|point| point.median(figure));
        let cells = cells.map(|value| value.map_or_else(|| "-".into(), thousands));
        grid.figures(names.into_iter().chain(cells).collect());
    }
    grid
}

const LEGEND: [(&str, &str); 6] = [
    ("io_uring", "with a fixed file; polled: the CPU polls for completions, without interrupts"),
    ("user", "memory of the process, pinned for each read"),
    ("registered", "memory of the process, pinned once"),
    ("lent", "pages of a dma-buf, lent to io_uring by the kernel module"),
    ("gather", "the library's call for many pieces: all reads in one call, each to its own place"),
    ("content", "every byte was compared in an uncounted run of each line except fio's"),
];

const FIO: &str = "the figure includes its own work";
