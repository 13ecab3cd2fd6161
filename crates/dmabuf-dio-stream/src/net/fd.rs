// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies between blocks and a pipe, a socket or another descriptor.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use dmabuf_dio::lend::Access;

use super::descriptor::{Descriptor, Use};
use crate::copied::Copied;
use crate::ends::{Facts, Pending, Sink, Source};
use crate::error::{Error, Result};
use crate::ring::{BlockRing, Filled};
use crate::wait::Wait;

/// Bytes read or written before the other end gets its turn.
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
    /// Data that has been read is returned first, then the error, if any.
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

/// Writes blocks to a pipe, a FIFO, a socket or a character device: write(2), never blocking.
///
/// A pipe gets whole frames only, even if this process is killed, if frames have at most 4096
/// bytes; so does a Unix socket up to 32 KiB. If the reader closes, the stream ends with `EPIPE`:
/// ignore `SIGPIPE`, as Rust programs do by default.
#[derive(Debug)]
pub struct FdSink {
    to: Descriptor,
    piece: u64,
    frame: u64,
    blocks: Copied,
    /// The error is reported after the data that was written before it.
    error: Option<Error>,
}

impl FdSink {
    /// Takes ownership of the descriptor. Error messages call it `name`; `frame` is the size of a
    /// frame in bytes. A pipe gets an open file description of its own, so that the flags of the
    /// given one do not change; a socket becomes non-blocking.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`] if it cannot be used.
    pub fn new(fd: impl Into<OwnedFd>, name: impl Into<String>, frame: u64) -> Result<Self> {
        let (blocks, frame) = (Copied::new(name, Access::Read), frame.max(1));
        let to = Descriptor::new(&blocks.name, fd.into(), Use::Write)?;
        Ok(Self { piece: to.piece(frame), to, frame, blocks, error: None })
    }

    /// Writes until the first block is written, at most for a turn.
    fn write(&mut self) -> Result<Option<Filled>> {
        let begin = self.blocks.done();
        while self.blocks.done() - begin < TURN {
            let write = |from: &_, at, bytes| self.to.write(from, at, bytes);
            if self.blocks.copy("write", self.piece, write)?.is_none_or(|written| written == 0) {
                break;
            }
            let written = self.blocks.take()?;
            if written.is_some() {
                return Ok(written);
            }
        }
        Ok(None)
    }
}

impl Sink for FdSink {
    fn facts(&self) -> Facts {
        Facts::new(self.to.how())
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, _: Option<u64>) -> Result<()> {
        self.blocks.attach(ring)
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        self.blocks.attach_more(block)
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        self.blocks.queue(filled).map(|()| false)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let error = match self.write() {
            Err(error) => error,
            written => return written,
        };
        // The written part of the block counts; later blocks are not written.
        let some = self.blocks.take_last(self.frame)?;
        if some.is_none() {
            return Err(error);
        }
        self.error = Some(error);
        Ok(some)
    }

    fn pending(&self) -> Pending<'_> {
        let blocks = self.blocks.len();
        Pending { blocks, ready: (blocks > 0).then(|| Wait::writable(self.to.as_fd())) }
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.to.end();
        Ok(())
    }
}
