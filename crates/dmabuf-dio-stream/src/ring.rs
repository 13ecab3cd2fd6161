// SPDX-License-Identifier: MIT OR Apache-2.0
//! The blocks of a stream.

use crate::Filled;
use crate::error::Result;
use dmabuf_dio::DmaBuf;
use dmabuf_dio::Error;

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
    /// [`Setting`](Error::Setting) for a number or size that cannot be. As for [`DmaBuf::alloc`], and
    /// [`Buffer`](Error::Buffer) with `EMFILE` if there are more than the process may have files open.
    pub fn new(count: usize, size: u64) -> Result<Self> {
        check(count, size)?;
        let blocks = (0..count).map(|_| DmaBuf::alloc(size)).collect::<Result<_, Error>>()?;
        Ok(Self { blocks, size })
    }

    /// Takes blocks that are there, and uses the first `size` bytes of each: of a CMA heap, say
    /// ([`DmaBuf::alloc_from`]), for a device that has no IOMMU, or memfds where no device is
    /// concerned.
    ///
    /// # Errors
    ///
    /// [`Setting`](Error::Setting) for a number or size that cannot be;
    /// [`RangeBeyondBuffer`](Error::RangeBeyondBuffer) if a block is shorter.
    pub fn of(blocks: Vec<DmaBuf>, size: u64) -> Result<Self> {
        check(blocks.len(), size)?;
        for block in &blocks {
            block.check_range(0, size)?;
        }
        Ok(Self { blocks, size })
    }

    /// Looks whether what somebody queues is in a block. Everything that moves bytes of blocks
    /// works on claims, and so does not have to ask.
    ///
    /// # Errors
    ///
    /// [`RangeBeyondBuffer`](Error::RangeBeyondBuffer) for more bytes than [`size`](Self::size); [`Setting`](Error::Setting) for
    /// none, or a block that there is not.
    pub(super) fn claim(&self, filled: Filled) -> Result<Claim> {
        let Filled { block, bytes } = filled;
        if block >= self.blocks.len() {
            let need = "the number of one of the ring";
            return Err(Error::Setting { name: "block", value: block as u64, need }.into());
        }
        if bytes == 0 {
            return Err(Error::Setting { name: "bytes", value: 0, need: "at least 1" }.into());
        }
        if bytes > self.size {
            return Err(
                Error::RangeBeyondBuffer { offset: 0, length: bytes, buffer: self.size }.into()
            );
        }
        Ok(Claim(filled))
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

/// Whether a ring may have so many blocks of that size.
fn check(count: usize, size: u64) -> Result<()> {
    if count == 0 || count > MAX_COUNT {
        let value = count as u64;
        return Err(Error::Setting { name: "blocks", value, need: "from 1 to 4096" }.into());
    }
    if size == 0 || size > MAX_SIZE {
        return Err(Error::Setting { name: "block", value: size, need: "from 1 to 1 GiB" }.into());
    }
    Ok(())
}

/// Bytes at the start of a block, at least 1, that are there: made by [`Ring::claim`] alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim(Filled);

impl Claim {
    /// The number of the block in the ring that the claim is of.
    pub(super) fn block(self) -> usize {
        self.0.block
    }

    pub(super) fn bytes(self) -> u64 {
        self.0.bytes
    }

    /// Of the same block the first `bytes` bytes, or all of the claim.
    pub(super) fn first(self, bytes: u64) -> Self {
        Self(Filled { bytes: bytes.clamp(1, self.0.bytes), ..self.0 })
    }

    pub(super) fn filled(self) -> Filled {
        self.0
    }
}

#[cfg(test)]
impl Ring {
    /// Blocks of memory that there is without a heap.
    pub(super) fn of_memfds(count: usize, size: u64) -> Self {
        let blocks = (0..count).map(|_| DmaBuf::memfd(size).expect("a memfd")).collect();
        Self::of(blocks, size).expect("a ring")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_a_block_is_claimed() {
        let ring = Ring::of_memfds(2, 5000);
        for (block, bytes, good) in [
            (0, 1, true),
            (1, 5000, true),
            (0, 0, false),
            (0, 5001, false),
            // In its last page there would be room.
            (1, 8192, false),
            (0, u64::MAX, false),
            (2, 1, false),
            (usize::MAX, 1, false),
        ] {
            let claim = ring.claim(Filled { block, bytes });
            assert_eq!(claim.is_ok(), good, "{bytes} bytes of block {block}: {claim:?}");
        }
    }
}
