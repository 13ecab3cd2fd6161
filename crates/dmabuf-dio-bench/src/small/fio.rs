// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same reads by fio.

use std::process::Command;

use super::BLOCK;
use super::engine::batch;
use super::memory::MemoryKind;
use super::rows::{EngineKind, ReadRow, costs};
use crate::fio::{self, FioJob};
use crate::measure::clock::{Clock, Unit};
use crate::measure::outcome::{Status, Trouble};
use crate::report::row::Run;

/// A line at a queue depth.
pub(crate) struct RandomFio<'r> {
    pub(crate) row: &'r ReadRow<'r>,
    pub(crate) depth: u32,
}

/// The output of a run of fio, and the CPU's work meanwhile.
struct FioRun {
    job: FioJob,
    busy: f64,
}

impl RandomFio<'_> {
    /// Where all CPU work is counted, fio runs with the number of reads and with twice that number: the
    /// difference does not contain fio's start-up.
    pub(crate) fn run(&self, reads: u64, clock: &Clock) -> Result<Run, Trouble> {
        if clock.unit() == Unit::Nanoseconds {
            let FioJob { read, usr_cpu, sys_cpu } = self.once(reads, clock)?.job;
            let cpu_ns = read.runtime as f64 * 1e6 * (usr_cpu + sys_cpu) / 100.0;
            return Ok(costs(read.iops, cpu_ns / read.total_ios as f64));
        }
        let (some, more) = (self.once(reads, clock)?, self.once(2 * reads, clock)?);
        let per_read = (more.busy - some.busy) / reads as f64;
        Ok(costs(more.job.read.iops, per_read))
    }

    fn once(&self, reads: u64, clock: &Clock) -> Result<FioRun, Trouble> {
        clock.settle();
        let mark = clock.mark();
        let jobs = fio::run(self.command(reads)?)?;
        let busy = clock.busy_since(mark);
        match jobs.into_iter().next() {
            Some(job) if job.read.total_ios >= reads => Ok(FioRun { job, busy }),
            _ => {
                let reason = format!("fio made fewer than {reads} reads");
                Err(Trouble::new(Status::Failed, reason))
            }
        }
    }

    /// The cheapest options of fio: requests in batches, no statistics per request.
    fn command(&self, reads: u64) -> Result<Command, Trouble> {
        self.row.target.direct()?;
        let batch = batch(self.depth);
        let mut command = Command::new("fio");
        command.args(["--output-format=json", "--thread", "--readonly", "--allow_file_create=0"]);
        command.args(["--name=small", "--rw=randread", "--direct=1", "--norandommap"]);
        command.args(["--gtod_reduce=1", "--invalidate=0", "--mem=mmap"]);
        command.arg(fio::filename(&self.row.target.path));
        command.arg(format!("--bs={BLOCK}"));
        command.arg(format!("--size={}", self.row.size));
        command.arg(format!("--io_size={}", reads * BLOCK));
        command.arg(format!("--iodepth={}", self.depth));
        command.arg(format!("--iodepth_batch_submit={batch}"));
        command.arg(format!("--iodepth_batch_complete_min={batch}"));
        command.arg(format!("--iodepth_batch_complete_max={}", self.depth));
        match self.row.engine {
            EngineKind::Libaio => {
                command.arg("--ioengine=libaio");
            }
            _ => {
                command.args(["--ioengine=io_uring", "--registerfiles=1", "--nonvectored=1"]);
            }
        }
        if self.row.engine == EngineKind::Polled {
            command.arg("--hipri=1");
        }
        if self.row.memory == MemoryKind::Registered {
            command.arg("--fixedbufs=1");
        }
        Ok(command)
    }
}
