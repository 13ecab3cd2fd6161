// SPDX-License-Identifier: MIT OR Apache-2.0
//! libiio's `iio_rwdev`, which the user has installed.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::OFlags;

use super::device::{Adc, rwdev};
use super::{StreamRow, finish};
use crate::measure::clock::Unit;
use crate::measure::meter::{Span, Spent, cpu_ms};
use crate::measure::phase::Phase;
use crate::outcome::{Result, Status, Trouble, failed};

/// Most runs of `total` bytes in one.
const MOST_TOTALS: u64 = 4096;

impl StreamRow<'_> {
    /// The cost of `total` bytes, without that of starting the program: a run of a block more, less a run
    /// of one block. As starting costs more in some runs than in others, the samples have to cost as much as
    /// that, or there are four times as many.
    pub(super) fn by_peer(self, file: &Path, total: u64) -> Result<Spent> {
        let start = self.run_peer(file, self.block)?;
        let mut totals = 1;
        while totals <= MOST_TOTALS {
            let all = self.run_peer(file, totals * total + self.block)?;
            let more = all.plus(start, -1.0);
            let twice = all.wall_ms >= 2.0 * start.wall_ms && all.busy >= 2.0 * start.busy;
            if twice && more.cpu_ms >= 0.0 {
                return Ok(Spent::default().plus(more, 1.0 / totals as f64));
            }
            totals *= 4;
        }
        let what = "starting it took longer than the samples: choose a larger --total";
        Err(Trouble::new(Status::Unavailable, what))
    }

    /// Runs it once, and writes to the same places as the other rows.
    pub(super) fn run_peer(self, file: &Path, bytes: u64) -> Result<Spent> {
        let sink = self.open(file, OFlags::empty())?;
        let out = sink.as_ref().map(File::try_clone).transpose();
        let out = out.map_err(failed("duplicating a descriptor"))?;
        let [block, frames] = [self.block, bytes].map(|it| (it / self.adc.frame()).to_string());
        let mut command = rwdev(self.args.peer_iio_rwdev.as_deref());
        command.args(["-b", &block, "-s", &frames, Adc::NAME]).stdin(Stdio::null());
        command.stdout(out.map_or_else(Stdio::null, Stdio::from)).stderr(Stdio::null());
        self.clock.settle();
        let children = cpu_ms(libc::RUSAGE_CHILDREN);
        let span = Span::begin(Some(self.clock), Phase::Io);
        let status = command.status().map_err(|error| {
            Trouble::new(Status::Unavailable, format!("iio_rwdev cannot be run: {error}"))
        })?;
        finish(sink.as_ref())?;
        let mut spent = self.ended(span);
        if !status.success() {
            return Err(Trouble::new(Status::Failed, format!("iio_rwdev ended with {status}")));
        }
        spent.cpu_ms += cpu_ms(libc::RUSAGE_CHILDREN) - children;
        // Where only this process is counted, the program is not in it.
        if self.clock.unit() == Unit::Nanoseconds {
            spent.busy = spent.cpu_ms * 1e6;
        }
        Ok(spent)
    }
}
