// SPDX-License-Identifier: MIT OR Apache-2.0
//! libiio's `iio_rwdev`, which the user has installed.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;

use super::device::Adc;
use super::{StreamBench, StreamRow};
use crate::measure::clock::Unit;
use crate::measure::meter::Spent;
use crate::measure::time::{Cpu, Start, Took};
use crate::outcome::{Status, Trouble, failed};

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
    ) -> Result<Spent, Trouble> {
        let start = self.run_peer(row, file, row.block)?;
        let mut totals = 1;
        loop {
            let all = self.run_peer(row, file, totals * total + row.block)?;
            let each = |all: f64, start: f64| (all - start) / totals as f64;
            let cpu = Cpu {
                user: each(all.took.cpu.user, start.took.cpu.user),
                sys: each(all.took.cpu.sys, start.took.cpu.sys),
            };
            let took = Took { wall_ms: each(all.took.wall_ms, start.took.wall_ms), cpu };
            let twice = all.took.wall_ms >= 2.0 * start.took.wall_ms;
            if twice && all.busy >= 2.0 * start.busy && cpu.ms() >= 0.0 {
                return Ok(Spent { took, busy: each(all.busy, start.busy) });
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
    pub(super) fn run_peer(
        &self,
        row: StreamRow,
        file: &Path,
        bytes: u64,
    ) -> Result<Spent, Trouble> {
        let program = self.args.peer_iio_rwdev.as_deref().unwrap_or_else(|| Path::new("iio_rwdev"));
        let writer = self.open(row.to, file, Some(Path::new("/dev/null")), OFlags::empty())?;
        let out = writer.0.as_ref().map(OwnedFd::try_clone).transpose();
        let out =
            out.map_err(failed("duplicating a descriptor"))?.map_or_else(Stdio::null, Stdio::from);
        let mut command = Command::new(program);
        command.args(["-b", &(row.block / self.adc.frame()).to_string()]);
        command.args(["-s", &(bytes / self.adc.frame()).to_string()]).arg(Adc::NAME);
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        self.clock.settle();
        let (mark, children, start) = (self.clock.mark(), Cpu::children(), Start::now());
        let status = command.status().map_err(|error| {
            Trouble::new(Status::Unavailable, format!("iio_rwdev cannot be run: {error}"))
        })?;
        writer.finish()?;
        let (busy, mut took) = (self.clock.busy_since(mark), start.took());
        let busy = busy + self.clock.settle();
        if !status.success() {
            return Err(Trouble::new(Status::Failed, format!("iio_rwdev ended with {status}")));
        }
        let child = Cpu::children().since(children);
        took += Took { cpu: child, wall_ms: 0.0 };
        // Where only this process is counted, the program is not in it.
        let busy = if self.clock.unit() == Unit::Instructions { busy } else { took.cpu.ms() * 1e6 };
        Ok(Spent { took, busy })
    }
}
