// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies blocks to a pipe, a Unix socket or another descriptor.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use dmabuf_dio::lend::Access;

use super::descriptor::{Descriptor, Use};
use crate::copied::Copied;
use crate::ends::{Facts, Pending, Sink};
use crate::error::{Error, Result};
use crate::ring::{BlockRing, Filled};
use crate::wait::Wait;

/// Bytes written before the source gets its turn.
const TURN: u64 = 1 << 20;

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
    /// Reported once what was written before has been.
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
