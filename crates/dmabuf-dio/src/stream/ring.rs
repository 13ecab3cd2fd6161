// SPDX-License-Identifier: MIT OR Apache-2.0
//! The blocks of a stream.

use crate::buf::DmaBuf;
use crate::error::{Error, Result};

/// The most blocks that a ring has.
const MAX_COUNT: usize = 4096;
/// The most bytes that a block has: a request of `io_uring` takes no more.
const MAX_SIZE: u64 = 1 << 30;

/// Dma-bufs of one size that go round.
#[derive(Debug)]
pub struct Ring {
    blocks: Vec<DmaBuf>,
    size: u64,
}

impl Ring {
    /// Allocates `count` blocks of `size` bytes each, rounded up to whole pages, on the system
    /// heap. At least two are needed for a device to go on while one is emptied; there can be 4096
    /// of up to 1 GiB.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a number or size that cannot be. As for [`DmaBuf::alloc`], and
    /// [`Error::Buffer`] with `EMFILE` if there are more than the process may have files open.
    pub fn new(count: usize, size: u64) -> Result<Self> {
        if count == 0 || count > MAX_COUNT {
            let value = count as u64;
            return Err(Error::Setting { name: "blocks", value, need: "from 1 to 4096" });
        }
        if size == 0 || size > MAX_SIZE {
            return Err(Error::Setting { name: "block", value: size, need: "from 1 to 1 GiB" });
        }
        let blocks: Vec<_> = (0..count).map(|_| DmaBuf::alloc(size)).collect::<Result<_>>()?;
        Ok(Self { blocks, size })
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Bytes of a block that are used.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// A block.
    ///
    /// # Panics
    ///
    /// If there is none with this number.
    pub fn block(&self, number: usize) -> &DmaBuf {
        &self.blocks[number]
    }

    /// All of them.
    pub fn blocks(&self) -> &[DmaBuf] {
        &self.blocks
    }
}
