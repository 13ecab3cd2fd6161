// SPDX-License-Identifier: MIT OR Apache-2.0
//! `read()` and `write()` on a device that does not support dma-bufs: the CPU copies every byte.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dmabuf_dio::Errno;
use dmabuf_dio::lend::Access;
use rustix::fs::OFlags;

use crate::copied::Copied;
use crate::ends::Pending;
use crate::error::{Result, failed, from_os};
use crate::ring::{BlockRing, Filled};
use crate::wait::Wait;

/// Blocks in user space, copied from or to a descriptor.
#[derive(Debug)]
pub(super) struct Fileio {
    why: Errno,
    /// Non-blocking.
    fd: OwnedFd,
    blocks: Copied,
    /// The part of a block that was read until the device stopped.
    last: Option<Filled>,
    /// Writes do not cross multiples of this. A write that must continue in another of the kernel's
    /// buffers may fail although it has written a part: if a signal or a completion of an `io_uring`
    /// arrives meanwhile, `iio_buffer_write()` (7.3) returns `ERESTARTSYS` and the samples are written
    /// again. `None`: the device is read.
    whole: Option<u64>,
    /// Bytes written.
    written: u64,
}

impl Fileio {
    /// `whole`: a write that ends at or before a multiple of this writes everything or nothing. `None`:
    /// the device is read.
    pub(super) fn new(
        name: &str,
        fd: BorrowedFd<'_>,
        ring: &Arc<BlockRing>,
        why: Errno,
        whole: Option<u64>,
    ) -> Result<Self> {
        let call = |what, errno| failed(name, what, from_os(errno));
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 3)
            .map_err(|errno| call("duplicate its descriptor", errno))?;
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|errno| call("read flags", errno))?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)
            .map_err(|errno| call("set flags", errno))?;
        let access = if whole.is_some() { Access::Read } else { Access::Write };
        let mut blocks = Copied::new(name, access);
        blocks.attach(ring)?;
        Ok(Self { why, fd, blocks, last: None, whole, written: 0 })
    }

    pub(super) fn how(&self) -> String {
        let (name, why) = (&self.blocks.name, self.why);
        format!("IIO, copied by the CPU: {name} does not support dma-bufs ({why})")
    }

    /// Maps a block that was added to the ring since.
    pub(super) fn attach_more(&mut self, block: usize) -> Result<bool> {
        self.blocks.attach_more(block)
    }

    pub(super) fn queue(&mut self, filled: Filled) -> Result<()> {
        self.blocks.queue(filled)
    }

    pub(super) fn pending(&self) -> Pending<'_> {
        let blocks = self.blocks.len() + usize::from(self.last.is_some());
        Pending { blocks, ready: (blocks > 0).then(|| Wait::ready(self.fd.as_fd())) }
    }

    /// Copies without waiting: reads once, or writes until the device accepts no more. Returns the
    /// first block once all of it is copied.
    pub(super) fn take(&mut self) -> Result<Option<Filled>> {
        if let Some(last) = self.last.take() {
            return Ok(Some(last));
        }
        loop {
            let fd = self.fd.as_fd();
            let copied = match self.whole {
                None => self.blocks.copy("read", u64::MAX, |to, at, len| to.receive(at, len, fd)),
                Some(whole) => {
                    let most = whole - self.written % whole;
                    self.blocks.copy("write", most, |from, at, len| from.give(at, len, fd))
                }
            };
            match copied? {
                None => return Ok(None),
                Some(0) => {
                    let call = if self.whole.is_some() { "write" } else { "read" };
                    return Err(failed(&self.blocks.name, call, Errno::NODEV));
                }
                Some(copied) => self.written += copied,
            }
            let taken = self.blocks.take()?;
            if taken.is_some() || self.whole.is_none() {
                return Ok(taken);
            }
        }
    }

    /// After the device has stopped: keeps the whole frames in the first block and drops the other
    /// blocks.
    pub(super) fn keep_read(&mut self, frame: u64) -> Result<()> {
        self.last = self.blocks.take_last(frame)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;
    use dmabuf_dio::Error;

    use crate::Error as StreamError;

    /// A device that is one end of a socket pair, and the other end.
    fn device(ring: &Arc<BlockRing>, whole: Option<u64>) -> (Fileio, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let device =
            Fileio::new("device", ours.as_fd(), ring, Errno::NOTTY, whole).expect("a device");
        (device, theirs)
    }

    #[test]
    fn read_beyond_a_block_is_refused() {
        let ring = Arc::new(BlockRing::of_memfds(2, 4096));
        let (mut source, mut device) = device(&ring, None);
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
        assert_eq!(source.pending().blocks, 0, "nothing is queued");
        device.write_all(&[7; 10_000]).expect("samples");
        assert_eq!(source.take().expect("nothing to do"), None);
        let filled = Filled { block: 0, bytes: 4096 };
        source.queue(filled).expect("queued");
        assert_eq!(source.take().expect("read"), Some(filled));
        let all = |block| ring.block(block).map().expect("a view").to_vec().expect("all");
        let (read, behind) = (&all(0)[..4096], &all(0)[4096..]);
        assert!(read.iter().all(|byte| *byte == 7) && behind.iter().all(|byte| *byte == 0));
        assert!(all(1).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn write_beyond_a_block_is_refused() {
        let ring = Arc::new(BlockRing::of_memfds(1, 4096));
        let (mut sink, mut device) = device(&ring, Some(1 << 40));
        assert!(sink.queue(Filled { block: 0, bytes: 4097 }).is_err());
        let filled = Filled { block: 0, bytes: 100 };
        sink.queue(filled).expect("queued");
        assert_eq!(sink.take().expect("written"), Some(filled));
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
            Fileio::new("device", ours.as_fd(), &ring, Errno::NOTTY, Some(1000)).expect("a sink");
        for (block, bytes) in [(0, 4096), (1, 96), (0, 1808)] {
            sink.queue(Filled { block, bytes }).expect("queued");
            assert_eq!(sink.take().expect("written"), Some(Filled { block, bytes }));
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
        let (mut source, mut device) = device(&ring, None);
        for block in 0..2 {
            source.queue(Filled { block, bytes: 4096 }).expect("queued");
        }
        device.write_all(&[7; 21]).expect("samples");
        assert_eq!(source.take().expect("read"), None);
        source.keep_read(8).expect("kept");
        assert_eq!(source.take().expect("kept"), Some(Filled { block: 0, bytes: 16 }));
        assert_eq!((source.pending().blocks, source.take().expect("nothing")), (0, None));
    }
}
