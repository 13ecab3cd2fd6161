// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring that borrows memory.

use std::collections::VecDeque;
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
use super::slots::LENDING;
use super::uring::{create_shared, wait};
use crate::buffer::Buffer;
use crate::direction::Direction;
use crate::errno::{Errno, IntoErrno};

/// How often in a row the kernel may refuse to wait, 1 ms apart, before this counts as permanent.
const PATIENCE: u32 = if cfg!(test) { 20 } else { 1000 };
/// How often the kernel is asked to accept requests, 1 ms apart.
const SUBMIT_PATIENCE: u32 = 5000;

/// The index of a ring's file as it was opened.
pub const OPENED: u32 = 0;
/// The index of the same file without `O_DIRECT`.
pub const BUFFERED: u32 = 1;
/// Files of a ring.
const FILES: u32 = 2;

/// `IORING_SEND_ZC_REPORT_USAGE` and `IORING_NOTIF_USAGE_ZC_COPIED` (`linux/io_uring.h`).
const REPORT_USAGE: u16 = 1 << 3;
const COPIED: u32 = 1 << 31;

/// An `io_uring`, the memory of its requests, and its files. For the safety of memory in flight see
/// [`lend`](crate::lend).
///
/// Dropping it blocks until all requests have completed, if the memory belongs to this process.
///
/// `Send` and `Sync`. Do not use or drop it in a child of `fork(2)`, which shares the ring with the
/// parent.
pub struct Ring {
    // Dropped before the files: unsubmitted requests go with it.
    uring: IoUring,
    memory: Memory,
    files: Files,
    /// Requests whose last completion has not been taken.
    in_flight: usize,
    /// Completions that arrived while a block was being lent.
    early: VecDeque<Completion>,
    stuck: Option<Errno>,
    /// The process that created it. A child of fork(2) shares the ring and must not release anything.
    process: Pid,
}

/// The files of a ring.
#[derive(Debug)]
enum Files {
    /// The entries of its table that are in use. The kernel has references of its own.
    Registered([bool; FILES as usize]),
    /// The files themselves, if the kernel allows no table.
    Held([Option<OwnedFd>; FILES as usize]),
}

/// A range of a registered buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The index of the buffer in the ring.
    pub buffer: u16,
    /// Start of the range in the buffer, in bytes.
    pub offset: u64,
    /// Length of the range in bytes.
    pub len: u32,
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Reads from the file.
    Read {
        /// Destination of the data.
        to: Span,
        /// Offset in the file, in bytes.
        position: u64,
    },
    /// Writes to the file.
    Write {
        /// Source of the data.
        from: Span,
        /// Offset in the file, in bytes.
        position: u64,
    },
    /// Sends the whole range on a stream socket, without a copy if the network supports that. A
    /// second completion says when the memory may be reused.
    Send {
        /// Source of the data.
        from: Span,
    },
    /// Allocates space in the file without changing its length: `FALLOC_FL_KEEP_SIZE` in
    /// fallocate(2).
    MakeRoom {
        /// Start in the file, in bytes.
        position: u64,
        /// Length in bytes.
        length: u64,
    },
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// The index of the file in the ring.
    pub file: u32,
    /// Returned with the completion.
    pub user_data: u64,
    /// Makes the request pushed next wait for this one; if this one fails, the next is not started.
    /// Both must be submitted by the same [`submit`](Ring::submit).
    pub linked: bool,
}

/// A completion of a request.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
}

impl Completion {
    /// The user data of the request.
    #[inline]
    pub fn user_data(&self) -> u64 {
        self.user_data
    }

    /// The number of bytes moved.
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

    /// Whether the request is over; for a send, whether its memory may be reused.
    #[inline]
    pub fn is_last(&self) -> bool {
        !cqueue::more(self.flags)
    }

    /// Whether this only says that the memory may be reused.
    #[inline]
    pub fn is_notification(&self) -> bool {
        cqueue::notif(self.flags)
    }

    #[cfg(test)]
    pub(super) fn of(user_data: u64, result: i32, flags: u32) -> Self {
        Self { user_data, result, flags }
    }

    /// For a notification: whether the network copied the data after all.
    pub fn was_copied(&self) -> bool {
        self.is_notification() && self.result as u32 & COPIED != 0
    }
}

impl Ring {
    /// Creates a ring with these blocks as registered buffers, to load into or save from. Block and
    /// buffer indexes are equal; `file` has index 0.
    ///
    /// The blocks may be closed afterwards. Any thread can take the completions. CPU access to a
    /// block must be begun before a request for it and ended after its completion:
    /// [`Buffer::begin_cpu_access`].
    ///
    /// # Errors
    ///
    /// Any [`LendError`].
    pub fn lending(
        blocks: &[Buffer],
        direction: Direction,
        file: BorrowedFd<'_>,
    ) -> Result<Self, LendError> {
        Self::lending_up_to(blocks.len(), blocks, direction, file)
    }

    /// Like [`lending_up_to`](Self::lending_up_to). Small blocks are joined if the module supports
    /// it: see [`goes_on`](Self::goes_on).
    ///
    /// # Errors
    ///
    /// Any [`LendError`].
    pub fn lending_joined(
        most: usize,
        blocks: &[Buffer],
        direction: Direction,
        file: BorrowedFd<'_>,
    ) -> Result<Self, LendError> {
        Self::lend_all(most, blocks, direction, file, true)
    }

    /// Whether buffer `buffer + 1` directly follows this buffer. A [`Span`] that extends beyond the
    /// end of this buffer then continues in the next one, so that one request covers several
    /// blocks.
    pub fn goes_on(&self, buffer: u16) -> bool {
        self.memory.goes_on(buffer)
    }

    /// Like [`lending`](Self::lending), with room for `most` blocks in all. [`lend`](Self::lend)
    /// adds further blocks.
    ///
    /// # Errors
    ///
    /// Any [`LendError`].
    pub fn lending_up_to(
        most: usize,
        blocks: &[Buffer],
        direction: Direction,
        file: BorrowedFd<'_>,
    ) -> Result<Self, LendError> {
        Self::lend_all(most, blocks, direction, file, false)
    }

    fn lend_all(
        most: usize,
        blocks: &[Buffer],
        direction: Direction,
        file: BorrowedFd<'_>,
        join: bool,
    ) -> Result<Self, LendError> {
        let most = most.max(blocks.len());
        // Checked first, because it is the most common thing to be missing.
        let context = Context::with_slots()?;
        let mut uring = create_shared((2 * most as u32 + 2).next_power_of_two())?;
        let memory = Memory::lend_blocks(&mut uring, context, most, blocks, direction, join)?;
        let mut ring = Self::new(uring, memory);
        ring.set_file(OPENED, file).map_err(|errno| {
            let (entries, of) = (FILES as usize, "files");
            LendError::Table { entries, of, errno }
        })?;
        Ok(ring)
    }

    /// Lends one more block, as the buffer with the next index, while requests may be in flight. Blocks
    /// until the kernel has it.
    ///
    /// # Errors
    ///
    /// Any [`LendError`]: [`Slot`](LendError::Slot) with `EBUSY` if there is no room for it, or if
    /// requests are queued that are not submitted. The ring is unchanged, and requests in flight
    /// continue.
    pub fn lend(&mut self, block: &Buffer, direction: Direction) -> Result<(), LendError> {
        let unsent = self.unsent();
        let Self { uring, memory, early, .. } = self;
        memory
            .lend_more(uring, block, direction, unsent, |entry| early.push_back(completion(entry)))
    }

    /// Creates a ring without files.
    pub(crate) fn new(uring: IoUring, memory: Memory) -> Self {
        let registered = uring.submitter().register_files(&[-1; FILES as usize]);
        let files = match registered {
            Ok(()) => Files::Registered([false; FILES as usize]),
            Err(_) => Files::Held([const { None }; FILES as usize]),
        };
        let process = rustix::process::getpid();
        let early = VecDeque::new();
        Self { uring, memory, files, in_flight: 0, early, stuck: None, process }
    }

    /// Sets the file with index `number`, 0 or 1. The ring keeps its own reference to it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another index. `EBUSY` if the index is in use and requests are in flight: the
    /// kernel looks the file up when it starts a request, not when the request is queued. `ENOMEM`;
    /// `EMFILE`.
    pub fn set_file(&mut self, number: u32, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let place = number as usize;
        if number >= FILES {
            return Err(Errno::INVAL);
        }
        if self.has_file(number) && self.in_flight > 0 {
            return Err(Errno::BUSY);
        }
        match &mut self.files {
            Files::Registered(set) => {
                let fd = [file.as_raw_fd()];
                let updated = self.uring.submitter().register_files_update(number, &fd);
                updated.map_err(|error| Errno::from(&error))?;
                set[place] = true;
            }
            Files::Held(files) => {
                files[place] =
                    Some(rustix::io::fcntl_dupfd_cloexec(file, 3).map_err(IntoErrno::into_errno)?);
            }
        }
        Ok(())
    }

    /// Whether the file with index `number` is set.
    #[inline]
    pub fn has_file(&self, number: u32) -> bool {
        let place = number as usize;
        match &self.files {
            Files::Registered(set) => set.get(place).is_some_and(|set| *set),
            Files::Held(files) => files.get(place).is_some_and(Option::is_some),
        }
    }

    /// Queues a request, without blocking. [`submit`](Self::submit) or [`wait`](Self::wait) submits
    /// it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the range is not in the buffer and those [joined](Self::goes_on) to it, the buffer
    /// or the file does not exist, or the user data is `u64::MAX - 1`, which [`lend`](Self::lend)
    /// uses. `EBUSY`: the ring is full. In both cases nothing is queued.
    #[inline]
    pub fn push(&mut self, request: &Request) -> Result<(), Errno> {
        let invalid = Errno::from_raw(libc::EINVAL);
        let mut flags = squeue::Flags::empty();
        flags.set(squeue::Flags::IO_LINK, request.linked);
        let file = match &self.files {
            _ if request.file >= FILES || request.user_data == LENDING => return Err(invalid),
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
        // SAFETY: the range lies in a buffer of the ring, as checked by `entry`, and the memory
        // stays until the request is over: see the module's documentation.
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

    /// Submits all queued requests, retrying while the kernel is short of memory. Does not wait for
    /// completions.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the kernel was short of memory for seconds, or another error number of the
    /// kernel. Requests that are still queued count as [unsent](Self::unsent).
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

    /// Submits queued requests, as many as the kernel accepts now.
    pub(crate) fn submit_some(&self) {
        let _ = self.uring.submit();
    }

    /// Submits the queued requests and blocks until `completions` have arrived, a signal, or 100
    /// ms.
    ///
    /// # Errors
    ///
    /// The kernel's error number if it refuses to wait.
    pub fn wait(&mut self, completions: usize) -> Result<(), Errno> {
        wait(&self.uring, completions)
    }

    /// Number of requests that are queued but not submitted.
    pub fn unsent(&mut self) -> usize {
        self.uring.submission().len()
    }

    /// Number of requests that are not over.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes the next available completion.
    pub fn complete(&mut self) -> Option<Completion> {
        let completion = match self.early.pop_front() {
            Some(early) => early,
            None => completion(&self.uring.completion().next()?),
        };
        self.in_flight -= usize::from(completion.is_last());
        Some(completion)
    }

    /// Takes all available completions.
    #[inline]
    pub fn reap(&mut self, mut each: impl FnMut(Completion)) {
        let Self { uring, in_flight, early, .. } = self;
        while let Some(completion) = early.pop_front() {
            *in_flight -= usize::from(completion.is_last());
            each(completion);
        }
        for entry in uring.completion() {
            let completion = completion(&entry);
            // First, because `each` may panic: the completion is taken all the same.
            *in_flight -= usize::from(completion.is_last());
            each(completion);
        }
    }

    /// Waits for everything in flight, and takes it.
    ///
    /// # Errors
    ///
    /// Why the kernel, apparently permanently, refuses to wait: the ring is [stuck](Self::stuck).
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

    /// Why requests cannot be waited for, if so: their end is then unknown. Their memory is never
    /// freed, and a lent buffer may change at any time.
    pub(crate) fn stuck(&self) -> Option<Errno> {
        self.stuck
    }

    /// Borrows the ring and guarantees that nothing is in flight when the borrow ends.
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
            // Explicitly, because the kernel would do it later, asynchronously, and a file that is open
            // until then can be neither unmounted nor executed.
            let _ = self.uring.submitter().unregister_buffers();
            let _ = self.uring.submitter().unregister_files();
        }
    }
}

/// A ring borrowed by a call that leaves nothing in flight, however it ends.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::Mapping;

    /// A ring over a page of memory, whose file is the reading end of a pipe, and the writing end.
    /// `None` without `io_uring`.
    fn on_a_pipe() -> Option<(Ring, Arc<Mapping>, OwnedFd)> {
        let Ok(uring) = super::super::create(4, false) else {
            println!("skipped: no io_uring");
            return None;
        };
        let mapping = Arc::new(Mapping::anonymous(4096).expect("memory"));
        mapping.fill(0, 4096, 0).expect("zeroed");
        let mut ring = Ring::new(uring, Memory::process(&mapping));
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        ring.set_file(0, reader.as_fd()).expect("set");
        ring.set_file(1, writer.as_fd()).expect("set");
        Some((ring, mapping, writer))
    }

    fn read(user_data: u64) -> Request {
        let to = Span { buffer: 0, offset: 8, len: 5 };
        let operation = Operation::Read { to, position: 0 };
        Request { operation, file: 0, user_data, linked: false }
    }

    #[test]
    fn ring_counts_queued_and_in_flight_requests() {
        let Some((mut ring, mapping, writer)) = on_a_pipe() else { return };
        ring.push(&read(77)).expect("queued");
        assert_eq!((ring.in_flight(), ring.unsent()), (1, 1));
        ring.submit().expect("submitted");
        assert_eq!((ring.in_flight(), ring.unsent()), (1, 0));
        assert!(ring.complete().is_none(), "the pipe is empty");
        rustix::io::write(&writer, b"bytes").expect("written");
        let completion = loop {
            ring.wait(1).expect("waited");
            if let Some(completion) = ring.complete() {
                break completion;
            }
        };
        assert_eq!((completion.user_data(), completion.result()), (77, Ok(5)));
        assert!(completion.is_last() && !completion.is_notification() && !completion.was_copied());
        assert_eq!((ring.in_flight(), ring.unsent()), (0, 0));
        assert_eq!(mapping.to_vec(8, 5).expect("bytes"), b"bytes");
        // The writing end cannot be read.
        ring.push(&Request { file: 1, ..read(78) }).expect("queued");
        ring.submit().expect("submitted");
        let mut results = Vec::new();
        ring.drain(|completion| results.push(completion.result())).expect("drained");
        assert_eq!(results, [Err(Errno::from_raw(libc::EBADF))]);
    }

    #[test]
    fn dropped_flight_or_ring_waits_for_requests() {
        for by_flight in [true, false] {
            let Some((mut ring, mapping, writer)) = on_a_pipe() else { return };
            ring.push(&read(1)).expect("queued");
            ring.submit().expect("submitted");
            let later = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                rustix::io::write(&writer, b"bytes")
            });
            if by_flight {
                drop(ring.flight());
                assert_eq!(ring.in_flight(), 0);
            } else {
                drop(ring);
            }
            assert_eq!(mapping.to_vec(8, 5).expect("bytes"), b"bytes", "it was waited for");
            later.join().expect("no panic").expect("written");
        }
    }

    #[test]
    fn send_completes_with_its_notification() {
        // IORING_CQE_F_MORE and IORING_CQE_F_NOTIF (linux/io_uring.h).
        const MORE: u32 = 1 << 1;
        const NOTIF: u32 = 1 << 3;
        let sent = Completion::of(1, 4096, MORE);
        assert!(!sent.is_last() && !sent.is_notification() && !sent.was_copied());
        assert_eq!(sent.result(), Ok(4096));
        for (result, was_copied) in [(0, false), (i32::MIN, true)] {
            let free = Completion::of(1, result, NOTIF);
            assert!(free.is_last() && free.is_notification());
            assert_eq!((free.result(), free.was_copied()), (Ok(0), was_copied));
        }
        let failed = Completion::of(1, -libc::EPIPE, 0);
        assert!(failed.is_last() && !failed.was_copied());
        assert_eq!(failed.result(), Err(Errno::from_raw(libc::EPIPE)));
    }
}
