// SPDX-License-Identifier: MIT OR Apache-2.0
//! libiio's `iio_rwdev`, which the user has installed.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;

use super::fileio::{SinkWriter, open};
use super::rows::{Destination, StreamBench, StreamCosts, StreamRow};
use crate::measure::clock::Unit;
use crate::measure::outcome::{Status, Trouble, io_failed};
use crate::measure::time::Start;

/// Most runs of `total` bytes in one.
const MOST_TOTALS: u64 = 4096;

impl StreamBench<'_> {
    /// The cost of `total` bytes, without that of starting the program: a run of a block more, less a run
    /// of one block. As starting costs more in some runs than in others, the samples have to cost as much as
    /// that, or there are four times as many.
    pub(super) fn by_peer(
        &self,
        row: StreamRow,
        file: &Path,
        total: u64,
    ) -> Result<StreamCosts, Trouble> {
        let start = self.peer(row, file, row.block)?;
        let mut totals = 1;
        loop {
            let all = self.peer(row, file, totals * total + row.block)?;
            let each = |all: f64, start: f64| (all - start) / totals as f64;
            let cost = StreamCosts {
                wall_ms: each(all.wall_ms, start.wall_ms),
                cpu_ms: each(all.cpu_ms, start.cpu_ms),
                busy: each(all.busy, start.busy),
            };
            let enough = all.wall_ms >= 2.0 * start.wall_ms && all.busy >= 2.0 * start.busy;
            if enough && cost.cpu_ms >= 0.0 {
                return Ok(cost);
            }
            if totals == MOST_TOTALS {
                break;
            }
            totals *= 4;
        }
        let what = "starting it took longer than the samples: choose a larger --total";
        Err(Trouble::new(Status::Unavailable, what))
    }

    /// Runs it once, and writes to the same places as the other rows.
    pub(super) fn peer(
        &self,
        row: StreamRow,
        file: &Path,
        bytes: u64,
    ) -> Result<StreamCosts, Trouble> {
        let Some(program) = &self.args.peer_iio_rwdev else {
            return Err(Trouble::new(Status::Unavailable, "no --peer-iio-rwdev PATH"));
        };
        let writer = match row.to {
            Destination::Nothing => SinkWriter::To(open(Path::new("/dev/null"), OFlags::empty())?),
            Destination::File => SinkWriter::To(open(file, OFlags::CREATE | OFlags::TRUNC)?),
            Destination::Usb => SinkWriter::To(open(&self.usb()?, OFlags::empty())?),
        };
        let SinkWriter::To(fd) = &writer else {
            return Err(Trouble::new(Status::Failed, "no sink"));
        };
        let out = fd.try_clone().map_err(io_failed("duplicating a descriptor"))?;
        let mut command = Command::new(program);
        command.args(["-b", &(row.block / self.adc.frame()).to_string()]);
        command.args(["-s", &(bytes / self.adc.frame()).to_string()]).arg(self.adc.name());
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        self.clock.settle();
        let (mark, children, start) = (self.clock.mark(), children_ms(), Start::now());
        let status = command.status().map_err(|error| {
            Trouble::new(Status::Unavailable, format!("iio_rwdev cannot be run: {error}"))
        })?;
        writer.finish()?;
        let (busy, took) = (self.clock.busy_since(mark), start.took());
        let busy = busy + self.clock.settle();
        if !status.success() {
            return Err(Trouble::new(Status::Failed, format!("iio_rwdev ended with {status}")));
        }
        let cpu_ms = children_ms() - children + took.cpu_ms();
        // Where only this process is counted, the program is not in it.
        let busy = if self.clock.unit() == Unit::Instructions { busy } else { cpu_ms * 1e6 };
        Ok(StreamCosts { wall_ms: took.wall_ms, cpu_ms, busy })
    }
}

/// CPU time of the programs that have ended, in milliseconds.
fn children_ms() -> f64 {
    // SAFETY: an all-zero rusage is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: fills the structure it is given, which outlives the call.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}
