// SPDX-License-Identifier: MIT OR Apache-2.0
//! The blocks of a ring as fixed buffers of an `io_uring`: slot and block have the same number.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use dmabuf_dio_sys::dio::Slot;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::FallocateFlags;
use rustix::io::Errno as Os;

use super::ring::{Claim, Ring};
use super::wait::Wait;
use crate::backend::Backend;
use crate::error::{Attempt, Direction};
use crate::via;

/// How often the kernel is asked to take requests, with 1 ms between.
const PATIENCE: u32 = 5000;

/// `IORING_SEND_ZC_REPORT_USAGE` and `IORING_NOTIF_USAGE_ZC_COPIED` (`linux/io_uring.h`).
const REPORT_USAGE: u16 = 1 << 3;
const COPIED: u64 = 1 << 31;

/// What is asked of the kernel: with bytes of a block, or with none. Whatever is in it, no other
/// memory is touched.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// Reads from a place in a file.
    Read { to: Bytes, offset: u64 },
    /// Writes to a place in a file.
    Write { from: Bytes, offset: u64 },
    /// Sends all of it, and says later when the memory is free again and whether it was copied.
    Send { from: Bytes },
    /// Makes room in a file, whose length stays.
    MakeRoom { offset: u64, length: u64 },
}

/// Bytes of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes {
    pub(super) claim: Claim,
    /// Where they begin.
    pub(super) at: u64,
    /// How many: more than are claimed, where a disk reads whole blocks.
    pub(super) length: u64,
}

/// A descriptor of what the requests of a ring are for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target(RawFd);

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) user_data: u64,
    /// Bytes moved, or what failed.
    pub(super) result: Result<u64, Os>,
    /// There will be another for the same request.
    pub(super) more: bool,
    /// That other: the memory is free again.
    pub(super) notification: bool,
}

impl Completion {
    /// Of a notification, whether the bytes were copied after all.
    pub(super) fn was_copied(&self) -> bool {
        self.notification && self.result.is_ok_and(|usage| usage & COPIED != 0)
    }
}

/// An `io_uring` that the blocks are registered with. Field order: it goes before what its requests
/// are for, so that the number of a descriptor that it has not sent off yet is no other's.
pub(super) struct Slots<T> {
    uring: IoUring,
    /// The kernel's references keep the memory; this one is for who maps it.
    pub(super) blocks: Arc<Ring>,
    target: Arc<T>,
}

impl<T> fmt::Debug for Slots<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

impl<T> Slots<T> {
    /// Lends the pages of every block, once, for requests on `target`.
    pub(super) fn new(
        blocks: &Arc<Ring>,
        direction: Direction,
        target: &Arc<T>,
    ) -> Result<Self, Attempt> {
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
        Ok(Self { uring, blocks: Arc::clone(blocks), target: Arc::clone(target) })
    }

    /// A descriptor that the target has: it has it as long as there is this ring.
    pub(super) fn target<E>(
        &self,
        fd: impl FnOnce(&T) -> Result<BorrowedFd<'_>, E>,
    ) -> Result<Target, E> {
        fd(&self.target).map(|fd| Target(fd.as_raw_fd()))
    }

    /// Queues a request; if `linked`, the one that is queued next waits for it, and is not done if
    /// it fails. [`submit`](Self::submit) sends it off.
    pub(super) fn push(
        &mut self,
        Target(fd): Target,
        request: Request,
        user_data: u64,
        linked: bool,
    ) -> Result<(), Os> {
        let flags = if linked { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
        let entry = self.entry(types::Fd(fd), request)?.user_data(user_data).flags(flags);
        // SAFETY: the entry names no memory but a slot's, which is the kernel's own reference, and a
        // descriptor that is open as long as the ring.
        unsafe { self.uring.submission().push(&entry) }.map_err(|_| Os::BUSY)
    }

    fn entry(&self, fd: types::Fd, request: Request) -> Result<squeue::Entry, Os> {
        Ok(match request {
            Request::Read { to, offset } => {
                let (at, length, slot) = self.place(to)?;
                opcode::ReadFixed::new(fd, at, length, slot).offset(offset).build()
            }
            Request::Write { from, offset } => {
                let (at, length, slot) = self.place(from)?;
                opcode::WriteFixed::new(fd, at, length, slot).offset(offset).build()
            }
            Request::Send { from } => {
                let (at, length, slot) = self.place(from)?;
                opcode::SendZc::new(fd, at, length)
                    .buf_index(Some(slot))
                    .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
                    .zc_flags(REPORT_USAGE)
                    .build()
            }
            Request::MakeRoom { offset, length } => opcode::Fallocate::new(fd, length)
                .offset(offset)
                .mode(FallocateFlags::KEEP_SIZE.bits() as i32)
                .build(),
        })
    }

    /// Address, length and number as the kernel wants them: to a slot an address is an offset.
    fn place(&self, bytes: Bytes) -> Result<(*mut u8, u32, u16), Os> {
        let Bytes { claim, at, length } = bytes;
        let block = self.blocks.blocks().get(claim.block()).ok_or(Os::INVAL)?;
        block.check_range(at, length).map_err(|_| Os::INVAL)?;
        let length = u32::try_from(length).map_err(|_| Os::INVAL)?;
        Ok((std::ptr::without_provenance_mut(at as usize), length, claim.block() as u16))
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
    pub(super) fn ready(&self) -> Wait<'_> {
        // SAFETY: the ring's descriptor is open as long as the ring.
        let fd = unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) };
        Wait::readable(fd)
    }
}
