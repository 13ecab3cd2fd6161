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
pub(crate) use results::Streams;
use results::{Line, Sample};
use rows::{Bench, Row};
use usb::Usb;

use rustix::io::Errno as Os;

use super::clock::Clock;
use super::disk::DiskFile;
use super::facts::Facts;
use super::trouble::Trouble;
use crate::exit::{FAILED, Failure};
use crate::progress::Bar;
use crate::signals;
use crate::size::show_size;

impl Streams {
    pub(crate) fn measure(args: &StreamArgs) -> Result<Self, Failure> {
        signals::token();
        let probe = DiskFile::create(&args.common.dir, 0)?;
        let facts = Facts::gather(&probe, &args.common);
        drop(probe);
        let adc = Adc::find(&args.device)?;
        let usb = Usb::open(args.usb.as_deref());
        let clock = Clock::start()
            .map_err(|error| Failure::new(FAILED, format!("no clock: {error}"), "see sched(7)"))?;
        let bench = Bench { args, clock: &clock, adc: &adc, usb: usb.as_ref() };
        let rows = rows::selected(args)?;
        let results = take_turns(&bench, &rows)?;
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

/// Runs every row once with its samples compared, and then in turns.
fn take_turns(
    bench: &Bench<'_>,
    rows: &[Row],
) -> Result<Vec<Result<Vec<Sample>, Trouble>>, Failure> {
    let bar = Bar::steps();
    let mut results: Vec<_> = rows.iter().map(|_| Ok(Vec::new())).collect();
    let steps = u64::from(bench.args.runs + 1) * rows.len() as u64;
    let mut step = 0;
    for run in 0..=bench.args.runs {
        for (row, result) in rows.iter().zip(&mut results) {
            Failure::if_interrupted().inspect_err(|_| bar.finish())?;
            bar.say(format!("run {run}: {}, blocks of {}", row.name(), show_size(row.block)));
            bar.update(step, steps);
            step += 1;
            let Ok(samples) = result else { continue };
            match bench.run(*row, run == 0) {
                Ok(_) if run == 0 => {}
                Ok(sample) => samples.push(sample),
                Err(trouble) if run == 0 => *result = Err(trouble),
                // What worked before is not what the kernel lacks.
                Err(trouble) => *result = Err(trouble.grave()),
            }
        }
    }
    bar.finish();
    Ok(results)
}
