// SPDX-License-Identifier: MIT OR Apache-2.0
//! `read()` and `write()` on a device that does not support dma-bufs: the CPU copies every byte.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::error::{Result, failed, from_os};
use crate::ring::{BlockRing, Claim, Filled};
use crate::wait::Wait;
use dmabuf_dio::Errno;
use dmabuf_dio::lend::{Access, Mapping};

/// Blocks in user space, copied from or to a descriptor.
#[derive(Debug)]
pub(super) struct Fileio {
    name: String,
    why: Errno,
    /// Non-blocking.
    fd: OwnedFd,
    ring: Arc<BlockRing>,
    mappings: Vec<Mapping>,
    queued: VecDeque<Claim>,
    /// Bytes copied of the first block.
    done: u64,
    /// No write goes beyond a multiple of this, and how many bytes have been moved. A write that
    /// must continue in another of the kernel's buffers may fail although it has written a part: if
    /// a signal or a completion of an `io_uring` arrives meanwhile, `iio_buffer_write()` (7.3)
    /// returns `ERESTARTSYS` and the samples are written again.
    whole: u64,
    written: u64,
}

impl Fileio {
    /// `whole`: a write that ends at or before a multiple of this writes everything or nothing.
    pub(super) fn new(
        name: &str,
        fd: BorrowedFd<'_>,
        ring: &Arc<BlockRing>,
        why: Errno,
        whole: u64,
    ) -> Result<Self> {
        let call = |what, errno| failed(name, what, from_os(errno));
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 3)
            .map_err(|errno| call("duplicate its descriptor", errno))?;
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|errno| call("read flags", errno))?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)
            .map_err(|errno| call("set flags", errno))?;
        let mappings: Result<Vec<_>> =
            ring.blocks().iter().map(|block| Ok(block.mapping(true)?)).collect();
        Ok(Self {
            name: name.into(),
            why,
            fd,
            ring: Arc::clone(ring),
            mappings: mappings?,
            queued: VecDeque::new(),
            done: 0,
            whole,
            written: 0,
        })
    }

    pub(super) fn how(&self) -> String {
        let name = &self.name;
        let why = self.why;
        format!("IIO, copied by the CPU: {name} does not support dma-bufs ({why})")
    }

    /// Maps a block that was added to the ring since.
    pub(super) fn attach_more(&mut self, block: usize) -> Result<bool> {
        if block == self.mappings.len() {
            self.mappings.push(self.ring.block(block).mapping(true)?);
        }
        Ok(block < self.mappings.len())
    }

    pub(super) fn queue(&mut self, filled: Filled) -> Result<()> {
        self.queued.push_back(self.ring.claim(filled)?);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.queued.len()
    }

    pub(super) fn ready(&self) -> Option<Wait<'_>> {
        self.queued.front()?;
        Some(Wait::ready(self.fd.as_fd()))
    }

    /// Reads available data into the first block. Returns the block once it is full.
    pub(super) fn read(&mut self) -> Result<Option<Filled>> {
        self.copy("read", Access::Write, u64::MAX, Mapping::receive)
    }

    /// Writes as much of the first block as the device accepts. Returns the block once all is
    /// written.
    pub(super) fn write(&mut self) -> Result<Option<Filled>> {
        loop {
            let (before, most) = (self.done, self.whole - self.written % self.whole);
            let taken = self.copy("write", Access::Read, most, Mapping::give)?;
            if taken.is_some() || self.done == before {
                return Ok(taken);
            }
        }
    }

    /// After the device has stopped: keeps the whole frames in the first block and drops the other
    /// blocks.
    pub(super) fn keep_read(&mut self, frame: u64) {
        let bytes = self.done / frame * frame;
        self.queued.truncate(usize::from(bytes > 0));
        if let Some(first) = self.queued.front_mut() {
            *first = first.first(bytes);
            self.done = bytes;
        }
    }

    fn copy(
        &mut self,
        call: &str,
        access: Access,
        most: u64,
        some: impl Fn(&Mapping, u64, u64, BorrowedFd<'_>) -> Result<u64, Errno>,
    ) -> Result<Option<Filled>> {
        let Some(&claim) = self.queued.front() else { return Ok(None) };
        if self.done == claim.bytes() {
            // What was read until the device stopped.
            self.done = 0;
            return Ok(self.queued.pop_front().map(Claim::filled));
        }
        // The claim is in the block, and the whole block is mapped.
        let left = (claim.bytes() - self.done).min(most);
        let mapping = &self.mappings[claim.block()];
        let block = self.ring.block(claim.block());
        block.begin_cpu_access(access)?;
        let result = some(mapping, self.done, left, self.fd.as_fd());
        block.end_cpu_access(access)?;
        match result {
            Ok(0) => Err(failed(&self.name, call, Errno::NODEV)),
            Ok(moved) => {
                self.done += moved;
                self.written += moved;
                if self.done < claim.bytes() {
                    return Ok(None);
                }
                self.done = 0;
                Ok(self.queued.pop_front().map(Claim::filled))
            }
            Err(errno) if is_for_now(errno) => Ok(None),
            Err(errno) => Err(failed(&self.name, call, errno)),
        }
    }
}

fn is_for_now(errno: Errno) -> bool {
    matches!(errno.raw(), libc::EAGAIN | libc::EINTR)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;
    use dmabuf_dio::Error;

    use crate::Error as StreamError;

    /// More than any test writes.
    const WHOLE: u64 = 1 << 40;

    /// A device that is one end of a socket pair, and the other end.
    fn device(ring: &Arc<BlockRing>) -> (Fileio, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let device =
            Fileio::new("device", ours.as_fd(), ring, Errno::NOTTY, WHOLE).expect("a device");
        (device, theirs)
    }

    #[test]
    fn read_beyond_a_block_is_refused() {
        let ring = Arc::new(BlockRing::of_memfds(2, 4096));
        let (mut source, mut device) = device(&ring);
        for bytes in [4097, 1 << 20, u64::MAX] {
            let result = source.queue(Filled { block: 0, bytes });
            assert!(
                matches!(result, Err(StreamError::Transfer(Error::RangeBeyondBuffer { .. }))),
                "{result:?}"
            );
        }
        assert!(matches!(
            source.queue(Filled { block: 2, bytes: 1 }),
            Err(StreamError::Transfer(Error::Setting { .. }))
        ));
        assert_eq!(source.len(), 0, "nothing is queued");
        device.write_all(&[7; 10_000]).expect("samples");
        assert_eq!(source.read().expect("nothing to do"), None);
        let filled = Filled { block: 0, bytes: 4096 };
        source.queue(filled).expect("queued");
        assert_eq!(source.read().expect("read"), Some(filled));
        let all = |block| ring.block(block).map().expect("a view").to_vec().expect("all");
        let (read, behind) = (&all(0)[..4096], &all(0)[4096..]);
        assert!(read.iter().all(|byte| *byte == 7) && behind.iter().all(|byte| *byte == 0));
        assert!(all(1).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn write_beyond_a_block_is_refused() {
        let ring = Arc::new(BlockRing::of_memfds(1, 4096));
        let (mut sink, mut device) = device(&ring);
        assert!(sink.queue(Filled { block: 0, bytes: 4097 }).is_err());
        let filled = Filled { block: 0, bytes: 100 };
        sink.queue(filled).expect("queued");
        assert_eq!(sink.write().expect("written"), Some(filled));
        drop(sink);
        let mut bytes = Vec::new();
        device.read_to_end(&mut bytes).expect("all of it");
        assert_eq!(bytes, [0; 100]);
    }

    /// A write that the kernel has to divide may be repeated from its start.
    #[test]
    fn writes_fit_the_buffer_of_the_kernel() {
        use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty());
        let (ours, device) = socketpair(kind.0, kind.1, kind.2, None).expect("a pair");
        let ring = Arc::new(BlockRing::of_memfds(2, 4096));
        let mut sink =
            Fileio::new("device", ours.as_fd(), &ring, Errno::NOTTY, 1000).expect("a sink");
        for (block, bytes) in [(0, 4096), (1, 96), (0, 1808)] {
            sink.queue(Filled { block, bytes }).expect("queued");
            assert_eq!(sink.write().expect("written"), Some(Filled { block, bytes }));
        }
        drop((sink, ours));
        let mut at = 0;
        let mut piece = [0; 8192];
        loop {
            let (_, got) = recv(&device, &mut piece[..], RecvFlags::empty()).expect("received");
            if got == 0 {
                break;
            }
            assert!(at / 1000 == (at + got - 1) / 1000, "{got} bytes at {at} in one write");
            at += got;
        }
        assert_eq!(at, 6000);
    }

    #[test]
    fn partial_block_keeps_its_whole_frames() {
        let ring = Arc::new(BlockRing::of_memfds(2, 4096));
        let (mut source, mut device) = device(&ring);
        for block in 0..2 {
            source.queue(Filled { block, bytes: 4096 }).expect("queued");
        }
        device.write_all(&[7; 21]).expect("samples");
        assert_eq!(source.read().expect("read"), None);
        source.keep_read(8);
        assert_eq!(source.read().expect("kept"), Some(Filled { block: 0, bytes: 16 }));
        assert_eq!((source.len(), source.read().expect("nothing")), (0, None));
    }
}
