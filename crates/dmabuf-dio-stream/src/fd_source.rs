// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies what arrives from a pipe, a socket or another descriptor into blocks.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use dmabuf_dio::CancelToken;
use dmabuf_dio::lend::{Access, Mapping};
use rustix::event::Timespec;

use crate::descriptor::{Descriptor, Use};
use crate::error::{Error, Result};
use crate::framing::{Ending, Expected, Inbound, PRELUDE, prelude};
use crate::gaps::Gap;
use crate::ring::{Claim, Ring};
use crate::wait::{TICK, Wait};
use crate::{Filled, Source, attached, failed};

/// Bytes read before the sink gets its turn.
const TURN: u64 = 1 << 20;

/// Reads blocks from a pipe, a FIFO, a socket or a character device: read(2) into the block, never
/// blocking. It ends when the other end closes.
///
/// With framing, the stream's [`Summary`](crate::Summary) contains the sender's gaps, and whether
/// the sender sent everything that was requested of it.
#[derive(Debug)]
pub struct FdSource {
    from: Descriptor,
    frame: u64,
    framing: Option<Inbound>,
    /// What has arrived of a record.
    record: Vec<u8>,
    ring: Option<Arc<Ring>>,
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
            framing: None,
            record: Vec::new(),
            ring: None,
            mappings: Vec::new(),
            queued: VecDeque::new(),
            done: 0,
            state: State::Running,
        })
    }

    /// Receives from [`FdSink::framed`](crate::FdSink::framed) or
    /// [`SocketSink::framed`](crate::SocketSink::framed), and returns the description of the samples,
    /// too. Blocks until that has arrived; `None` if `cancel` was cancelled before.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new); [`Error::NotFramed`]; [`Error::Sender`] if the sender closed before.
    pub fn framed(
        fd: impl Into<OwnedFd>,
        name: impl Into<String>,
        cancel: &CancelToken,
    ) -> Result<Option<(Self, String)>> {
        let mut source = Self::new(fd, name, 1)?;
        let mut start = [0; PRELUDE];
        if !source.read_exact(&mut start, cancel)? {
            return Ok(None);
        }
        let (frame, length) = prelude(&source.from.name, &start)?;
        let mut description = vec![0; length];
        if !source.read_exact(&mut description, cancel)? {
            return Ok(None);
        }
        source.frame = frame;
        source.framing = Some(Inbound::new(&source.from.name, frame));
        Ok(Some((source, String::from_utf8_lossy(&description).into_owned())))
    }

    /// Reads all of it. `false`: cancelled before.
    fn read_exact(&self, bytes: &mut [u8], cancel: &CancelToken) -> Result<bool> {
        let failed = |what: &str, errno| failed(&self.from.name, what, errno);
        let mut done = 0;
        while done < bytes.len() {
            match self.from.read_bytes(&mut bytes[done..]) {
                Ok(Some(0)) => return Err(self.early("before its first sample")),
                Ok(Some(read)) => done += read as usize,
                Ok(None) => {
                    let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
                    self.from.poll(tick).map_err(|errno| failed("poll", errno))?;
                }
                Err(errno) => return Err(failed("read", errno)),
            }
            if cancel.is_cancelled() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn early(&self, place: &str) -> Error {
        let reason = format!("the connection was closed {place}");
        Error::Sender { name: self.from.name.clone(), reason }
    }

    /// What the end of the data means.
    fn closed(&self) -> Option<Error> {
        match &self.framing {
            Some(Inbound { ending: Some(Ending { complete: true, .. }), .. }) => None,
            Some(Inbound { ending: Some(ending), .. }) => {
                let reason = ending.error.clone();
                let reason =
                    reason.unwrap_or_else(|| "it sent less than was requested of it".into());
                Some(Error::Sender { name: self.from.name.clone(), reason })
            }
            Some(_) => Some(self.early("before the stream's end")),
            None if self.done % self.frame > 0 => Some(Error::CutStream {
                name: self.from.name.clone(),
                excess: self.done % self.frame,
                frame: self.frame,
            }),
            None => None,
        }
    }

    /// Reads something into the first block, or a record. `false`: there is nothing at the moment, or
    /// any more.
    fn read_some(&mut self, claim: Claim) -> Result<bool> {
        let mut space = claim.bytes() - self.done;
        if let Some(framing) = &mut self.framing {
            match framing.expected {
                Expected::Data(left) => space = space.min(left),
                Expected::Nothing => {
                    self.state = State::Ending(self.closed());
                    return Ok(false);
                }
                _ => return self.read_record(),
            }
        }
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
                if let Some(framing) = &mut self.framing {
                    framing.moved(bytes);
                }
                Ok(true)
            }
        }
    }

    fn read_record(&mut self) -> Result<bool> {
        let Some(framing) = &mut self.framing else { return Ok(false) };
        let (have, wanted) = (self.record.len(), framing.wanted());
        self.record.resize(wanted, 0);
        let read = self.from.read_bytes(&mut self.record[have..]);
        self.record.truncate(have + read.as_ref().map_or(0, |read| read.unwrap_or(0)) as usize);
        match read.map_err(|errno| failed(&self.from.name, "read", errno))? {
            None => Ok(false),
            Some(0) => {
                self.state = State::Ending(self.closed());
                Ok(false)
            }
            Some(_) => {
                if self.record.len() == wanted {
                    framing.collected(&std::mem::take(&mut self.record))?;
                }
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

    fn attach(&mut self, ring: &Arc<Ring>) -> Result<()> {
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

    fn gaps(&self) -> &[Gap] {
        self.framing.as_ref().map_or(&[], |framing| &framing.gaps)
    }

    fn tells_losses(&self) -> bool {
        let ending = self.framing.as_ref().and_then(|framing| framing.ending.as_ref());
        ending.is_none_or(|ending| ending.loss_known)
    }

    /// Whole frames that have arrived are kept.
    fn stop(&mut self) -> Result<()> {
        if matches!(self.state, State::Running) {
            self.state = State::Ending(None);
        }
        Ok(())
    }
}
