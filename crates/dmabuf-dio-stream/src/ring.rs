// SPDX-License-Identifier: MIT OR Apache-2.0
//! The blocks of a stream.

use crate::Filled;
use crate::error::Result;
use dmabuf_dio::DmaBuf;
use dmabuf_dio::Error;

/// Maximum number of blocks in a ring.
const MAX_COUNT: usize = 4096;
/// Maximum bytes of a block: `io_uring` accepts no larger request.
const MAX_SIZE: u64 = 1 << 30;

/// Dma-bufs of equal size that circulate in a stream.
#[derive(Debug)]
pub struct Ring {
    blocks: Vec<DmaBuf>,
    size: u64,
}

impl Ring {
    /// Allocates `count` blocks of `size` bytes each, rounded up to whole pages, on the system
    /// heap: 1 to 4096 blocks of 1 byte to 1 GiB. A device needs at least two, to fill one while
    /// the other is emptied.
    ///
    /// # Errors
    ///
    /// [`Setting`](Error::Setting) for an invalid count or size. As for [`DmaBuf::alloc`], and
    /// [`Buffer`](Error::Buffer) with `EMFILE` if the limit on open files is too low.
    pub fn new(count: usize, size: u64) -> Result<Self> {
        check(count, size)?;
        let blocks = (0..count).map(|_| DmaBuf::alloc(size)).collect::<Result<_, Error>>()?;
        Ok(Self { blocks, size })
    }

    /// Takes ownership of existing blocks, and uses the first `size` bytes of each. They may be
    /// from a CMA heap ([`DmaBuf::alloc_from`]), for a device without an IOMMU, or memfds if no
    /// device is involved.
    ///
    /// # Errors
    ///
    /// [`Setting`](Error::Setting) for an invalid count or size;
    /// [`RangeBeyondBuffer`](Error::RangeBeyondBuffer) if a block is shorter.
    pub fn of(blocks: Vec<DmaBuf>, size: u64) -> Result<Self> {
        check(blocks.len(), size)?;
        for block in &blocks {
            block.check_range(0, size)?;
        }
        Ok(Self { blocks, size })
    }

    /// Checks that queued bytes are in a block. All code that moves bytes of blocks works on
    /// claims, so the check is made once.
    ///
    /// # Errors
    ///
    /// [`RangeBeyondBuffer`](Error::RangeBeyondBuffer) for more bytes than [`size`](Self::size);
    /// [`Setting`](Error::Setting) for 0 bytes, or a block that does not exist.
    pub(super) fn claim(&self, filled: Filled) -> Result<Claim> {
        let Filled { block, bytes } = filled;
        if block >= self.blocks.len() {
            let need = "the index of a block of the ring";
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

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether the ring has no blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Used bytes of each block.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The block at index `number`, from 0.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    pub fn block(&self, number: usize) -> &DmaBuf {
        &self.blocks[number]
    }

    /// All blocks.
    pub fn blocks(&self) -> &[DmaBuf] {
        &self.blocks
    }
}

/// Checks the number and size of blocks.
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

/// Bytes at the start of a block that are known to exist, at least 1. Created only by
/// [`Ring::claim`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim(Filled);

impl Claim {
    /// The claim's block, as an index in the ring.
    pub(super) fn block(self) -> usize {
        self.0.block
    }

    pub(super) fn bytes(self) -> u64 {
        self.0.bytes
    }

    /// The first `bytes` bytes of the claim, or all of it if it is shorter.
    pub(super) fn first(self, bytes: u64) -> Self {
        Self(Filled { bytes: bytes.clamp(1, self.0.bytes), ..self.0 })
    }

    pub(super) fn filled(self) -> Filled {
        self.0
    }
}

#[cfg(test)]
impl Ring {
    /// Blocks of memfds, which need no heap.
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
            // The last page would have room.
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
