// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that is read into: a block for each request in flight.

use std::os::fd::{AsFd, OwnedFd};
use std::slice;

use dmabuf_dio_sys::dmabuf::Access;

use crate::buffer::mapping::{Mapping, Pages};
use crate::buffer::{Buffer, BufferKind, Maker};
use crate::outcome::{Result, failed};
use crate::pattern::POISON;
use crate::ways::module::attach;
use crate::ways::ring::Uring;

/// Bytes per read.
pub(crate) const BLOCK: u64 = 4096;
/// What the system heap allocates at once. A smaller dma-buf has one piece or several, as memory happens to be,
/// and requests into any but the first cost `io_uring` 20 instructions more.
const PIECE: u64 = 1 << 20;

/// The kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// Memory of the process.
    User,
    /// Memory of the process, registered with the ring.
    Registered,
    /// Pages of a dma-buf, lent to the ring by the module.
    Lent,
}

/// Mapped blocks.
pub(crate) struct ReadBlocks {
    kind: MemoryKind,
    mapping: Mapping,
    /// The dma-buf and the context to which it is attached.
    lent: Option<(Buffer, OwnedFd)>,
    len: u64,
}

impl ReadBlocks {
    pub(crate) fn new(kind: MemoryKind, blocks: u32) -> Result<Self> {
        let len = u64::from(blocks) * BLOCK;
        if kind == MemoryKind::Lent {
            let buffer = Maker::new(BufferKind::DmaBuf)?.make(len.next_multiple_of(PIECE))?;
            let context = attach(&buffer)?;
            let mapping = buffer.map()?;
            return Ok(Self { kind, mapping, lent: Some((buffer, context)), len });
        }
        let mut mapping = Mapping::anonymous(len, Pages::Small).map_err(failed("mmap"))?;
        mapping.populate(0, len).map_err(failed("MADV_POPULATE_WRITE"))?;
        Ok(Self { kind, mapping, lent: None, len })
    }

    /// Registers it with a ring.
    pub(crate) fn register(&self, ring: &mut Uring) -> Result<()> {
        match (self.kind, &self.lent) {
            (MemoryKind::Lent, Some((_, context))) => {
                ring.register_slots(context.as_fd(), self.len, self.len)
            }
            (MemoryKind::Registered, _) => {
                let iovec = libc::iovec {
                    iov_base: self.mapping.address().cast_mut().cast(),
                    iov_len: self.len as usize,
                };
                // SAFETY: the mapping outlives the ring: `BlockReader` holds both, ring first.
                unsafe { ring.register(slice::from_ref(&iovec)) }
            }
            _ => Ok(()),
        }
    }

    /// The location of a block: an address, or an offset into a slot.
    pub(crate) fn place(&self, block: u32) -> u64 {
        let at = u64::from(block) * BLOCK;
        if self.kind == MemoryKind::Lent { at } else { self.mapping.address() as u64 + at }
    }

    /// Passes blocks without a request in flight to the CPU, then poisons them.
    pub(crate) fn look(&mut self, mut each: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        // SAFETY: no request is in flight, and the memory is this program's own.
        let blocks = unsafe { self.mapping.bytes() }.chunks_exact_mut(BLOCK as usize);
        let look = || {
            (0..).zip(blocks).try_for_each(|(number, bytes)| {
                each(number, bytes)?;
                bytes.fill(POISON);
                Ok(())
            })
        };
        match &self.lent {
            Some((buffer, _)) => buffer.bracket(Access::ReadWrite, look)?,
            None => look(),
        }
    }
}
