// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disk blocks that are shared by the end of one block of a ring and the start of the next.
//!
//! `O_DIRECT` writes whole disk blocks. If the blocks of a ring are not multiples of disk blocks,
//! the CPU copies the two parts of a shared disk block together; all other bytes are written
//! without a copy.

use dmabuf_dio::lend::{Access, Mapping, Ring, Span};
use dmabuf_dio::{Buffer, Direction};

use crate::error::Result;
use crate::ring::BlockRing;

/// Shared disk blocks that are written at a time.
const MOST: u64 = 32;

/// Bytes of a block of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes {
    pub(super) block: usize,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Memory for shared disk blocks, which is lent as well.
#[derive(Debug)]
pub(super) struct Edges {
    buffer: Buffer,
    memory: Mapping,
    /// Its number in the ring that lends. The numbers of blocks that are lent later are higher by
    /// one than in their own ring.
    index: u16,
    /// Bytes of a disk block.
    unit: u64,
    used: u64,
}

impl Edges {
    /// Lends the memory, after the blocks that are lent from the start.
    pub(super) fn lend(ring: &mut Ring, blocks: &BlockRing, unit: u64) -> Option<Self> {
        let buffer = Buffer::alloc(MOST * unit).ok()?;
        let memory = buffer.mapping(true).ok()?;
        ring.lend(&buffer, Direction::Save).ok()?;
        let index = blocks.blocks().len() as u16;
        Some(Self { buffer, memory, index, unit, used: 0 })
    }

    /// The number of a block in the ring that lends.
    pub(super) fn number(&self, block: usize) -> u16 {
        block as u16 + u16::from(block >= usize::from(self.index))
    }

    /// Notes that no shared disk block is in use any more.
    pub(super) fn restart(&mut self) {
        self.used = 0;
    }

    /// Whether there is memory for another one.
    pub(super) fn has_room(&self) -> bool {
        self.used < MOST
    }

    /// Copies the end of a block and the start of the next, which are a disk block. The blocks are
    /// open for CPU access.
    pub(super) fn join(&mut self, ring: &BlockRing, parts: [Bytes; 2]) -> Result<Span> {
        let start = self.used * self.unit;
        let mut bytes = Vec::with_capacity(self.unit as usize);
        for Bytes { block, offset, len } in parts {
            let end = bytes.len();
            bytes.resize(end + len as usize, 0);
            ring.mapping(block, false)?.copy_to(offset, &mut bytes[end..])?;
        }
        self.buffer.begin_cpu_access(Access::Write)?;
        let copied = self.memory.copy_from(start, &bytes);
        self.buffer.end_cpu_access(Access::Write)?;
        copied?;
        self.used += 1;
        Ok(Span { buffer: self.index, offset: start, len: bytes.len() as u32 })
    }
}
