// SPDX-License-Identifier: MIT OR Apache-2.0
//! `read()` and `write()` on a device that takes no dma-bufs: the CPU copies every byte.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dmabuf_dio_sys::dmabuf::Access;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno as Os;

use super::ring::Ring;
use super::{Filled, failed};
use crate::error::Result;
use crate::memory::Mapping;

/// Blocks in user space, copied from or to a descriptor.
#[derive(Debug)]
pub(super) struct Fileio {
    name: String,
    why: Os,
    /// Non-blocking.
    fd: OwnedFd,
    ring: Arc<Ring>,
    mappings: Vec<Mapping>,
    queued: VecDeque<Filled>,
    /// Bytes of the first block that were copied.
    done: u64,
}

impl Fileio {
    pub(super) fn new(name: &str, fd: BorrowedFd<'_>, ring: &Arc<Ring>, why: Os) -> Result<Self> {
        let call = |what, errno| failed(name, what, errno);
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 3)
            .map_err(|errno| call("duplicate its descriptor", errno))?;
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|errno| call("read flags", errno))?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)
            .map_err(|errno| call("set flags", errno))?;
        let mappings: Result<Vec<_>> = ring
            .blocks()
            .iter()
            .map(|block| Mapping::new(block.as_fd(), block.len(), true))
            .collect();
        Ok(Self {
            name: name.into(),
            why,
            fd,
            ring: Arc::clone(ring),
            mappings: mappings?,
            queued: VecDeque::new(),
            done: 0,
        })
    }

    pub(super) fn how(&self) -> String {
        let name = &self.name;
        let why = crate::Errno::from(self.why);
        format!("IIO, copied by the CPU: {name} takes no dma-bufs ({why})")
    }

    pub(super) fn queue(&mut self, filled: Filled) {
        self.queued.push_back(filled);
    }

    pub(super) fn len(&self) -> usize {
        self.queued.len()
    }

    pub(super) fn ready(&self) -> Option<PollFd<'_>> {
        self.queued.front()?;
        Some(PollFd::new(&self.fd, PollFlags::IN | PollFlags::OUT))
    }

    /// Reads into the first block what there is. Returns the block if it is full then.
    pub(super) fn read(&mut self) -> Result<Option<Filled>> {
        self.copy("read", Access::Write, |fd, bytes| rustix::io::read(fd, bytes))
    }

    /// Writes of the first block what there is room for. Returns the block if that was all.
    pub(super) fn write(&mut self) -> Result<Option<Filled>> {
        self.copy("write", Access::Read, |fd, bytes| rustix::io::write(fd, bytes))
    }

    /// After the device has stopped: keeps of the first block the frames that were read, and
    /// forgets the others.
    pub(super) fn keep_read(&mut self, frame: u64) {
        let bytes = self.done / frame * frame;
        self.queued.truncate(usize::from(bytes > 0));
        if let Some(first) = self.queued.front_mut() {
            first.bytes = bytes;
            self.done = bytes;
        }
    }

    fn copy(
        &mut self,
        call: &str,
        access: Access,
        some: impl Fn(BorrowedFd<'_>, &mut [u8]) -> rustix::io::Result<usize>,
    ) -> Result<Option<Filled>> {
        let Some(&filled) = self.queued.front() else { return Ok(None) };
        if self.done == filled.bytes {
            // What was read until the device was stopped.
            self.done = 0;
            return Ok(self.queued.pop_front());
        }
        let left = (filled.bytes - self.done) as usize;
        let block = self.ring.block(filled.block);
        block.begin(access)?;
        // SAFETY: the block is queued here and so nobody else's in this process; `bytes` is at
        // most its length, and the mapping is as long.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(self.mappings[filled.block].at(self.done), left)
        };
        let result = some(self.fd.as_fd(), bytes);
        block.end(access)?;
        match result {
            Ok(0) => Err(failed(&self.name, call, Os::NODEV)),
            Ok(moved) => {
                self.done += moved as u64;
                if self.done < filled.bytes {
                    return Ok(None);
                }
                self.done = 0;
                Ok(self.queued.pop_front())
            }
            Err(Os::AGAIN | Os::INTR) => Ok(None),
            Err(errno) => Err(failed(&self.name, call, errno)),
        }
    }
}
