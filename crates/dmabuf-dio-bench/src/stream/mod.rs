// SPDX-License-Identifier: MIT OR Apache-2.0
//! The comparison of the thread "iio: new DMABUF based API": samples by `read()` and by dma-bufs.

pub(crate) mod args;
pub(crate) mod device;
pub(crate) mod fileio;
mod page;
mod peer;
mod results;
mod rows;
mod usb;

use dmabuf_dio_cli::exit::Failure;
use dmabuf_dio_cli::size::show_size;

use crate::measure::clock::Clock;
use crate::measure::turns::take_turns;
use args::StreamArgs;
use device::Adc;
pub(crate) use page::page;
use results::StreamResult;
pub(crate) use results::Streams;
use rows::{StreamBench, StreamRow};
use usb::Usb;

impl Streams {
    pub(crate) fn measure(args: &StreamArgs) -> Result<Self, Failure> {
        let facts = crate::begin(&args.common)?;
        let adc = Adc::find(&args.device)?;
        let usb = Usb::open(args.usb.as_deref());
        let clock = Clock::start()?;
        let bench = StreamBench { args, clock: &clock, adc: &adc, usb: usb.as_ref() };
        let rows = rows::selected(args)?;
        // Run 0 is the one with samples compared.
        let name = |row: &StreamRow| format!("{}, blocks of {}", row.name(), show_size(row.block));
        let run = |row: &StreamRow, run| bench.run(*row, run == 0).map(Some);
        let results = take_turns(&rows, 0..=args.runs, name, run)?;
        let lines = rows.iter().zip(&results).map(|(row, result)| StreamResult::of(*row, result));
        Ok(Self {
            schema: 1,
            bench: "stream",
            facts,
            device: adc.name().to_owned(),
            runs: args.runs,
            total: args.total,
            unit: clock.unit(),
            counted: clock.counted(),
            rows: lines.collect(),
        })
    }
}
