// SPDX-License-Identifier: MIT OR Apache-2.0
//! The blocks of a ring as fixed buffers of an `io_uring`: slot and block have the same number.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use dmabuf_dio_sys::dio::Slot;
use io_uring::{IoUring, cqueue, squeue};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno as Os;

use super::ring::Ring;
use crate::backend::Backend;
use crate::error::{Attempt, Direction};
use crate::via;

/// How often the kernel is asked to take requests, with 1 ms between.
const PATIENCE: u32 = 5000;

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) user_data: u64,
    /// Bytes moved, or what failed.
    pub(super) result: Result<u64, Os>,
    /// There will be another for the same request.
    pub(super) more: bool,
    /// That other: the memory is free again. The result says whether it was copied.
    pub(super) notification: bool,
}

/// An `io_uring` that the blocks are registered with.
pub(super) struct Slots {
    uring: IoUring,
    /// The kernel's references keep the memory; this one is for who maps it.
    pub(super) blocks: Arc<Ring>,
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

impl Slots {
    /// Lends the pages of every block, once.
    pub(super) fn new(blocks: &Arc<Ring>, direction: Direction) -> Result<Self, Attempt> {
        let count = blocks.len() as u32;
        // Looked at first: it is what is missing most often.
        let mut context = via::slot::available()?;
        let entries = (2 * count + 2).next_power_of_two();
        let mut uring =
            IoUring::new(entries).map_err(|error| via::ring_refusal(Backend::UringSlot, &error))?;
        via::slot::make_room(&uring, blocks.len())?;
        let flags = via::slot::flags(direction);
        for (index, block) in (0..).zip(blocks.blocks()) {
            if index > 0 {
                // A context has one buffer; its slot keeps it open.
                context = via::slot::available()?;
            }
            context.attach(Backend::UringSlot, block)?;
            let slot = Slot { buf_offset: 0, length: block.len(), index, flags };
            via::slot::register(&mut uring, &context, &[slot])?;
        }
        Ok(Self { uring, blocks: Arc::clone(blocks) })
    }

    /// Queues a request that uses no memory but that of slots, and that of which it says itself
    /// that it lives on. [`submit`](Self::submit) sends it off.
    pub(super) fn push(&mut self, entry: &squeue::Entry) -> Result<(), Os> {
        // SAFETY: a slot's memory is the kernel's own reference. The entries made in this module's
        // siblings are WRITE_FIXED, READ_FIXED, SEND_ZC and FALLOCATE, which name no other.
        unsafe { self.uring.submission().push(entry) }.map_err(|_| Os::BUSY)
    }

    /// Sends off all that is queued, also if the kernel is short of memory for some time.
    pub(super) fn submit(&mut self) -> Result<(), Os> {
        for _ in 0..PATIENCE {
            match self.uring.submit() {
                Ok(_) if self.uring.submission().is_empty() => return Ok(()),
                Ok(_) => {}
                Err(error) => match Os::from_io_error(&error) {
                    Some(Os::AGAIN | Os::BUSY | Os::INTR) => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    errno => return Err(errno.unwrap_or(Os::IO)),
                },
            }
        }
        Err(Os::AGAIN)
    }

    /// How many are queued and not sent off.
    pub(super) fn unsent(&mut self) -> usize {
        self.uring.submission().len()
    }

    /// The next request that is over.
    pub(super) fn complete(&mut self) -> Option<Completion> {
        let completion = self.uring.completion().next()?;
        let (result, flags) = (completion.result(), completion.flags());
        let notification = cqueue::notif(flags);
        let bytes = if notification { i64::from(result as u32) } else { i64::from(result) };
        Some(Completion {
            user_data: completion.user_data(),
            result: u64::try_from(bytes).map_err(|_| Os::from_raw_os_error(-result)),
            more: cqueue::more(flags),
            notification,
        })
    }

    /// Readable when a request is over.
    pub(super) fn ready(&self) -> PollFd<'_> {
        // SAFETY: the ring's descriptor is open as long as the ring.
        let fd = unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) };
        PollFd::from_borrowed_fd(fd, PollFlags::IN)
    }
}
