// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks in transfer to or from a file, whichever way.

use std::collections::VecDeque;
use std::sync::Arc;

use dmabuf_dio::Errno;

use super::lent::{Lent, Queued, lend};
use super::worker::Worker;
use crate::error::{Result, failed};
use crate::ring::{BlockRing, Claim, Filled, attached};
use crate::wait::Wait;
use dmabuf_dio::Direction;
use dmabuf_dio::lend::{Access, File};
use dmabuf_dio::{Backend, OneByOne, Refusal};

/// Blocks ahead for which the limit on a file's length is checked.
const AHEAD: u64 = 64;

/// Blocks in transfer to or from a file.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) file: Arc<File>,
    pub(super) direction: Direction,
    pub(super) ring: Option<Arc<BlockRing>>,
    pub(super) how: Option<Method>,
    pub(super) queue: VecDeque<Queued>,
    /// Where the data begin in the file.
    pub(super) start: u64,
    /// End in the file of what was queued.
    pub(super) queued: u64,
    /// End in the file of what was taken.
    pub(super) taken: u64,
    /// The file may get as long as this, in bytes.
    pub(super) allowed: u64,
}

#[derive(Debug)]
pub(super) enum Method {
    Lent(Box<Lent>),
    /// With the reason why nothing could be lent.
    OneByOne(Worker, Arc<OneByOne>, Refusal),
}

impl Blocks {
    pub(super) fn new(file: File, direction: Direction, start: u64) -> Self {
        let (file, queue) = (Arc::new(file), VecDeque::new());
        let (ring, how, queued, taken) = (None, None, start, start);
        Self { file, direction, ring, how, queue, start, queued, taken, allowed: 0 }
    }

    pub(super) fn name(&self) -> String {
        self.file.path().display().to_string()
    }

    /// The CPU access that matches the transfer. The old content of a block being filled is not
    /// needed, so it need not be brought back.
    pub(super) fn access(&self) -> Access {
        match self.direction {
            Direction::Load => Access::Write,
            Direction::Save => Access::Read,
        }
    }

    pub(super) fn how(&self) -> String {
        match &self.how {
            None => "a file".into(),
            Some(Method::Lent(lent)) => lent.how(),
            Some(Method::OneByOne(_, one_by_one, why)) => how(one_by_one.backend(), why),
        }
    }

    pub(super) fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        self.queue.clear();
        self.how = Some(match lend(ring, self.direction, self.file.fd()) {
            Ok(lent) => {
                let lent = Lent::new(lent, ring, &self.file, self.direction, self.start)?;
                Method::Lent(Box::new(lent))
            }
            Err(error) => {
                let one_by_one = Arc::new(OneByOne::new(Arc::clone(&self.file), self.direction));
                let (by_thread, blocks) = (Arc::clone(&one_by_one), Arc::clone(ring));
                let mut offset = self.start;
                let work = move |claim: Claim| {
                    by_thread.transfer(blocks.block(claim.block()), claim.bytes(), offset)?;
                    offset += claim.bytes();
                    Ok(())
                };
                let worker = Worker::start(work)
                    .map_err(|errno| failed(&self.name(), "start a thread", errno))?;
                Method::OneByOne(worker, one_by_one, error.into())
            }
        });
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    /// Lends a block that was added to the ring since.
    pub(super) fn attach_more(&mut self, block: usize) -> bool {
        let Some(ring) = &self.ring else { return false };
        match &mut self.how {
            None => false,
            Some(Method::Lent(lent)) => lent.ring.lend(ring.block(block), self.direction).is_ok(),
            Some(Method::OneByOne(..)) => true,
        }
    }

    pub(super) fn queue(&mut self, filled: Filled) -> Result<()> {
        let access = self.access();
        let ring = attached(self.ring.as_ref(), &self.name())?;
        let claim = ring.claim(filled)?;
        let end = self.queued + filled.bytes;
        if self.direction == Direction::Save && end > self.allowed {
            let ahead = end + AHEAD * filled.bytes;
            self.allowed = if self.file.check_size(ahead).is_ok() { ahead } else { end };
            let fits = self.file.check_size(self.allowed);
            fits.map_err(|errno| failed(&self.name(), "write", errno))?;
        }
        let mut part = Queued { claim, offset: self.queued, done: 0, direct: false };
        match &mut self.how {
            None => {}
            Some(Method::OneByOne(worker, ..)) => worker.queue(claim),
            Some(Method::Lent(lent)) => {
                ring.block(claim.block()).begin_cpu_access(access)?;
                if self.direction == Direction::Load {
                    lent.read(&mut part)?;
                }
            }
        }
        self.queued += filled.bytes;
        self.queue.push_back(part);
        self.write()
    }

    /// Writes what is queued, if no write is in flight.
    pub(super) fn write(&mut self) -> Result<()> {
        match (&mut self.how, self.direction) {
            (Some(Method::Lent(lent)), Direction::Save) => lent.write(&mut self.queue),
            _ => Ok(()),
        }
    }

    pub(super) fn take(&mut self) -> Result<Option<Filled>> {
        let access = self.access();
        match &mut self.how {
            None => return Ok(None),
            Some(Method::OneByOne(worker, ..)) => match worker.take() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) => {
                    // The blocks behind the failed one are neither written nor read.
                    self.queue.clear();
                    return Err(error);
                }
            },
            Some(Method::Lent(lent)) => {
                while let Some(completion) = lent.ring.complete() {
                    let offset = completion.user_data();
                    let mut parts = self.queue.iter_mut().skip_while(|part| part.offset != offset);
                    if self.direction == Direction::Save {
                        lent.completed(completion, parts, ("write", Errno::NOSPC))?;
                        continue;
                    }
                    let Some(part) = parts.next() else { continue };
                    let one = std::iter::once(&mut *part);
                    lent.completed(completion, one, ("read all", Errno::NODATA))?;
                    if !part.is_done() {
                        lent.read(part)?;
                    }
                }
                self.write()?;
                if !self.queue.front().is_some_and(Queued::is_done) {
                    return Ok(None);
                }
            }
        }
        let Some(Queued { claim, .. }) = self.queue.pop_front() else { return Ok(None) };
        let filled = claim.filled();
        if let Some(Method::Lent(lent)) = &self.how {
            lent.blocks.block(filled.block).end_cpu_access(access)?;
        }
        self.taken += filled.bytes;
        Ok(Some(filled))
    }

    /// Writes what was held back.
    pub(super) fn flush(&mut self) -> Result<()> {
        if let Some(Method::Lent(lent)) = &mut self.how {
            lent.hurries = true;
        }
        self.write()
    }

    pub(super) fn ready(&self) -> Option<Wait<'_>> {
        match self.how.as_ref()? {
            Method::Lent(lent) => lent.ready(),
            Method::OneByOne(worker, ..) => worker.ready(),
        }
    }

    /// Waits for the requests in flight and drops what is queued.
    pub(super) fn stop(&mut self) {
        match &mut self.how {
            None => {}
            Some(Method::Lent(lent)) => lent.settle(),
            Some(Method::OneByOne(worker, ..)) => worker.stop(),
        }
        self.queue.clear();
    }
}

/// How blocks are transferred one by one.
fn how(backend: Option<Backend>, why: &Refusal) -> String {
    match backend {
        Some(Backend::Buffered) => format!("copied by the CPU: {}", why.reason),
        Some(backend) => format!("{backend}, a block at a time: {}", why.reason),
        None => "a file".into(),
    }
}
