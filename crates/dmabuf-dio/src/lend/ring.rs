// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring that borrows memory.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::process::Pid;

use super::error::LendError;
use super::memory::{Memory, Place};
use super::module::Context;
use super::uring::{create_shared, wait};
use crate::buf::DmaBuf;
use crate::direction::Direction;
use crate::errno::Errno;

/// How often in a row the kernel refuses to wait, with 1 ms between, until that is taken to be for
/// good.
const PATIENCE: u32 = if cfg!(test) { 20 } else { 1000 };
/// How often the kernel is asked to take requests, with 1 ms between.
const SUBMIT_PATIENCE: u32 = 5000;

/// Files of a ring: one, and the same without `O_DIRECT`.
const FILES: u32 = 2;

/// `IORING_SEND_ZC_REPORT_USAGE` and `IORING_NOTIF_USAGE_ZC_COPIED` (`linux/io_uring.h`).
const REPORT_USAGE: u16 = 1 << 3;
const COPIED: u32 = 1 << 31;

/// An `io_uring`, the memory that its requests are for, and the files. Why memory in flight is safe
/// is said in the text of [`lend`](crate::lend).
///
/// When it is dropped it waits for what is in flight, if the memory is this process's.
pub struct Ring {
    // Before the files: requests that were not sent off go with it.
    uring: IoUring,
    memory: Memory,
    files: Files,
    /// Requests whose last completion has not been taken.
    in_flight: usize,
    stuck: Option<Errno>,
    /// The process that made it: in a child, which inherits the memory, it is the parent's ring.
    process: Pid,
}

/// The files of a ring.
#[derive(Debug)]
enum Files {
    /// In its table, where the kernel has references of its own; which entries are in use.
    Registered([bool; FILES as usize]),
    /// Where the kernel allows no table.
    Held([Option<OwnedFd>; FILES as usize]),
}

/// A range of a registered buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The number of the buffer in the ring.
    pub buffer: u16,
    /// Where the range begins in it, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u32,
}

/// What is asked of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Reads from a place in the file.
    Read {
        /// Where the bytes go.
        to: Span,
        /// Where they are in the file.
        position: u64,
    },
    /// Writes to a place in the file.
    Write {
        /// Where the bytes are.
        from: Span,
        /// Where they go in the file.
        position: u64,
    },
    /// Sends all of it on a stream socket without copying it, where the network can do that, and
    /// says later, by another completion, when the memory is free again.
    Send {
        /// Where the bytes are.
        from: Span,
    },
    /// Allocates room in the file, whose length stays: `FALLOC_FL_KEEP_SIZE` in fallocate(2).
    MakeRoom {
        /// Where it begins in the file.
        position: u64,
        /// How many bytes.
        length: u64,
    },
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub operation: Operation,
    /// The number of the file in the ring.
    pub file: u32,
    /// Comes back with the completion.
    pub user_data: u64,
    /// The request that is pushed next waits for this one, and is not made if it fails. Both have to
    /// be sent off by the same [`submit`](Ring::submit).
    pub linked: bool,
}

/// Something that the kernel says of a request.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
}

impl Completion {
    /// That of the request.
    #[inline]
    pub fn user_data(&self) -> u64 {
        self.user_data
    }

    /// Bytes moved, or what failed.
    ///
    /// # Errors
    ///
    /// The kernel's error number.
    #[inline]
    pub fn result(&self) -> Result<u64, Errno> {
        if self.is_notification() {
            return Ok(0);
        }
        u64::try_from(self.result).map_err(|_| Errno::from_raw(-self.result))
    }

    /// Whether the request is over: of one that sends, whether its memory is free again.
    #[inline]
    pub fn is_last(&self) -> bool {
        !cqueue::more(self.flags)
    }

    /// Whether it says nothing but that the memory is free again.
    #[inline]
    pub fn is_notification(&self) -> bool {
        cqueue::notif(self.flags)
    }

    /// Of a notification, whether the network copied the bytes after all.
    pub fn was_copied(&self) -> bool {
        self.is_notification() && self.result as u32 & COPIED != 0
    }
}

impl Ring {
    /// A ring with these blocks as registered buffers, block and buffer having the same number: to
    /// load into them or to save from them, on `file`, which is number 0.
    ///
    /// The blocks may be closed afterwards. Completions come whichever thread asks for them. CPU
    /// access to a block has to be begun before a request for it and ended after its completion:
    /// [`DmaBuf::begin_cpu_access`].
    ///
    /// # Errors
    ///
    /// Any [`LendError`].
    pub fn lending(
        blocks: &[DmaBuf],
        direction: Direction,
        file: BorrowedFd<'_>,
    ) -> Result<Self, LendError> {
        // Looked at first: it is what is missing most often.
        let context = Context::with_slots()?;
        let mut uring = create_shared((2 * blocks.len() as u32 + 2).next_power_of_two())?;
        let memory = Memory::lend_blocks(&mut uring, context, blocks, direction)?;
        let mut ring = Self::new(uring, memory);
        ring.set_file(0, file).map_err(|errno| {
            let (entries, of) = (FILES as usize, "files");
            LendError::Table { entries, of, errno }
        })?;
        Ok(ring)
    }

    /// A ring with no file yet.
    pub(crate) fn new(uring: IoUring, memory: Memory) -> Self {
        let registered = uring.submitter().register_files(&[-1; FILES as usize]);
        let files = match registered {
            Ok(()) => Files::Registered([false; FILES as usize]),
            Err(_) => Files::Held([const { None }; FILES as usize]),
        };
        let process = rustix::process::getpid();
        Self { uring, memory, files, in_flight: 0, stuck: None, process }
    }

    /// Makes `file` the one with this number, 0 or 1. The ring has a reference of its own to it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another number. `EBUSY` if there is a file with this number and requests are in
    /// flight: the kernel looks it up when it gets to a request, not when that is queued. `ENOMEM`,
    /// `EMFILE`.
    pub fn set_file(&mut self, number: u32, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let place = number as usize;
        let is_set = match &self.files {
            _ if number >= FILES => return Err(Errno::from_raw(libc::EINVAL)),
            Files::Registered(set) => set[place],
            Files::Held(files) => files[place].is_some(),
        };
        if is_set && self.in_flight > 0 {
            return Err(Errno::from_raw(libc::EBUSY));
        }
        match &mut self.files {
            Files::Registered(set) => {
                let fd = [file.as_raw_fd()];
                let updated = self.uring.submitter().register_files_update(number, &fd);
                updated.map_err(|error| Errno::from(&error))?;
                set[place] = true;
            }
            Files::Held(files) => {
                files[place] = Some(rustix::io::fcntl_dupfd_cloexec(file, 3)?);
            }
        }
        Ok(())
    }

    /// Queues a request. [`submit`](Self::submit) or [`wait`](Self::wait) sends it off.
    ///
    /// # Errors
    ///
    /// `EINVAL`: its range is not in the buffer, or there is no such buffer or file. `EBUSY`: the
    /// ring is full. Nothing is queued then.
    #[inline]
    pub fn push(&mut self, request: &Request) -> Result<(), Errno> {
        let invalid = Errno::from_raw(libc::EINVAL);
        let mut flags = squeue::Flags::empty();
        flags.set(squeue::Flags::IO_LINK, request.linked);
        let file = match &self.files {
            _ if request.file >= FILES => return Err(invalid),
            Files::Registered(_) => {
                flags.insert(squeue::Flags::FIXED_FILE);
                Fd(request.file as i32)
            }
            Files::Held(files) => {
                Fd(files[request.file as usize].as_ref().ok_or(invalid)?.as_raw_fd())
            }
        };
        let entry = self.entry(file, &request.operation).ok_or(invalid)?;
        let entry = entry.user_data(request.user_data).flags(flags);
        // SAFETY: the range lies in a buffer of the ring, as `entry` has seen to, and the memory
        // stays until the request is over: see the module's text.
        match unsafe { self.uring.submission().push(&entry) } {
            Ok(()) => {
                self.in_flight += 1;
                Ok(())
            }
            Err(_) => Err(Errno::from_raw(libc::EBUSY)),
        }
    }

    #[inline]
    fn entry(&self, file: Fd, operation: &Operation) -> Option<squeue::Entry> {
        let place = |span: &Span| self.memory.place(span.buffer, span.offset, span.len);
        Some(match operation {
            Operation::Read { to, position } => {
                let Place { address, registered } = place(to)?;
                let at = std::ptr::without_provenance_mut(address as usize);
                match registered {
                    Some(index) => {
                        opcode::ReadFixed::new(file, at, to.len, index).offset(*position).build()
                    }
                    None => opcode::Read::new(file, at, to.len).offset(*position).build(),
                }
            }
            Operation::Write { from, position } => {
                let Place { address, registered } = place(from)?;
                let at = std::ptr::without_provenance(address as usize);
                match registered {
                    Some(index) => {
                        opcode::WriteFixed::new(file, at, from.len, index).offset(*position).build()
                    }
                    None => opcode::Write::new(file, at, from.len).offset(*position).build(),
                }
            }
            Operation::Send { from } => {
                let Place { address, registered } = place(from)?;
                let at = std::ptr::without_provenance(address as usize);
                opcode::SendZc::new(file, at, from.len)
                    .buf_index(registered)
                    .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
                    .zc_flags(REPORT_USAGE)
                    .build()
            }
            Operation::MakeRoom { position, length } => opcode::Fallocate::new(file, *length)
                .offset(*position)
                .mode(libc::FALLOC_FL_KEEP_SIZE)
                .build(),
        })
    }

    /// Sends off all that is queued, also if the kernel is short of memory for some time. Does not
    /// wait for completions.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the kernel has been short of memory for seconds, or what else it gave. What is
    /// still queued then counts as [unsent](Self::unsent).
    pub fn submit(&mut self) -> Result<(), Errno> {
        for _ in 0..SUBMIT_PATIENCE {
            match self.uring.submit() {
                Ok(_) if self.unsent() == 0 => return Ok(()),
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EBUSY | libc::EINTR) => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    _ => return Err(Errno::from(&error)),
                },
            }
        }
        Err(Errno::from_raw(libc::EAGAIN))
    }

    /// Sends off what is queued, as far as the kernel takes it now.
    pub(crate) fn submit_some(&self) {
        let _ = self.uring.submit();
    }

    /// Sends off what is queued and waits for so many completions, a signal, or 100 ms.
    ///
    /// # Errors
    ///
    /// The kernel refuses to wait.
    pub fn wait(&mut self, completions: usize) -> Result<(), Errno> {
        wait(&self.uring, completions)
    }

    /// How many requests are queued and not sent off.
    pub fn unsent(&mut self) -> usize {
        self.uring.submission().len()
    }

    /// How many requests are not over.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes the next completion that is there.
    pub fn complete(&mut self) -> Option<Completion> {
        let entry = self.uring.completion().next()?;
        let completion = completion(&entry);
        self.in_flight -= usize::from(completion.is_last());
        Some(completion)
    }

    /// Takes the completions that are there.
    #[inline]
    pub fn reap(&mut self, mut each: impl FnMut(Completion)) {
        let Self { uring, in_flight, .. } = self;
        for entry in uring.completion() {
            let completion = completion(&entry);
            // First: whoever panics has taken it.
            *in_flight -= usize::from(completion.is_last());
            each(completion);
        }
    }

    /// Waits for everything in flight, and takes it.
    ///
    /// # Errors
    ///
    /// Why the kernel refuses to wait, for good as it seems: the ring is [stuck](Self::stuck).
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Completion)) -> Result<(), Errno> {
        let mut refused = 0;
        loop {
            self.reap(&mut each);
            if self.in_flight == self.unsent() {
                return Ok(());
            }
            match self.wait(1) {
                Ok(()) => refused = 0,
                Err(errno) if refused == PATIENCE => {
                    self.stuck = Some(errno);
                    return Err(errno);
                }
                Err(_) => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// Why requests cannot be waited for, if that is so: nobody can say when they end then. Their
    /// memory is never freed, and a buffer that is lent may change at any time.
    pub(crate) fn stuck(&self) -> Option<Errno> {
        self.stuck
    }

    /// The same, with the promise that nothing is in flight when it ends.
    pub(crate) fn flight(&mut self) -> Flight<'_> {
        Flight(self)
    }
}

fn completion(entry: &cqueue::Entry) -> Completion {
    Completion { user_data: entry.user_data(), result: entry.result(), flags: entry.flags() }
}

impl AsFd for Ring {
    /// Readable when there is a completion.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor is open as long as the ring.
        unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, in_flight, stuck, .. } = self;
        f.debug_struct("Ring")
            .field("memory", memory)
            .field("in_flight", in_flight)
            .field("stuck", stuck)
            .finish_non_exhaustive()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if rustix::process::getpid() != self.process {
            return;
        }
        if self.memory.is_ours() && self.stuck.is_none() {
            let _ = self.drain(|_| ());
        }
        if self.stuck.is_some() {
            self.memory.keep();
        } else if self.in_flight == self.unsent() {
            // Now: the kernel would do it later, in its own time, and a file that is open until then
            // can be neither unmounted nor executed.
            let _ = self.uring.submitter().unregister_buffers();
            let _ = self.uring.submitter().unregister_files();
        }
    }
}

/// A ring in use by a call that leaves nothing in flight, however it ends.
pub(crate) struct Flight<'r>(&'r mut Ring);

impl Deref for Flight<'_> {
    type Target = Ring;

    fn deref(&self) -> &Ring {
        self.0
    }
}

impl DerefMut for Flight<'_> {
    fn deref_mut(&mut self) -> &mut Ring {
        self.0
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if self.stuck.is_none() {
            let _ = self.drain(|_| ());
        }
    }
}
