// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that the CPU copies from or to a descriptor, in the order in which they were queued.

use std::collections::VecDeque;
use std::sync::Arc;

use dmabuf_dio::Errno;
use dmabuf_dio::lend::{Access, Mapping};

use crate::error::{Result, failed};
use crate::ring::{BlockRing, Claim, Filled, attached};

/// Mapped blocks. The first one is being copied.
#[derive(Debug)]
pub(crate) struct Copied {
    /// The other end, in error messages.
    pub(crate) name: String,
    access: Access,
    ring: Option<Arc<BlockRing>>,
    queued: VecDeque<Claim>,
    /// Bytes copied of the first block, and whether it is open for access by the CPU.
    done: u64,
    is_open: bool,
}

impl Copied {
    /// Blocks that are read by the CPU, or written.
    pub(crate) fn new(name: impl Into<String>, access: Access) -> Self {
        let (name, queued) = (name.into(), VecDeque::new());
        Self { name, access, ring: None, queued, done: 0, is_open: false }
    }

    /// Maps the blocks of a ring.
    pub(crate) fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        self.ring = Some(Arc::clone(ring));
        (0..ring.len()).try_for_each(|block| self.attach_more(block).map(drop))
    }

    /// Maps one more block of the ring. Returns whether there is a ring.
    pub(crate) fn attach_more(&mut self, block: usize) -> Result<bool> {
        let Some(ring) = &self.ring else { return Ok(false) };
        ring.mapping(block, self.access == Access::Write).map(|_| true)
    }

    pub(crate) fn queue(&mut self, filled: Filled) -> Result<()> {
        self.queued.push_back(attached(self.ring.as_ref(), &self.name)?.claim(filled)?);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }

    /// Bytes copied of the first block.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Copies some of the missing part of the first block, at most `most` bytes: `some` gets its mapping,
    /// the offset and the number of bytes. Returns how many were copied; `None` if there is no block, or
    /// nothing to be copied at the moment.
    pub(crate) fn copy(
        &mut self,
        call: &str,
        most: u64,
        some: impl FnOnce(&Mapping, u64, u64) -> Result<u64, Errno>,
    ) -> Result<Option<u64>> {
        let Some(&claim) = self.queued.front() else { return Ok(None) };
        let ring = attached(self.ring.as_ref(), &self.name)?;
        let mapping = ring.mapping(claim.block(), self.access == Access::Write)?;
        if !self.is_open {
            ring.block(claim.block()).begin_cpu_access(self.access)?;
            self.is_open = true;
        }
        // The claim is in the block, and the whole block is mapped.
        let left = claim.bytes() - self.done;
        match some(mapping, self.done, left.min(most)) {
            Ok(copied) => {
                self.done += copied;
                Ok(Some(copied))
            }
            Err(errno) if matches!(errno.raw(), libc::EAGAIN | libc::EINTR) => Ok(None),
            Err(errno) => Err(failed(&self.name, call, errno)),
        }
    }

    /// The first block, if all of it is copied.
    pub(crate) fn take(&mut self) -> Result<Option<Filled>> {
        match self.queued.front() {
            Some(first) if self.done == first.bytes() => self.take_first(1),
            _ => Ok(None),
        }
    }

    /// The whole frames of the first block that are copied, if any. The other blocks are dropped.
    pub(crate) fn take_last(&mut self, frame: u64) -> Result<Option<Filled>> {
        let last = self.take_first(frame);
        self.queued.clear();
        last
    }

    fn take_first(&mut self, frame: u64) -> Result<Option<Filled>> {
        let bytes = std::mem::take(&mut self.done) / frame * frame;
        let Some(first) = self.queued.pop_front() else { return Ok(None) };
        if std::mem::take(&mut self.is_open) {
            let ring = attached(self.ring.as_ref(), &self.name)?;
            ring.block(first.block()).end_cpu_access(self.access)?;
        }
        Ok((bytes > 0).then(|| first.first(bytes).filled()))
    }
}
