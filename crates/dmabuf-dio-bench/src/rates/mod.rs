// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rates`: frames that are lost at each rate, with this project and its defaults, `read()`, and libiio.

mod busy;
mod numbers;
mod ways;

use std::path::PathBuf;

use clap::{Args, value_parser};
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::size::parse_rate;

use crate::args::{CommonArgs, EXIT_CODES};
use crate::disk::TemporaryPath;
use crate::host::facts::Facts;
use crate::measure::time::show;
use crate::measure::turns::{select, take_turns};
use crate::report::grid::{Grid, thousands};
use crate::report::json::Object;
use crate::report::page::{Page, Report};
use crate::report::row::{Row, Run};
use crate::stream::device::Adc;
use ways::{Load, RateBench, RateRow, RateWay};

/// Arguments of `rates`.
#[derive(Debug, Args)]
#[command(about = "Frames lost on the way into a file, by rate, on an idle and on a busy machine")]
#[command(after_help = format!("\
The device has to write the number of each frame into it, as kernel/sim/iio_stream does: the numbers
that a file lacks are the frames that were lost. Every frame of every file is looked at.

Ways, each with its defaults:
  dmabuf-dio       dmabuf-dio capture DEVICE --seconds SECONDS --to FILE
  read()           read() of a block and write() of it; blocks of 1/8 s, at most 4 MiB
  iio_rwdev        iio_rwdev DEVICE >FILE: four blocks of 256 frames (with --peer-iio-rwdev)
  iio_rwdev -b     the same with the blocks of read()

On the busy machine a thread for each CPU computes without end, with the same priority as all else.

Examples:
  vm/run --kernel 7.3-series --memory 3072 -- target/release/dmabuf-dio-bench rates
  dmabuf-dio-bench rates --rates 100k,10M --seconds 1 --only dmabuf-dio --only 'read()'

{EXIT_CODES}"))]
pub(crate) struct RatesArgs {
    /// Name, label or number of the device
    #[arg(long, default_value = "stream-adc")]
    pub(crate) device: String,
    /// Frames per second
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', value_parser = parse_rate,
          default_value = "1k,10k,100k,1M,10M,30M,62.5M")]
    pub(crate) rates: Vec<f64>,
    /// Seconds of a capture
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// Runs of each row; rows alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Only rows whose name contains TEXT: "idle, dmabuf-dio"; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// The command that is measured [default: beside this program]
    #[arg(long, value_name = "PATH")]
    pub(crate) command: Option<PathBuf>,
    /// `iio_rwdev` of libiio 1.0 or later, to compare with
    #[arg(long, value_name = "PATH")]
    pub(crate) peer_iio_rwdev: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

pub(crate) fn measure(args: &RatesArgs) -> Result<Report, Failure> {
    let facts = Facts::begin(&args.common)?;
    let adc = Adc::find(&args.device)?;
    let (command, peer) = (args.command.clone(), args.peer_iio_rwdev.clone());
    let file = TemporaryPath::new(&args.common.dir);
    let bench = RateBench::new(&adc, command, peer, args.seconds, file)?;
    let all = selected(args)?;
    let results =
        take_turns(&all, 1..=args.runs, RateRow::name, |row, _| bench.run(*row).map(Some))?;
    let rows = all.iter().zip(&results).map(|(row, result)| {
        let facts = Object::default()
            .with("rate", row.rate)
            .with("load", row.load.name())
            .with("way", row.way.name())
            .with("block", bench.block(*row));
        (*row, Row::of(vec![row.name()], facts, result, Run::clone))
    });
    let rows: Vec<(RateRow, Row)> = rows.collect();
    let json = Object::of_bench("rates", &facts.json)
        .with("device", adc.name())
        .with("frame", adc.frame())
        .with("seconds", args.seconds)
        .with("runs", args.runs)
        .list("rows", rows.iter().map(|(_, row)| row.json()));
    let statuses = rows.iter().map(|(_, row)| row.status()).collect();
    Ok(Report { page: page(args, &facts, &adc, &rows), json, statuses })
}

/// The requested rows.
fn selected(args: &RatesArgs) -> Result<Vec<RateRow>, Failure> {
    let mut ways = vec![RateWay::Ours, RateWay::Read];
    if args.peer_iio_rwdev.is_some() {
        ways.extend([RateWay::Rwdev, RateWay::RwdevBlocks]);
    }
    let mut rows = Vec::new();
    for load in [Load::Idle, Load::Busy] {
        for rate in &args.rates {
            rows.extend(ways.iter().map(|way| RateRow { rate: *rate, load, way: *way }));
        }
    }
    select(rows, &args.only, RateRow::name, "no row has that name")
}

fn page(args: &RatesArgs, facts: &Facts, adc: &Adc, rows: &[(RateRow, Row)]) -> Page {
    let mut page = Page::default();
    let runs = if args.runs == 1 { "1 run".to_owned() } else { format!("{} runs", args.runs) };
    page.title(format!(
        "Frames of {} lost on the way into a file, {} s each, {runs}",
        adc.name(),
        args.seconds
    ));
    page.line(facts.line());
    for (load, title) in [(Load::Idle, "Idle machine"), (Load::Busy, "A busy thread for each CPU")]
    {
        let rows: Vec<_> = rows.iter().filter(|(row, _)| row.load == load).collect();
        if !rows.is_empty() {
            page.title(title);
            page.table(grid(adc.frame(), &rows));
        }
    }
    for (row, result) in rows.iter().filter(|(_, result)| !result.is_measured()) {
        let name = format!("{} at {}", row.way.name(), thousands(row.rate));
        page.note(name, result.sentence());
    }
    page.notes(LEGEND);
    page
}

/// A row for each rate, a column for each way.
fn grid(frame: u64, rows: &[&(RateRow, Row)]) -> Grid {
    let (mut ways, mut rates): (Vec<RateWay>, Vec<f64>) = (Vec::new(), Vec::new());
    for (row, _) in rows {
        if !ways.contains(&row.way) {
            ways.push(row.way);
        }
        if !rates.iter().any(|rate| rate.total_cmp(&row.rate).is_eq()) {
            rates.push(row.rate);
        }
    }
    let mut head = vec!["frames/s", "MB/s"];
    head.extend(ways.iter().map(|way| way.name()));
    head.push("made");
    let mut grid = Grid::new(0, &head);
    for rate in &rates {
        let of_rate = || rows.iter().filter(|(row, _)| row.rate.total_cmp(rate).is_eq());
        let mut cells = vec![thousands(*rate), show(rate * frame as f64 / 1e6)];
        for way in &ways {
            let row = of_rate().find(|(row, _)| row.way == *way);
            cells.push(row.and_then(|(_, row)| lost(row)).unwrap_or_else(|| "-".into()));
        }
        let made = of_rate().filter_map(|(_, row)| Some(row.figure("made_per_s")?.min));
        let least = made.reduce(f64::min);
        cells.push(
            least.map_or_else(|| "-".into(), |least| format!("{:.0} %", least / rate * 100.0)),
        );
        grid.figures(cells);
    }
    grid
}

/// Lost frames, and their share.
fn lost(row: &Row) -> Option<String> {
    let lost = row.median("lost")?;
    let percent = lost / (lost + row.median("frames")?) * 100.0;
    Some(match () {
        () if lost <= 0.0 => "0".into(),
        () if percent < 0.01 => format!("{} (<0.01 %)", thousands(lost)),
        () => format!("{} ({percent:.2} %)", thousands(lost)),
    })
}

const LEGEND: [(&str, &str); 6] = [
    (
        "lost",
        "frames that the device has numbered and that are not in the file, up to its last one",
    ),
    ("dmabuf-dio", "dmabuf-dio capture with its defaults"),
    ("read()", "read() of a block, then write() of it: 1/8 s, at most 4 MiB"),
    ("iio_rwdev", "libiio's, with its defaults: four blocks of 256 frames"),
    ("iio_rwdev -b", "the same with the blocks of read()"),
    (
        "made",
        "frames that the device made, of those due: with less than 100 % it was too slow itself in the slowest run",
    ),
];
