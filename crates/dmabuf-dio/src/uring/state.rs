// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one transfer: which are made, and what becomes of them.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;

use io_uring::types::Fixed;
use io_uring::{IoUring, opcode, squeue};

use super::{Job, Memory, Place, Progress, Stop, wait};
use crate::errno::Errno;
use crate::error::{Direction, Error, Result};
use crate::extent::Extent;

/// A request: the part of the extent that is still to be moved.
#[derive(Clone, Copy, Debug)]
struct Request(Extent);

pub(super) struct State<'j> {
    job: &'j Job<'j>,
    /// Whether the file is registered with the ring.
    pub(super) fixed_file: bool,
    /// By the user data of the submission.
    slots: Vec<Option<Request>>,
    free: Vec<usize>,
    again: VecDeque<Request>,
    /// Offset in the extent of the next request.
    next: u64,
    /// The failure nearest to the start of the file.
    failed: Option<(u64, Failure)>,
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Errno(Errno),
    EndOfFile,
}

/// Why no more requests are made.
pub(super) enum End {
    /// All are over, or one has failed and the others are over.
    Over,
    Cancelled,
    Memory(Error),
    /// The kernel refused to wait.
    Refused(Errno),
}

impl<'j> State<'j> {
    pub(super) fn new(job: &'j Job<'j>) -> Self {
        let depth = job.depth.max(1) as usize;
        Self {
            job,
            fixed_file: false,
            slots: vec![None; depth],
            free: (0..depth).rev().collect(),
            again: VecDeque::new(),
            next: 0,
            failed: None,
        }
    }

    fn progress(&self) -> Progress {
        Progress { done: self.job.extent.buf + self.contiguous(), idle: self.in_flight() == 0 }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Makes requests, and may leave some in flight.
    pub(super) fn go(&mut self, ring: &mut IoUring, memory: &mut dyn Memory) -> End {
        loop {
            if self.job.watch.is_cancelled() {
                return End::Cancelled;
            }
            if self.failed.is_none()
                && let Err(error) = self.fill(ring, memory)
            {
                return End::Memory(error);
            }
            if self.in_flight() == 0 {
                return End::Over;
            }
            if let Err(error) = memory.meanwhile(ring, self.progress()) {
                return End::Memory(error);
            }
            if let Err(errno) = wait(ring, 1) {
                return End::Refused(errno);
            }
            let completed = self.take(ring);
            self.complete_all(completed);
        }
    }

    /// What came of it all, when nothing is in flight any more.
    pub(super) fn conclude(&self, end: End) -> Result<(), Stop> {
        // Less than up to a failure, if something before it was to be repeated.
        let done = self.contiguous();
        let offset = self.job.extent.file + self.next;
        match (end, self.failed) {
            (End::Cancelled, _) => Err(Stop::Cancelled { done }),
            (End::Memory(error), _) => Err(Stop::Memory(error)),
            (End::Refused(errno), _) => Err(Stop::Failed { offset, errno, done }),
            (End::Over, None) => Ok(()),
            (End::Over, Some((offset, Failure::Errno(errno)))) => {
                Err(Stop::Failed { offset, errno, done })
            }
            (End::Over, Some((end, Failure::EndOfFile))) => Err(Stop::Short { end }),
        }
    }

    /// Queues as many requests as there may be.
    fn fill(&mut self, ring: &mut IoUring, memory: &mut dyn Memory) -> Result<()> {
        while let Some(&slot) = self.free.last() {
            let request = match self.again.pop_front() {
                Some(request) => request,
                None => match self.following(ring, memory)? {
                    Some(request) => request,
                    None => return Ok(()),
                },
            };
            let entry = self.entry(request, memory).user_data(slot as u64);
            // SAFETY: the memory is valid until `run` returns, by its contract, and `run` waits
            // for every request.
            let pushed = unsafe { ring.submission().push(&entry) };
            if pushed.is_err() {
                // The ring is as deep as there are slots, so this does not happen; if it did,
                // the request would wait for the next round.
                self.again.push_front(request);
                return Ok(());
            }
            self.free.pop();
            self.slots[slot] = Some(request);
        }
        Ok(())
    }

    /// The next chunk, if its memory is there or nothing else can be waited for.
    fn following(&mut self, ring: &IoUring, memory: &mut dyn Memory) -> Result<Option<Request>> {
        let extent = self.job.extent;
        if self.next == extent.len {
            return Ok(None);
        }
        let start = extent.buf + self.next;
        let (_, limit) = memory.place(start);
        let len = self.job.chunk.min(extent.len - self.next).min(limit - start);
        if !memory.prepare(ring, start + len, self.progress())? {
            return Ok(None);
        }
        let request = Request(Extent { file: extent.file + self.next, buf: start, len });
        self.next += len;
        Ok(Some(request))
    }

    fn entry(&self, Request(extent): Request, memory: &dyn Memory) -> squeue::Entry {
        let len = extent.len as u32;
        let raw = io_uring::types::Fd(self.job.file.as_raw_fd());
        macro_rules! build {
            ($operation:ident, $addr:expr $(, $index:expr)?) => {
                if self.fixed_file {
                    opcode::$operation::new(Fixed(0), $addr, len $(, $index)?)
                        .offset(extent.file).build()
                } else {
                    opcode::$operation::new(raw, $addr, len $(, $index)?)
                        .offset(extent.file).build()
                }
            };
        }
        let (place, _) = memory.place(extent.buf);
        match (self.job.direction, place) {
            (Direction::Load, Place::Fixed { index, addr }) => {
                build!(ReadFixed, addr as *mut u8, index)
            }
            (Direction::Load, Place::Plain { addr }) => build!(Read, addr as *mut u8),
            (Direction::Save, Place::Fixed { index, addr }) => {
                build!(WriteFixed, addr as *const u8, index)
            }
            (Direction::Save, Place::Plain { addr }) => build!(Write, addr as *const u8),
        }
    }

    /// Takes the completions that are there: these requests are not in flight any more.
    pub(super) fn take(&mut self, ring: &mut IoUring) -> Vec<(Extent, i32)> {
        let completed = ring.completion().filter_map(|completion| {
            let slot = completion.user_data() as usize;
            let Request(extent) = self.slots.get_mut(slot)?.take()?;
            self.free.push(slot);
            Some((extent, completion.result()))
        });
        completed.collect()
    }

    pub(super) fn complete_all(&mut self, completed: Vec<(Extent, i32)>) {
        for (extent, result) in completed {
            self.complete(extent, result);
        }
    }

    fn complete(&mut self, extent: Extent, result: i32) {
        let needed = self.job.needed_end.saturating_sub(extent.file).min(extent.len);
        match result {
            _ if result < 0 => match -result {
                libc::EINTR | libc::EAGAIN => self.again.push_back(Request(extent)),
                libc::EINVAL if self.job.ends_within_block(extent.file) => {
                    self.fail(extent.file, Failure::EndOfFile);
                }
                number => self.fail(extent.file, Failure::Errno(Errno::from_raw(number))),
            },
            moved if moved as u64 >= needed => self.job.watch.add(needed),
            moved => {
                let moved = moved as u64;
                self.job.watch.add(moved);
                let rest = Extent {
                    file: extent.file + moved,
                    buf: extent.buf + moved,
                    len: extent.len - moved,
                };
                if moved == 0 {
                    self.fail(rest.file, Failure::EndOfFile);
                } else {
                    self.again.push_back(Request(rest));
                }
            }
        }
    }

    fn fail(&mut self, offset: u64, failure: Failure) {
        if self.failed.is_none_or(|(first, _)| offset < first) {
            self.failed = Some((offset, failure));
        }
    }

    /// Bytes moved from the start of the extent without a gap.
    fn contiguous(&self) -> u64 {
        let waiting = self.slots.iter().flatten().chain(&self.again);
        waiting
            .map(|Request(extent)| extent.file)
            .chain(self.failed.map(|(offset, _)| offset))
            .map(|offset| offset - self.job.extent.file)
            .fold(self.next, u64::min)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, BorrowedFd};

    use super::*;
    use crate::control::{Control, Watch};

    const EIO: i32 = -libc::EIO;

    /// A load of all of an extent, one request of at most 8192 bytes at a time.
    fn job<'a>(file: BorrowedFd<'a>, extent: Extent, watch: &'a Watch<'a>) -> Job<'a> {
        Job {
            file,
            direction: Direction::Load,
            extent,
            needed_end: extent.file + extent.len,
            block: 512,
            chunk: 8192,
            depth: 1,
            watch,
        }
    }

    /// Lets requests of 4096 bytes for five chunks be in flight, and completes them as told: by
    /// chunk, the results in the order of arrival.
    fn after(needed_end: u64, results: &[(u64, i32)]) -> (Option<(u64, bool)>, u64, Vec<Extent>) {
        let control = Control::default();
        let watch = Watch::start(&control, needed_end);
        let file = std::io::stdin();
        let extent = Extent { file: 0, buf: 0, len: 5 * 4096 };
        let job = Job { needed_end, chunk: 4096, depth: 5, ..job(file.as_fd(), extent, &watch) };
        let mut state = State::new(&job);
        state.next = 5 * 4096;
        for (chunk, result) in results {
            let at = chunk * 4096;
            state.complete(Extent { file: at, buf: at, len: 4096 }, *result);
        }
        let failed =
            state.failed.map(|(offset, failure)| (offset, matches!(failure, Failure::EndOfFile)));
        let done = state.contiguous();
        (failed, done, state.again.iter().map(|request| request.0).collect())
    }

    #[test]
    fn all_of_it() {
        let all = [(0, 4096), (2, 4096), (1, 4096), (4, 4096), (3, 4096)];
        assert_eq!(after(20_480, &all), (None, 20_480, vec![]));
    }

    #[test]
    fn the_first_failure_counts() {
        let results = [(0, 4096), (3, EIO), (2, 4096), (1, EIO), (4, 4096)];
        assert_eq!(after(20_480, &results), (Some((4096, false)), 4096, vec![]));
    }

    #[test]
    fn what_is_to_be_repeated_is_not_done() {
        let request = Extent { file: 0, buf: 0, len: 4096 };
        let results = [(0, -libc::EAGAIN), (1, EIO)];
        assert_eq!(after(20_480, &results), (Some((4096, false)), 0, vec![request]));
    }

    #[test]
    fn a_short_read_goes_on_where_it_stopped() {
        let rest = Extent { file: 4096 + 1024, buf: 4096 + 1024, len: 3072 };
        assert_eq!(after(20_480, &[(1, 1024)]), (None, 5120, vec![rest]));
    }

    #[test]
    fn a_read_that_ends_within_a_block_goes_on_as_well() {
        let rest = Extent { file: 4096 + 1000, buf: 4096 + 1000, len: 3096 };
        assert_eq!(after(20_480, &[(1, 1000)]), (None, 5096, vec![rest]));
    }

    #[test]
    fn a_read_of_nothing_is_the_end_of_the_file() {
        assert_eq!(after(20_480, &[(1, 0)]), (Some((4096, true)), 4096, vec![]));
    }

    #[test]
    fn who_takes_whole_blocks_only_ends_within_one_at_the_end() {
        let control = Control::default();
        let watch = Watch::start(&control, 8192);
        let file = std::io::stdin();
        let mut job = job(file.as_fd(), Extent { file: 0, buf: 0, len: 8192 }, &watch);
        let einval = |job: &Job<'_>, at: u64| {
            let mut state = State::new(job);
            state.complete(Extent { file: at, buf: at, len: 8192 - at }, -libc::EINVAL);
            let (offset, failure) = state.failed.expect("it failed");
            (offset, matches!(failure, Failure::EndOfFile))
        };
        assert_eq!(einval(&job, 1000), (1000, true));
        assert_eq!(einval(&job, 1024), (1024, false));
        job.direction = Direction::Save;
        assert_eq!(einval(&job, 1000), (1000, false));
    }

    #[test]
    fn what_lies_behind_the_range_may_be_missing() {
        assert_eq!(after(16_484, &[(4, 100)]), (None, 20_480, vec![]));
        let rest = Extent { file: 16_483, buf: 16_483, len: 3997 };
        assert_eq!(after(16_484, &[(4, 99)]), (None, 16_483, vec![rest]));
    }

    #[test]
    fn interrupted_requests_are_made_again() {
        let request = Extent { file: 8192, buf: 8192, len: 4096 };
        assert_eq!(after(20_480, &[(2, -libc::EINTR)]), (None, 8192, vec![request]));
        assert_eq!(after(20_480, &[(2, -libc::EAGAIN)]), (None, 8192, vec![request]));
    }

    /// Memory in pieces of 4 KiB, each of which has to be reached by a request of its own.
    struct Pieces;

    impl Memory for Pieces {
        fn prepare(&mut self, _: &IoUring, _: u64, _: Progress) -> Result<bool> {
            Ok(true)
        }

        fn place(&self, offset: u64) -> (Place, u64) {
            (Place::Plain { addr: offset }, (offset / 4096 + 1) * 4096)
        }

        fn keep(&self) {}
    }

    #[test]
    fn no_request_leaves_the_piece_that_it_begins_in() {
        let ring = match crate::uring::create(1, false) {
            Ok(ring) => ring,
            Err(error) => return println!("skipped: no io_uring: {error}"),
        };
        let control = Control::default();
        let watch = Watch::start(&control, 10_000);
        let file = std::io::stdin();
        let extent = Extent { file: 70_000, buf: 1000, len: 10_000 };
        let job = job(file.as_fd(), extent, &watch);
        let mut state = State::new(&job);
        let mut made = Vec::new();
        while let Some(Request(extent)) = state.following(&ring, &mut Pieces).expect("memory") {
            made.push((extent.file, extent.buf, extent.len));
        }
        assert_eq!(made, [(70_000, 1000, 3096), (73_096, 4096, 4096), (77_192, 8192, 2808)]);

        // If the kernel refuses to wait, the next byte to be asked for is where it ended.
        state.next = 3096;
        let refused = state.conclude(End::Refused(Errno::from_raw(libc::EBADF)));
        let Err(Stop::Failed { offset, errno, done }) = refused else { panic!("{refused:?}") };
        assert_eq!((offset, errno.raw(), done), (73_096, libc::EBADF, 3096));
    }
}
