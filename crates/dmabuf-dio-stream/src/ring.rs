// SPDX-License-Identifier: MIT OR Apache-2.0
//! The blocks of a stream.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Result, failed};
use dmabuf_dio::lend::Mapping;
use dmabuf_dio::{Buffer, DmaBuf, Errno, Error};

/// A filled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Index of the block in the ring.
    pub block: usize,
    /// Number of bytes at its start: at least 1, at most the ring's [`size`](BlockRing::size).
    pub bytes: u64,
}

/// Maximum number of blocks in a ring.
const MAX_COUNT: usize = 4096;
/// Maximum bytes of a block: `io_uring` accepts no larger request.
const MAX_SIZE: u64 = 1 << 30;

/// Memory that a ring leaves to others, in bytes.
const RESERVE: u64 = 64 << 20;

/// Memory that is free, or can be freed, in bytes; `None` if the kernel does not say.
pub fn available() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Dma-bufs of equal size that circulate in a stream.
#[derive(Debug)]
pub struct BlockRing {
    blocks: Vec<Buffer>,
    /// Room for blocks that are added later, and how many were.
    room: Vec<OnceLock<Buffer>>,
    added: AtomicUsize,
    /// A mapping for reading and one for writing, for each block that the ring has or may get.
    mappings: Vec<[OnceLock<Mapping>; 2]>,
    size: u64,
}

/// How many blocks a stream used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RingUse {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Number of blocks at the start.
    pub blocks_at_start: usize,
    /// Number of blocks at the end: more if the sink was slow.
    pub blocks_at_end: usize,
    /// Number of blocks that were allowed.
    pub most_blocks: usize,
}

impl BlockRing {
    /// Allocates `count` blocks of `size` bytes each, rounded up to whole pages, on the system
    /// heap: 1 to 4096 blocks of 1 byte to 1 GiB. A device needs at least two, to fill one while
    /// the other is emptied.
    ///
    /// # Errors
    ///
    /// [`Setting`](Error::Setting) for an invalid count or size. [`NoMemory`](Error::NoMemory) if
    /// less than 64 MiB would be left. As for [`DmaBuf::alloc`], and
    /// [`Buffer`](Error::Buffer) with `EMFILE` if the limit on open files is too low.
    pub fn new(count: usize, size: u64) -> Result<Self> {
        check(count, size)?;
        // Each block would fit, but the last ones would invoke the OOM killer.
        let wanted =
            size.next_multiple_of(rustix::param::page_size() as u64).saturating_mul(count as u64);
        match available() {
            Some(bytes) if wanted > bytes.saturating_sub(RESERVE) => {
                return Err(
                    Error::NoMemory { wanted, available: Some(bytes), reserve: None }.into()
                );
            }
            _ => {}
        }
        let blocks = (0..count)
            .map(|_| DmaBuf::alloc(size).map(Buffer::from))
            .collect::<Result<_, Error>>()?;
        Self::of(blocks, size)
    }

    /// Lets a [`Stream`](crate::Stream) add blocks while its sink is slow, up to `most` in all,
    /// from the system heap.
    ///
    /// # Errors
    ///
    /// [`Setting`](Error::Setting) for more than 4096.
    pub fn growing(mut self, most: usize) -> Result<Self> {
        check(most.max(1), self.size)?;
        let room = most.saturating_sub(self.blocks.len());
        self.room.resize_with(room, OnceLock::new);
        self.mappings.resize_with(self.most(), Default::default);
        Ok(self)
    }

    /// Takes ownership of existing blocks, and uses the first `size` bytes of each. They may be
    /// from a CMA heap ([`DmaBuf::alloc_from`](dmabuf_dio::DmaBuf::alloc_from)), for a device without an IOMMU, or memfds if no
    /// device is involved.
    ///
    /// # Errors
    ///
    /// [`Setting`](Error::Setting) for an invalid count or size;
    /// [`RangeBeyondBuffer`](Error::RangeBeyondBuffer) if a block is shorter.
    pub fn of(blocks: Vec<Buffer>, size: u64) -> Result<Self> {
        check(blocks.len(), size)?;
        for block in &blocks {
            block.check_range(0, size)?;
        }
        let mappings = blocks.iter().map(|_| Default::default()).collect();
        Ok(Self { blocks, room: Vec::new(), added: AtomicUsize::new(0), mappings, size })
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
        if block >= self.len() {
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

    /// Allocates another block, if there is room and memory for one. Returns its index.
    pub(super) fn add(&self) -> Option<usize> {
        let place = self.added.load(Ordering::Relaxed);
        self.room.get(place)?;
        let reserve = RESERVE.max(self.size);
        if available().is_some_and(|bytes| bytes < self.size + reserve) {
            return None;
        }
        self.keep(place, DmaBuf::alloc(self.size).ok()?.into())
    }

    /// Adds a block at a place that has room. `None` if another thread was first.
    fn keep(&self, place: usize, block: Buffer) -> Option<usize> {
        self.room[place].set(block).ok()?;
        // Who sees the count sees the block.
        self.added.store(place + 1, Ordering::Release);
        Some(self.blocks.len() + place)
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len() + self.added.load(Ordering::Acquire)
    }

    /// Number of blocks that it may grow to.
    pub fn most(&self) -> usize {
        self.blocks.len() + self.room.len()
    }

    /// How many blocks there were, are and may be.
    pub(super) fn usage(&self) -> RingUse {
        RingUse {
            block_bytes: self.size,
            blocks_at_start: self.blocks.len(),
            blocks_at_end: self.len(),
            most_blocks: self.most(),
        }
    }

    /// Whether the ring has no blocks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
    pub fn block(&self, number: usize) -> &Buffer {
        let added = || self.room[number - self.blocks.len()].get();
        match self.blocks.get(number).or_else(added) {
            Some(block) => block,
            None => panic!("there is no block {number}"),
        }
    }

    /// The mapping of a block, made when it is first asked for.
    pub(crate) fn mapping(&self, block: usize, writable: bool) -> Result<&Mapping> {
        let mapping = &self.mappings[block][usize::from(writable)];
        if let Some(mapping) = mapping.get() {
            return Ok(mapping);
        }
        let made = self.block(block).mapping(writable)?;
        Ok(mapping.get_or_init(|| made))
    }

    /// The blocks that it has had from the start.
    pub fn blocks(&self) -> &[Buffer] {
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
/// [`BlockRing::claim`].
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

/// The least common multiple of two numbers of bytes, of which 0 counts as 1.
pub(crate) fn multiple(one: u64, other: u64) -> u64 {
    let (one, other) = (one.max(1), other.max(1));
    let (mut a, mut b) = (one, other);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    (one / a).saturating_mul(other)
}

/// The ring of a queued block.
pub(crate) fn attached<'r>(
    ring: Option<&'r Arc<BlockRing>>,
    who: &str,
) -> Result<&'r Arc<BlockRing>> {
    ring.ok_or_else(|| unattached(who))
}

/// The error of a caller that queues a block before it attaches the ring.
pub(crate) fn unattached(who: &str) -> crate::error::Error {
    failed(who, "use its blocks before they are attached", Errno::INVAL)
}

#[cfg(test)]
impl BlockRing {
    /// Blocks of memfds, which need no heap.
    pub(super) fn of_memfds(count: usize, size: u64) -> Self {
        let blocks = (0..count).map(|_| Buffer::memfd(size).expect("a memfd")).collect();
        Self::of(blocks, size).expect("a ring")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_grows_up_to_its_limit() {
        let ring = BlockRing::of_memfds(2, 5000).growing(4).expect("room");
        assert_eq!((ring.len(), ring.most(), ring.blocks().len()), (2, 4, 2));
        assert!(ring.claim(Filled { block: 2, bytes: 1 }).is_err());
        if ring.add().is_none() {
            println!("skipped: no heap");
            return;
        }
        assert_eq!((ring.len(), ring.block(2).len()), (3, ring.block(0).len()));
        assert!(ring.claim(Filled { block: 2, bytes: 1 }).is_ok());
        assert_eq!((ring.add(), ring.add(), ring.len()), (Some(3), None, 4));
        assert!(BlockRing::of_memfds(2, 5000).growing(5000).is_err());
    }

    /// Where processors reorder, and under Miri, which shows old values, too.
    #[test]
    fn block_that_is_counted_is_there() {
        let block = || Buffer::zeroed(1).expect("memory");
        let ring = BlockRing::of(vec![block()], 1).expect("a ring").growing(2).expect("room");
        std::thread::scope(|scope| {
            scope.spawn(|| ring.keep(0, block()));
            while ring.len() < 2 {
                std::thread::yield_now();
            }
            assert_eq!(ring.block(1).data_len(), 1);
        });
        assert_eq!((ring.len(), ring.keep(0, block())), (2, None));
    }

    #[test]
    fn claims_beyond_a_block_are_refused() {
        let ring = BlockRing::of_memfds(2, 5000);
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
