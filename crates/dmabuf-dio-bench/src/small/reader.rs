// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads blocks, with any engine.

use super::appends::Appends;
use super::memory::ReadBlocks;
use crate::disk::DiskFile;
use crate::outcome::Trouble;
use crate::ways::flight::{Engine, keep_in_flight};

/// Requests submitted, and waited for, at a time.
const BATCH: u32 = 32;

/// The size of a batch: half of the requests stay in flight while others are prepared.
pub(crate) fn batch(depth: u32) -> u32 {
    BATCH.min((depth / 2).max(1))
}

/// Reads from offsets, which are the first of those it was made for.
pub(crate) trait Reader {
    /// Waits for the last completion.
    fn read(&mut self, offsets: &[u64]) -> Result<(), Trouble>;

    /// The same, with every byte compared.
    fn compare(&mut self, offsets: &[u64], disk: &DiskFile) -> Result<(), Trouble>;
}

/// Reads into a block for each request in flight.
pub(crate) struct BlockReader<E, F> {
    /// First: it is gone before the memory that requests are for.
    pub(crate) engine: E,
    /// Queues a request with a tag, for a place in memory and an offset in the file.
    pub(crate) queue: F,
    pub(crate) memory: ReadBlocks,
    pub(crate) depth: u32,
    pub(crate) appends: Option<Appends>,
}

impl<E: Engine, F> Reader for BlockReader<E, F>
where
    F: Fn(&mut E, u32, u64, u64) -> Result<(), Trouble>,
{
    fn read(&mut self, offsets: &[u64]) -> Result<(), Trouble> {
        let Self { engine, queue, memory, appends, .. } = self;
        let depth = self.depth.min(offsets.len() as u32);
        let mut offsets = offsets.iter();
        keep_in_flight(engine, depth, batch(depth), |engine, block| {
            let Some(&offset) = offsets.next() else { return Ok(false) };
            appends.as_mut().map_or(Ok(()), Appends::before_read)?;
            queue(engine, block, memory.place(block), offset)?;
            Ok(true)
        })
    }

    fn compare(&mut self, offsets: &[u64], disk: &DiskFile) -> Result<(), Trouble> {
        for round in offsets.chunks(self.depth as usize) {
            self.read(round)?;
            // A round fills the blocks in order.
            self.memory.look(|block, bytes| {
                round.get(block as usize).map_or(Ok(()), |offset| disk.check(bytes, *offset))
            })?;
        }
        Ok(())
    }
}
