// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies blocks to a pipe, a Unix socket or another descriptor.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use dmabuf_dio::lend::{Access, Mapping};

use super::descriptor::{Descriptor, Use};
use crate::ends::Sink;
use crate::error::{Error, Result, failed};
use crate::ring::{BlockRing, Claim, Filled, attached};
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
    ring: Option<Arc<BlockRing>>,
    mappings: Vec<Mapping>,
    queued: VecDeque<Claim>,
    /// Bytes written of the first block.
    done: u64,
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
        let (to, frame) = (Descriptor::new(&name.into(), fd.into(), Use::Write)?, frame.max(1));
        Ok(Self {
            piece: to.piece(frame),
            to,
            frame,
            ring: None,
            mappings: Vec::new(),
            queued: VecDeque::new(),
            done: 0,
            error: None,
        })
    }

    /// Writes some of the first block. `false`: nothing is accepted at the moment.
    fn write_some(&mut self, claim: Claim) -> Result<bool> {
        let ring = attached(self.ring.as_ref(), &self.to.name)?;
        let block = ring.block(claim.block());
        if self.done == 0 {
            block.begin_cpu_access(Access::Read)?;
        }
        let bytes = (claim.bytes() - self.done).min(self.piece);
        let written = self.to.write(&self.mappings[claim.block()], self.done, bytes);
        self.done += *written.as_ref().unwrap_or(&0);
        if self.done == 0 || self.done == claim.bytes() || written.is_err() {
            block.end_cpu_access(Access::Read)?;
        }
        let written = written.map_err(|errno| failed(&self.to.name, "write", errno))?;
        Ok(written > 0)
    }

    /// Removes the first block, all of which or whole frames of which are written.
    fn finished(&mut self) -> Option<Filled> {
        let claim = self.queued.pop_front()?;
        let done = std::mem::take(&mut self.done);
        let bytes = done / self.frame * self.frame;
        (bytes > 0).then(|| claim.first(bytes).filled())
    }
}

impl Sink for FdSink {
    fn how(&self) -> String {
        self.to.how().into()
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, _: Option<u64>) -> Result<()> {
        let mappings: Result<Vec<_>> =
            ring.blocks().iter().map(|block| Ok(block.mapping(false)?)).collect();
        self.mappings = mappings?;
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        let Some(ring) = &self.ring else { return Ok(false) };
        if block == self.mappings.len() {
            self.mappings.push(ring.block(block).mapping(false)?);
        }
        Ok(block < self.mappings.len())
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        let claim = attached(self.ring.as_ref(), &self.to.name)?.claim(filled)?;
        self.queued.push_back(claim);
        Ok(false)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let begin = self.done;
        while let Some(&claim) = self.queued.front() {
            match self.write_some(claim) {
                Ok(_) if self.done == claim.bytes() => return Ok(self.finished()),
                Ok(true) if self.done - begin < TURN => {}
                Ok(_) => return Ok(None),
                Err(error) => {
                    // The written part of the block counts; later blocks are not written.
                    let some = self.finished();
                    self.queued.clear();
                    if some.is_none() {
                        return Err(error);
                    }
                    self.error = Some(error);
                    return Ok(some);
                }
            }
        }
        Ok(None)
    }

    fn ready(&self) -> Option<Wait<'_>> {
        (!self.queued.is_empty()).then(|| Wait::writable(self.to.as_fd()))
    }

    fn queued(&self) -> usize {
        self.queued.len()
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.to.end();
        Ok(())
    }
}
