// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that are queued on a device as dma-bufs, and whose completion a fence signals.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dmabuf_dio::Errno;
use dmabuf_dio_sys::dmabuf::{self, Access};
use dmabuf_dio_sys::sync_file;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as Os;

use crate::error::Result;
use crate::ring::{Claim, Ring};
use crate::wait::Wait;
use crate::{Filled, attached, failed};

/// A consumer or producer of dma-bufs: a buffer of an IIO device, or an endpoint of a USB function.
pub(super) trait Port {
    /// The name in error messages.
    fn name(&self) -> &str;
    fn attach(&self, dmabuf: BorrowedFd<'_>) -> dmabuf_dio_sys::Result<()>;
    fn enqueue(&self, dmabuf: BorrowedFd<'_>, bytes: u64) -> dmabuf_dio_sys::Result<()>;
    /// Whether the device is present and has not cancelled the queued blocks.
    fn is_running(&self) -> bool;
}

/// A block that is queued on the device.
#[derive(Debug)]
struct Queued {
    filled: Filled,
    /// The `sync_file` of the device's fence. It is taken right after queueing: later the dma-buf
    /// does not tell how the work ended.
    done: OwnedFd,
}

impl Queued {
    /// Polls first: querying the status makes the `sync_file` compose its name each time.
    fn is_done(&self) -> dmabuf_dio_sys::Result<bool> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&self.done, PollFlags::IN)], Some(&at_once)) {
            Ok(0) | Err(Os::INTR) => Ok(false),
            Ok(_) => sync_file::status(self.done.as_fd()),
            Err(errno) => Err(crate::from_os(errno)),
        }
    }
}

/// The blocks queued on a device, in order.
///
/// Field order matters: fences are dropped before the port. The lock of a functionfs fence (7.3)
/// lies in the endpoint's state for the block, and closing a polled `sync_file` takes it.
#[derive(Debug)]
pub(super) struct Fenced<P> {
    queued: VecDeque<Queued>,
    pub(super) port: P,
    /// The access that the device's access excludes.
    wait_for: Access,
    ring: Option<Arc<Ring>>,
}

impl<P: Port> Fenced<P> {
    /// A device that fills blocks.
    pub(super) fn filling(port: P) -> Self {
        Self { port, wait_for: Access::Read, ring: None, queued: VecDeque::new() }
    }

    /// A device that reads blocks.
    pub(super) fn emptying(port: P) -> Self {
        Self { port, wait_for: Access::Write, ring: None, queued: VecDeque::new() }
    }

    /// Attaches all blocks. The device holds them until the port is closed.
    pub(super) fn attach(&mut self, ring: &Arc<Ring>) -> Result<(), Errno> {
        for block in ring.blocks() {
            self.port.attach(block.as_fd())?;
        }
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    /// Attaches a block that the ring has got since.
    pub(super) fn attach_more(&mut self, block: usize) -> Result<bool> {
        let name = self.port.name();
        let attached = self.port.attach(attached(self.ring.as_ref(), name)?.block(block).as_fd());
        attached.map(|()| true).map_err(|errno| failed(name, "attach a block", errno))
    }

    /// Queues a block.
    pub(super) fn queue(&mut self, filled: Filled) -> Result<()> {
        let claim = self.claim(filled)?;
        let (queued, _) = self.enqueue(claim, claim.bytes())?;
        self.queued.push_back(queued);
        Ok(())
    }

    /// Queues a block, of which the device fills a multiple of `align` bytes, which may be more
    /// than requested. Returns whether the device was, or may have been, out of work by then.
    pub(super) fn queue_and_look(&mut self, filled: Filled, align: u64) -> Result<bool> {
        let claim = self.claim(filled)?;
        let whole =
            self.claim(Filled { bytes: claim.bytes().next_multiple_of(align), ..filled })?;
        let (queued, done) = self.enqueue(claim, whole.bytes())?;
        let was_idle = self.is_idle()?;
        if done && !was_idle {
            // The block finished before the one ahead of it: the driver has refused it. ENQUEUE
            // does not report that, and the dma-buf does not tell how a signalled fence ended.
            return Err(failed(self.port.name(), "fill a block", Errno::IO));
        }
        self.queued.push_back(queued);
        Ok(was_idle)
    }

    fn claim(&self, filled: Filled) -> Result<Claim> {
        attached(self.ring.as_ref(), self.port.name())?.claim(filled)
    }

    /// Also returns whether the block is already done.
    fn enqueue(&self, claim: Claim, length: u64) -> Result<(Queued, bool)> {
        let block = attached(self.ring.as_ref(), self.port.name())?.block(claim.block()).as_fd();
        self.port
            .enqueue(block, length)
            .map_err(|errno| failed(self.port.name(), "queue a block", errno))?;
        let done = dmabuf::export_sync_file(block, self.wait_for)
            .map_err(|errno| failed(self.port.name(), "get a fence", errno))?;
        let queued = Queued { filled: claim.filled(), done };
        let done = queued.is_done().map_err(|errno| self.ended(errno))?;
        if done && !self.port.is_running() {
            // Cancelled before its fence was taken, which then does not tell how it ended.
            return Err(self.ended(Errno::NODEV));
        }
        Ok((queued, done))
    }

    /// Whether every queued block is done.
    pub(super) fn is_idle(&self) -> Result<bool> {
        let last = self.queued.back().map_or(Ok(true), Queued::is_done);
        last.map_err(|errno| self.ended(errno))
    }

    /// The block that was queued first, if it is done.
    pub(super) fn take(&mut self) -> Result<Option<Filled>> {
        match self.queued.front().map(Queued::is_done) {
            Some(Ok(true)) => Ok(self.queued.pop_front().map(|queued| queued.filled)),
            Some(Err(errno)) => Err(self.ended(errno)),
            _ => Ok(None),
        }
    }

    /// The error if the device has cancelled a block, for which it has two error numbers.
    fn ended(&self, errno: Errno) -> crate::Error {
        let errno = if errno == Errno::INTR { Errno::NODEV } else { errno };
        failed(self.port.name(), "finish a block", errno)
    }

    pub(super) fn first(&self) -> Option<Wait<'_>> {
        let first = self.queued.front()?;
        Some(Wait::readable(first.done.as_fd()))
    }

    pub(super) fn len(&self) -> usize {
        self.queued.len()
    }

    /// Drops the blocks that the device has cancelled. Those it has finished can still be taken.
    pub(super) fn keep_done(&mut self) {
        let done = self.queued.iter().take_while(|queued| queued.is_done() == Ok(true)).count();
        self.queued.truncate(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    /// A device that signals or cancels the fence of a block before anyone can take it.
    struct AtOnce {
        running: bool,
    }

    impl Port for AtOnce {
        fn name(&self) -> &'static str {
            "a device"
        }

        fn attach(&self, _: BorrowedFd<'_>) -> dmabuf_dio_sys::Result<()> {
            Ok(())
        }

        fn enqueue(&self, _: BorrowedFd<'_>, _: u64) -> dmabuf_dio_sys::Result<()> {
            Ok(())
        }

        fn is_running(&self) -> bool {
            self.running
        }
    }

    #[test]
    fn what_a_device_has_called_off_at_once_is_not_filled() {
        let Ok(ring) = Ring::new(1, 4096) else {
            println!("skipped: no heap");
            return;
        };
        let (ring, filled) = (Arc::new(ring), Filled { block: 0, bytes: 4096 });
        for running in [true, false] {
            let mut blocks = Fenced::filling(AtOnce { running });
            blocks.attach(&ring).expect("attached");
            let looked = blocks.queue_and_look(filled, 8);
            let mut blocks = Fenced::emptying(AtOnce { running });
            blocks.attach(&ring).expect("attached");
            let queued = blocks.queue(filled);
            if running {
                assert!(looked.expect("queued"), "nothing was queued before");
                queued.expect("queued");
                assert_eq!(blocks.take().expect("no error"), Some(filled));
            } else {
                for error in [looked.map(|_| ()), queued] {
                    let error = error.expect_err("it is gone");
                    assert!(matches!(error, Error::Stream { .. }), "{error}");
                    assert_eq!(error.errno().map(dmabuf_dio::Errno::raw), Some(libc::ENODEV));
                }
            }
        }
    }
}
