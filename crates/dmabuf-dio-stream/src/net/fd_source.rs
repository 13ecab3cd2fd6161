// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies what arrives from a pipe, a socket or another descriptor into blocks.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use dmabuf_dio::lend::Access;

use super::descriptor::{Descriptor, Use};
use crate::copied::Copied;
use crate::ends::{Facts, Pending, Source};
use crate::error::{Error, Result};
use crate::ring::{BlockRing, Filled};
use crate::wait::Wait;

/// Bytes read before the sink gets its turn.
const TURN: u64 = 1 << 20;

/// Reads blocks from a pipe, a FIFO, a socket or a character device: read(2) into the block, never
/// blocking. It ends when the other end closes.
#[derive(Debug)]
pub struct FdSource {
    from: Descriptor,
    frame: u64,
    blocks: Copied,
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
        let blocks = Copied::new(name, Access::Write);
        let from = Descriptor::new(&blocks.name, fd.into(), Use::Read)?;
        Ok(Self { from, frame: frame.max(1), blocks, state: State::Running })
    }

    /// Reads until the first block is full, at most for a turn.
    fn read(&mut self) -> Result<Option<Filled>> {
        let begin = self.blocks.done();
        while self.blocks.done() - begin < TURN {
            match self
                .blocks
                .copy("read", u64::MAX, |to, at, bytes| self.from.read(to, at, bytes))?
            {
                None => break,
                Some(0) => {
                    let (name, frame) = (self.blocks.name.clone(), self.frame);
                    let excess = self.blocks.done() % frame;
                    let cut = (excess > 0).then_some(Error::CutStream { name, excess, frame });
                    self.state = State::Ending(cut);
                    break;
                }
                Some(_) => {
                    let full = self.blocks.take()?;
                    if full.is_some() {
                        return Ok(full);
                    }
                }
            }
        }
        Ok(None)
    }
}

impl Source for FdSource {
    fn facts(&self) -> Facts {
        Facts { frame: self.frame, waits: true, ..Facts::new(self.from.how()) }
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        self.blocks.attach(ring)
    }

    fn queue(&mut self, blocks: &[Filled]) -> Result<(usize, bool)> {
        blocks.iter().try_for_each(|&filled| self.blocks.queue(filled))?;
        Ok((blocks.len(), false))
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        if matches!(self.state, State::Running) {
            match self.read() {
                Ok(Some(filled)) => return Ok(Some(filled)),
                Ok(None) => {}
                Err(error) => self.state = State::Ending(Some(error)),
            }
        }
        let State::Ending(error) = &mut self.state else { return Ok(None) };
        let last = self.blocks.take_last(self.frame)?;
        if last.is_some() {
            return Ok(last);
        }
        let error = error.take();
        self.state = State::Ended;
        error.map_or(Ok(None), Err)
    }

    fn pending(&self) -> Pending<'_> {
        let blocks = self.blocks.len();
        Pending { blocks, ready: (blocks > 0).then(|| Wait::readable(self.from.as_fd())) }
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
