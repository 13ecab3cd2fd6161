// SPDX-License-Identifier: MIT OR Apache-2.0
//! `stream`: the comparison of the thread "iio: new DMABUF based API", samples by `read()` and by
//! dma-bufs.

pub(crate) mod device;
pub(crate) mod fileio;
mod peer;
mod rows;
mod usb;

use std::path::PathBuf;

use clap::{Args, value_parser};
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::size::show_size;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::disk::TemporaryPath;
use crate::host::facts::Facts;
use crate::measure::clock::{Clock, Unit};
use crate::measure::time::show;
use crate::measure::turns::{select, take_turns};
use crate::report::grid::thousands;
use crate::report::json::Object;
use crate::report::page::{Page, Report};
use crate::report::row::{Column, Row, Run, grid};
use device::Adc;
use rows::{Destination, StreamBench, StreamRow};
use usb::Usb;

/// Arguments of `stream`.
#[derive(Debug, Args)]
#[command(
    about = "Samples of an IIO device into nothing, a file and USB: read() compared with dma-bufs"
)]
#[command(after_help = format!("\
The device should give samples as fast as blocks come: kernel/sim/iio_stream does, with a rate of
0. Before it is measured, each row is run once with every sample compared; what goes to USB is
compared by the host of kernel/sim/usb_sink.

Under vm/run --icount the cost is in instructions, and speed means nothing.

Examples:
  vm/run --kernel 7.3-series -- target/release/dmabuf-dio-bench stream
  vm/run --kernel 7.3-series --icount -- target/release/dmabuf-dio-bench stream --blocks 1M
  tests/with-usb-gadget dmabuf-dio-bench stream --usb /run/ffs

{EXIT_CODES}"))]
pub(crate) struct StreamArgs {
    /// Name, label or number of the device
    #[arg(long, default_value = "stream-adc")]
    pub(crate) device: String,
    /// Sizes of a block, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "16K,1M,64M")]
    pub(crate) blocks: Vec<u64>,
    /// Bytes of a ring of dma-bufs, which has from 4 to 256 blocks
    #[arg(long, value_name = "SIZE", value_parser = whole_pages, default_value = "64M")]
    pub(crate) ring: u64,
    /// Bytes of samples in a run
    #[arg(long, value_name = "SIZE", value_parser = whole_pages, default_value = "512M")]
    pub(crate) total: u64,
    /// Mount point of a functionfs instance, for the USB rows
    #[arg(long, value_name = "FOLDER")]
    pub(crate) usb: Option<PathBuf>,
    /// Only rows whose name contains TEXT: "dma-buf into a file"; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Runs of each row; rows alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// `iio_rwdev` of libiio 1.0 or later, for rows to compare with
    #[arg(long, value_name = "PATH")]
    pub(crate) peer_iio_rwdev: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

pub(crate) fn measure(args: &StreamArgs) -> Result<Report, Failure> {
    let facts = Facts::begin(&args.common)?;
    let adc = Adc::find(&args.device)?;
    let usb = Usb::open(args.usb.as_deref());
    let clock = Clock::start()?;
    let bench = StreamBench {
        file: TemporaryPath::new(&args.common.dir),
        ring: args.ring,
        total: args.total,
        peer: args.peer_iio_rwdev.as_deref(),
        clock: &clock,
        adc: &adc,
        usb: usb.as_ref(),
    };
    let all = StreamRow::all(&args.blocks, bench.peer.is_some());
    let all = select(all, &args.only, |row| row.name(), "no row has that name")?;
    // Run 0 is the one with samples compared.
    let name = |row: &StreamRow| format!("{}, blocks of {}", row.name(), show_size(row.block));
    let run = |row: &StreamRow, run| bench.run(*row, run == 0).map(Some);
    let results = take_turns(&all, 0..=args.runs, name, run)?;
    let rows = all.iter().zip(&results).map(|(row, result)| {
        let facts = Object::default()
            .with("to", row.to.names().0)
            .with("way", row.method.name())
            .with("block", row.block);
        let names = vec![show_size(row.block), row.method.name().to_owned()];
        (row.to, Row::of(names, facts, result, Run::clone))
    });
    let rows: Vec<(Destination, Row)> = rows.collect();
    let json = Object::of_bench("stream", &facts.json)
        .with("device", adc.name())
        .with("runs", args.runs)
        .with("total", args.total)
        .with("unit", clock.unit().name())
        .with("counted", clock.counted())
        .list("rows", rows.iter().map(|(_, row)| row.json()));
    let statuses = rows.iter().map(|(_, row)| row.status()).collect();
    Ok(Report { page: page(args, &facts, bench, &rows), json, statuses })
}

fn page(
    args: &StreamArgs,
    facts: &Facts,
    StreamBench { adc, clock, .. }: StreamBench<'_>,
    rows: &[(Destination, Row)],
) -> Page {
    let mut page = Page::default();
    let (device, total, runs) = (adc.name(), show_size(args.total), args.runs);
    page.title(format!("Samples of {device}, {total} in each of {runs} runs"));
    page.line(facts.line());
    let unit = match clock.unit() {
        Unit::Instructions => "instructions/MiB",
        Unit::Nanoseconds => "CPU ns/MiB",
    };
    for to in Destination::ALL {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.0 == to).map(|row| &row.1).collect();
        if !rows.is_empty() {
            page.title(format!("Into {}", to.names().1));
            let columns = [
                Some(Column::median("MiB/s", "mib_per_s", show)),
                Column::range("mib_per_s", 2),
                Some(Column::median("CPU", "cpu_percent", |percent| format!("{percent:.0} %"))),
                Some(Column::median(unit, "per_mib", thousands)),
            ];
            page.table(grid(&["blocks", "way"], columns, rows));
        }
    }
    page.note("counted", clock.counted());
    page.notes(LEGEND);
    page
}

const LEGEND: [(&str, &str); 7] = [
    ("read()", "of a block, then write() of it; for a file, including fsync()"),
    ("O_DIRECT", "the file is open with O_DIRECT"),
    ("dma-buf", "a ring of 4 to 256 blocks; the file is written with O_DIRECT, including fsync()"),
    (
        "iio_rwdev",
        "libiio's: four dma-bufs, then write(); without its start, for a file including fsync()",
    ),
    ("CPU", "CPU time of the process as a share of one CPU, without that of a simulated device"),
    (
        "device",
        "delivers samples as fast as blocks are queued, and writes only the first of each block",
    ),
    ("content", "every sample was compared in an uncounted run of each row"),
];
