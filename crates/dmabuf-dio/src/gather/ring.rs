// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests in flight on an `io_uring`, in batches.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread::ThreadId;

use io_uring::types::{Fd, Fixed};
use io_uring::{IoUring, opcode, squeue};

use super::piece::LIMIT;
use super::plan::{Plan, Request};
use crate::backend::Backend;
use crate::control::Watch;
use crate::errno::Errno;
use crate::error::{Attempt, Direction, Error, Result};
use crate::extent::Cut;
use crate::file::File;
use crate::memory::Mapping;
use crate::uring;
use crate::via;
use crate::via::module::Context;

/// Completions that are waited for at a time, at most.
const BATCH: u32 = 32;
/// The most buffers that a ring takes.
const MAX_SLOTS: u64 = 1 << 14;

/// Whose memory it is.
#[derive(Debug)]
pub(super) enum Memory {
    /// The dma-buf that is attached, of that many bytes and contiguous pieces.
    Attached { context: Context, len: u64, segments: u32 },
    /// This process's.
    Mapped(Mapping),
}

/// Where requests find it.
#[derive(Clone, Copy, Debug)]
enum Places {
    /// In a slot of its own for every `1 << shift` bytes, which counts from 0. The slot goes on
    /// for the length of a request, so that none has to be cut where the next slot begins.
    Slots { shift: u32 },
    /// The same, of memory at an address of the process.
    Registered { shift: u32, start: u64 },
    /// At an address of the process.
    Plain { start: u64 },
}

/// A ring for requests of one file to one buffer. Field order: the ring goes before the memory.
pub(super) struct Ring {
    uring: IoUring,
    places: Places,
    fixed_file: bool,
    /// Whose ring it is: the kernel takes requests from no other thread. `None` when requests
    /// may be left in it that the kernel did not take.
    thread: Option<ThreadId>,
    /// Why requests cannot be waited for: others could not be told from them, so none is made.
    stuck: Option<Errno>,
    memory: Memory,
    backend: Backend,
    depth: u32,
    /// Bytes in a request.
    limit: u64,
    /// Why completions are not polled for; `None` if they are.
    pub(super) why_unpolled: Option<String>,
}

/// How [`Ring::drive`] ended.
enum Driven {
    /// No request is left, or the watch is cancelled.
    Done,
    /// The disk does not poll: requests wait for another ring.
    Unpolled(Errno),
}

impl Ring {
    /// Sets up a ring, which polls if `why_unpolled` says nothing against it.
    pub(super) fn new(
        backend: Backend,
        file: &File,
        memory: Memory,
        depth: u32,
        limit: u64,
        why_unpolled: Option<String>,
    ) -> Result<Self, Attempt> {
        let create = |polled| {
            uring::create(depth, polled).map_err(|error| via::ring_refusal(backend, &error))
        };
        let (uring, why_unpolled) = match why_unpolled {
            Some(why) => (create(false)?, Some(why)),
            None => match create(true) {
                Ok(uring) => (uring, None),
                Err(refusal) => (create(false)?, Some(format!("not polled: {}", refusal.reason))),
            },
        };
        let mut ring = Self {
            uring,
            places: Places::Plain { start: 0 },
            fixed_file: false,
            thread: None,
            stuck: None,
            memory,
            backend,
            depth,
            limit,
            why_unpolled,
        };
        ring.register(file.fd())?;
        Ok(ring)
    }

    /// Another ring for the same, in the calling thread.
    fn renew(&mut self, file: &File) -> Result<(), Attempt> {
        let refuse = |error| via::ring_refusal(self.backend, &error);
        self.let_go();
        self.thread = None;
        self.uring = uring::create(self.depth, self.why_unpolled.is_none()).map_err(refuse)?;
        self.register(file.fd())
    }

    fn register(&mut self, file: BorrowedFd<'_>) -> Result<(), Attempt> {
        self.fixed_file = self.uring.submitter().register_files(&[file.as_raw_fd()]).is_ok();
        let cut = |shift: u32| Cut { step: 1 << shift, overlap: self.limit };
        match &self.memory {
            Memory::Attached { context, len, segments } => {
                let shift = slot_shift(*len, *segments);
                let load = Direction::Load;
                via::slot::lend(&mut self.uring, context, 0..*len, cut(shift), load)?;
                self.places = Places::Slots { shift };
            }
            Memory::Mapped(mapping) => {
                // The kernel takes 1 GiB at a time, and finds an offset at once.
                let (shift, start) = (29, mapping.as_ptr() as u64);
                let vector = |(at, length)| libc::iovec {
                    iov_base: mapping.at(at).cast(),
                    iov_len: length as usize,
                };
                let vectors: Vec<_> = cut(shift).pieces(0..mapping.len()).map(vector).collect();
                // SAFETY: the memory is mapped until after the ring is gone, see the fields.
                let result = unsafe { self.uring.submitter().register_buffers(&vectors) };
                self.places = match result {
                    Ok(()) => Places::Registered { shift, start },
                    // There is a limit on locked memory: each request locks its own.
                    Err(_) => Places::Plain { start },
                };
            }
        }
        self.thread = Some(std::thread::current().id());
        Ok(())
    }

    /// Makes all requests of the plan, or those until the watch is cancelled. None is in flight
    /// any more on return, but for [`Error::InFlight`], which every later call returns as well.
    pub(super) fn run(
        &mut self,
        plan: &mut Plan<'_>,
        file: &File,
        watch: &Watch<'_>,
    ) -> Result<(), Attempt> {
        self.check_stuck(file)?;
        if self.thread != Some(std::thread::current().id()) {
            self.renew(file)?;
        }
        loop {
            // Until it is known to have ended well.
            let thread = self.thread.take();
            let driven = self.drive(plan, file, watch);
            self.check_stuck(file)?;
            let driven = driven?;
            self.thread = thread;
            let Driven::Unpolled(errno) = driven else { return Ok(()) };
            self.why_unpolled = Some(unpolled(errno));
            self.renew(file)?;
        }
    }

    fn check_stuck(&self, file: &File) -> Result<()> {
        self.stuck.map_or(Ok(()), |errno| Err(Error::in_flight(file, Direction::Load, errno)))
    }

    fn drive(&mut self, plan: &mut Plan<'_>, file: &File, watch: &Watch<'_>) -> Result<Driven> {
        let polled = self.why_unpolled.is_none();
        // Half of them stay in flight while others are made.
        let batch = (self.depth / 2).clamp(1, BATCH) as usize;
        let (places, fixed_file) = (self.places, self.fixed_file);
        let mut flight = Flight::new(&mut self.uring, self.depth as usize, &mut self.stuck);
        let mut unpolled = None;
        loop {
            if unpolled.is_none() && !watch.is_cancelled() {
                flight.fill(plan, |request| {
                    let fd = match (fixed_file, request.buffered) {
                        (true, false) => None,
                        (_, buffered) => Some(file.with_direct(!buffered)?.as_raw_fd()),
                    };
                    Ok(entry(request, places, fd))
                })?;
            }
            let in_flight = flight.len();
            if in_flight == 0 {
                return Ok(unpolled.map_or(Driven::Done, Driven::Unpolled));
            }
            let least = batch.min(in_flight);
            uring::wait(flight.uring, least).map_err(|errno| failed(file, errno))?;
            flight.reap(|request, result| {
                let errno = -result;
                if polled && (errno == libc::EOPNOTSUPP || errno == libc::EINVAL) {
                    unpolled = Some(Errno::from_raw(errno));
                    plan.again(*request);
                } else {
                    plan.complete(request, result.into());
                }
            });
            watch.set(plan.counts.moved);
        }
    }

    /// Lets go of the memory now: the ring would do that later, in its own time.
    fn let_go(&self) {
        let _ = self.uring.submitter().unregister_buffers();
    }

    /// Contiguous pieces of the buffer, if that is known.
    pub(super) fn segments(&self) -> Option<u32> {
        match self.memory {
            Memory::Attached { segments, .. } => Some(segments),
            Memory::Mapped(_) => None,
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        match (self.stuck, &self.memory) {
            (None, _) => self.let_go(),
            // The kernel may still write to it.
            (Some(_), Memory::Mapped(mapping)) => mapping.keep(),
            // Slots hold the pages.
            (Some(_), Memory::Attached { .. }) => {}
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { places, memory, depth, why_unpolled, .. } = self;
        f.debug_struct("Ring")
            .field("memory", memory)
            .field("places", places)
            .field("depth", depth)
            .field("why_unpolled", why_unpolled)
            .finish_non_exhaustive()
    }
}

/// How long slots are: the kernel finds an offset into one by walking through its contiguous
/// pieces, so a slot has few of them; but each slot takes about as long to fill as a request.
fn slot_shift(len: u64, segments: u32) -> u32 {
    /// Pieces in a slot.
    const FEW: u64 = 16;
    let wanted = (len / u64::from(segments.max(1))).saturating_mul(FEW);
    let least = len.div_ceil(MAX_SLOTS).max(LIMIT);
    wanted.clamp(least, least.max(256 << 20)).next_power_of_two().trailing_zeros()
}

fn entry(request: &Request, places: Places, fd: Option<i32>) -> squeue::Entry {
    let (group, len) = (&request.group, request.group.len as u32);
    macro_rules! build {
        ($operation:ident, $addr:expr $(, $index:expr)?) => {
            match fd {
                None => opcode::$operation::new(Fixed(0), $addr as *mut u8, len $(, $index)?)
                    .offset(group.file).build(),
                Some(fd) => opcode::$operation::new(Fd(fd), $addr as *mut u8, len $(, $index)?)
                    .offset(group.file).build(),
            }
        };
    }
    match places {
        Places::Slots { shift } => {
            let index = group.buf >> shift;
            build!(ReadFixed, group.buf - (index << shift), index as u16)
        }
        Places::Registered { shift, start } => {
            build!(ReadFixed, start + group.buf, (group.buf >> shift) as u16)
        }
        Places::Plain { start } => build!(Read, start + group.buf),
    }
}

fn failed(file: &File, errno: Errno) -> Error {
    Error::Transfer {
        path: file.path.clone(),
        direction: Direction::Load,
        offset: 0,
        done: 0,
        length: 0,
        errno,
    }
}

fn unpolled(errno: Errno) -> String {
    format!(
        "not polled: the disk has no queues for that, or the file system does not offer it: \
         {errno}; NVMe has them if the kernel is booted with nvme.poll_queues=N"
    )
}

/// Requests in flight. Waits for those that the kernel has when it is dropped: their memory is the
/// kernel's until then, or for good if it says that it is stuck.
struct Flight<'r> {
    uring: &'r mut IoUring,
    stuck: &'r mut Option<Errno>,
    /// By the user data of the submission.
    requests: Vec<Request>,
    free: Vec<u32>,
}

impl<'r> Flight<'r> {
    fn new(uring: &'r mut IoUring, depth: usize, stuck: &'r mut Option<Errno>) -> Self {
        let free = (0..depth as u32).rev().collect();
        Self { uring, stuck, requests: vec![Request::default(); depth], free }
    }

    fn len(&self) -> usize {
        self.requests.len() - self.free.len()
    }

    /// Queues as many requests as there may be in flight.
    #[inline]
    fn fill(
        &mut self,
        plan: &mut Plan<'_>,
        entry: impl Fn(&Request) -> Result<squeue::Entry>,
    ) -> Result<()> {
        let mut queue = self.uring.submission();
        while let Some(&slot) = self.free.last() {
            let request = &mut self.requests[slot as usize];
            if !plan.next(request) {
                break;
            }
            let entry = entry(request)?.user_data(slot.into());
            // SAFETY: the plan's requests lie in the buffer, whose memory outlives the ring, and
            // `drop` waits for all of them, or the memory is kept.
            let pushed = unsafe { queue.push(&entry) };
            assert!(pushed.is_ok(), "the ring is as deep as there are slots");
            self.free.pop();
        }
        Ok(())
    }

    /// Takes the completions that are there.
    fn reap(&mut self, mut each: impl FnMut(&Request, i32)) {
        for completion in self.uring.completion() {
            let slot = completion.user_data() as u32;
            self.free.push(slot);
            each(&self.requests[slot as usize], completion.result());
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let Self { uring, stuck, requests, free } = self;
        let drained = uring::drain(uring, |uring| {
            free.extend(uring.completion().map(|completion| completion.user_data() as u32));
            requests.len() - free.len() - uring.submission().len()
        });
        **stuck = drained.err();
    }
}
