// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps a number of reads in flight, with any engine.

use rustix::io::Errno as Os;

use super::memory::ReadBlocks;
use super::target::{Appends, BLOCK, Target};
use crate::outcome::Trouble;

/// Requests submitted, and waited for, at a time.
const BATCH: u32 = 32;

/// The size of a batch: half of the requests stay in flight while others are prepared.
pub(crate) fn batch(depth: u32) -> u32 {
    BATCH.min((depth / 2).max(1))
}

/// Submits requests.
pub(crate) trait Engine {
    /// Prepares a read from `offset` into a block.
    fn queue(&mut self, block: u32, offset: u64) -> Result<(), Trouble>;

    /// Submits the queued requests, and waits for some completions.
    fn turn(&mut self, least: u32, arrived: &mut Arrived) -> Result<(), Trouble>;

    fn memory(&mut self) -> &mut ReadBlocks;
}

/// Blocks without a request in flight.
#[derive(Debug)]
pub(crate) struct Arrived {
    free: Vec<u32>,
    /// The first failure.
    failed: Option<i32>,
}

impl Arrived {
    pub(crate) fn push(&mut self, block: u32, result: i32) {
        self.free.push(block);
        if result != BLOCK as i32 {
            self.failed.get_or_insert(result);
        }
    }

    fn trouble(&self, polled: bool) -> Result<(), Trouble> {
        match self.failed {
            None => Ok(()),
            Some(result) if result < 0 => Err(match Os::from_raw_os_error(-result) {
                errno @ (Os::OPNOTSUPP | Os::INVAL) if polled => Trouble::unavailable(
                    "polling",
                    errno,
                    "the disk or its file system has no poll queues: nvme.poll_queues=1 on the \
                     kernel's command line",
                ),
                errno => Trouble::failed("a read", errno),
            }),
            Some(result) => Err(Trouble::short("a read", result as u64, BLOCK)),
        }
    }
}

/// A running engine.
pub(crate) struct Worker<'a> {
    pub(crate) engine: Box<dyn Engine + 'a>,
    pub(crate) depth: u32,
    pub(crate) polled: bool,
    pub(crate) appends: Option<Appends>,
}

impl Worker<'_> {
    /// Reads from all offsets, and waits for the last completion.
    pub(crate) fn read(&mut self, offsets: &[u64]) -> Result<(), Trouble> {
        let depth = self.depth.min(offsets.len() as u32);
        let batch = batch(depth);
        let mut arrived = Arrived { free: (0..depth).rev().collect(), failed: None };
        let mut offsets = offsets.iter();
        loop {
            while let Some(&block) = arrived.free.last() {
                let Some(offset) = offsets.next() else { break };
                arrived.free.pop();
                self.appends.as_mut().map_or(Ok(()), Appends::before_read)?;
                self.engine.queue(block, *offset)?;
            }
            let in_flight = depth - arrived.free.len() as u32;
            if in_flight == 0 {
                return arrived.trouble(self.polled);
            }
            self.engine.turn(batch.min(in_flight), &mut arrived)?;
        }
    }

    /// The same, with every byte compared.
    pub(crate) fn compare(&mut self, offsets: &[u64], target: &Target) -> Result<(), Trouble> {
        for round in offsets.chunks(self.depth as usize) {
            self.read(round)?;
            // A round fills the blocks in order.
            self.engine.memory().look(|block, bytes| {
                round.get(block as usize).map_or(Ok(()), |offset| target.check(bytes, *offset))
            })?;
        }
        target.forget();
        Ok(())
    }
}
