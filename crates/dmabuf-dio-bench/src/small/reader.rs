// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads blocks, with any engine.

use super::appends::Appends;
use super::memory::{BLOCK, ReadBlocks};
use crate::disk::DiskFile;
use crate::outcome::Result;
use crate::ways::flight::{Engine, Request, keep_in_flight};

/// Requests submitted, and waited for, at a time.
const BATCH: u32 = 32;

/// The size of a batch: half of the requests stay in flight while others are prepared.
pub(super) fn batch(depth: u32) -> u32 {
    BATCH.min((depth / 2).max(1))
}

/// Reads from offsets, which are the first of those it was made for.
pub(super) trait Reader {
    /// Waits for the last completion.
    fn read(&mut self, offsets: &[u64]) -> Result<()>;

    /// The same, with every byte compared.
    fn compare(&mut self, offsets: &[u64], disk: &DiskFile) -> Result<()>;
}

/// Reads into a block for each request in flight.
pub(super) struct BlockReader<E> {
    /// First: it is gone before the memory that requests are for.
    pub(super) engine: E,
    pub(super) memory: ReadBlocks,
    pub(super) depth: u32,
    pub(super) appends: Option<Appends>,
}

impl<E: Engine> Reader for BlockReader<E> {
    fn read(&mut self, offsets: &[u64]) -> Result<()> {
        let Self { engine, memory, appends, .. } = self;
        let depth = self.depth.min(offsets.len() as u32);
        let mut offsets = offsets.iter();
        let next = |block| {
            let Some(&offset) = offsets.next() else { return Ok(None) };
            appends.as_mut().map_or(Ok(()), Appends::before_read)?;
            Ok(Some(Request { offset, place: memory.place(block), len: BLOCK as u32, buffer: 0 }))
        };
        // SAFETY: there is a block for each tag, until the engine is gone.
        unsafe { keep_in_flight(engine, depth, batch(depth), next) }
    }

    fn compare(&mut self, offsets: &[u64], disk: &DiskFile) -> Result<()> {
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
