// SPDX-License-Identifier: MIT OR Apache-2.0
//! The comparison of the thread "iio: new DMABUF based API": samples by `read()` and by dma-bufs.

pub(crate) mod args;
mod device;
mod fileio;
mod page;
mod results;
mod rows;
mod usb;

use args::StreamArgs;
use device::Adc;
pub(crate) use page::page;
use results::Line;
pub(crate) use results::Streams;
use rows::{Bench, Row};
use usb::Usb;

use rustix::io::Errno as Os;

use super::clock::Clock;
use super::turns::take_turns;
use crate::exit::Failure;
use crate::size::show_size;

impl Streams {
    pub(crate) fn measure(args: &StreamArgs) -> Result<Self, Failure> {
        let facts = super::begin(&args.common)?;
        let adc = Adc::find(&args.device)?;
        let usb = Usb::open(args.usb.as_deref());
        let clock = Clock::start()?;
        let bench = Bench { args, clock: &clock, adc: &adc, usb: usb.as_ref() };
        let rows = rows::selected(args)?;
        // Run 0 is the one with samples compared.
        let name = |row: &Row| format!("{}, blocks of {}", row.name(), show_size(row.block));
        let run = |row: &Row, run| bench.run(*row, run == 0).map(Some);
        let results = take_turns(&rows, 0..=args.runs, name, run)?;
        let lines = rows.iter().zip(&results).map(|(row, result)| Line::of(*row, result));
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

/// The number of an error of the library, where it has one.
fn errno(error: &dmabuf_dio::Error) -> Os {
    Os::from_raw_os_error(error.errno().map_or(libc::EIO, dmabuf_dio::Errno::raw))
}
