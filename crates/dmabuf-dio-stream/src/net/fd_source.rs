// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies what arrives from a pipe, a socket or another descriptor into blocks.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use dmabuf_dio::lend::{Access, Mapping};

use super::descriptor::{Descriptor, Use};
use crate::ends::Source;
use crate::error::{Error, Result, failed};
use crate::ring::{BlockRing, Claim, Filled, attached};
use crate::wait::Wait;

/// Bytes read before the sink gets its turn.
const TURN: u64 = 1 << 20;

/// Reads blocks from a pipe, a FIFO, a socket or a character device: read(2) into the block, never
/// blocking. It ends when the other end closes.
#[derive(Debug)]
pub struct FdSource {
    from: Descriptor,
    frame: u64,
    ring: Option<Arc<BlockRing>>,
    mappings: Vec<Mapping>,
    queued: VecDeque<Claim>,
    /// Bytes read of the first block.
    done: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Running,
    /// What has been read is returned, then the error, if any.
    Ending(Option<Error>),
    Ended,
}

impl FdSource {
    /// Takes ownership of the descriptor, which delivers frames of `frame` bytes. Error messages
    /// call it `name`. A pipe gets an open file description of its own, so that the flags of the
    /// given one do not change; a socket becomes non-blocking.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`] if it cannot be used.
    pub fn new(fd: impl Into<OwnedFd>, name: impl Into<String>, frame: u64) -> Result<Self> {
        Ok(Self {
            from: Descriptor::new(&name.into(), fd.into(), Use::Read)?,
            frame: frame.max(1),
            ring: None,
            mappings: Vec::new(),
            queued: VecDeque::new(),
            done: 0,
            state: State::Running,
        })
    }

    /// What the end of the data means.
    fn closed(&self) -> Option<Error> {
        let (name, frame) = (self.from.name.clone(), self.frame);
        let excess = self.done % frame;
        (excess > 0).then_some(Error::CutStream { name, excess, frame })
    }

    /// Reads something into the first block. `false`: there is nothing at the moment, or
    /// any more.
    fn read_some(&mut self, claim: Claim) -> Result<bool> {
        let space = claim.bytes() - self.done;
        let ring = attached(self.ring.as_ref(), &self.from.name)?;
        let block = ring.block(claim.block());
        block.begin_cpu_access(Access::Write)?;
        let read = self.from.read(&self.mappings[claim.block()], self.done, space);
        block.end_cpu_access(Access::Write)?;
        match read.map_err(|errno| failed(&self.from.name, "read", errno))? {
            None => Ok(false),
            Some(0) => {
                self.state = State::Ending(self.closed());
                Ok(false)
            }
            Some(bytes) => {
                self.done += bytes;
                Ok(true)
            }
        }
    }

    /// The whole frames of the first block, which is not full. The other blocks are dropped.
    fn rest(&mut self) -> Option<Filled> {
        let bytes = std::mem::take(&mut self.done) / self.frame * self.frame;
        let first = self.queued.pop_front();
        self.queued.clear();
        first.filter(|_| bytes > 0).map(|claim| claim.first(bytes).filled())
    }
}

impl Source for FdSource {
    fn frame(&self) -> u64 {
        self.frame
    }

    fn how(&self) -> String {
        self.from.how().into()
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        let mappings: Result<Vec<_>> =
            ring.blocks().iter().map(|block| Ok(block.mapping(true)?)).collect();
        self.mappings = mappings?;
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        Ok(())
    }

    fn queue(&mut self, block: usize, bytes: u64) -> Result<bool> {
        let claim =
            attached(self.ring.as_ref(), &self.from.name)?.claim(Filled { block, bytes })?;
        self.queued.push_back(claim);
        Ok(false)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        let begin = self.done;
        while let (State::Running, Some(&claim)) = (&self.state, self.queued.front()) {
            let some = match self.read_some(claim) {
                Ok(some) => some,
                Err(error) => {
                    self.state = State::Ending(Some(error));
                    continue;
                }
            };
            if self.done == claim.bytes() {
                self.done = 0;
                return Ok(self.queued.pop_front().map(Claim::filled));
            }
            if !some && matches!(self.state, State::Running) || self.done - begin >= TURN {
                return Ok(None);
            }
        }
        if let State::Ending(error) = &mut self.state {
            let error = error.take();
            if let Some(filled) = self.rest() {
                self.state = State::Ending(error);
                return Ok(Some(filled));
            }
            self.state = State::Ended;
            return error.map_or(Ok(None), Err);
        }
        Ok(None)
    }

    fn ready(&self) -> Option<Wait<'_>> {
        (!self.queued.is_empty()).then(|| Wait::readable(self.from.as_fd()))
    }

    fn queued(&self) -> usize {
        self.queued.len()
    }

    fn waits(&self) -> bool {
        true
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Whole frames that have arrived are kept.
    fn stop(&mut self) -> Result<()> {
        if matches!(self.state, State::Running) {
            self.state = State::Ending(None);
        }
        Ok(())
    }
}
