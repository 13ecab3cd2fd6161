// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps a number of equal-sized requests in flight.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::{Job, Progress, Stop};
use crate::direction::Direction;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::file::extent::Extent;
use crate::lend::{Completion, Flight, Operation, Ring, Span};

/// The buffer side of a transfer.
pub(crate) trait Buffer {
    /// Ensures that the requests up to `end` in the buffer can be submitted. Returns whether they
    /// can; if nothing is in flight, blocks until they can.
    fn prepare(&mut self, ring: &Ring, end: u64, so_far: Progress) -> Result<bool>;

    /// Does work that can overlap with requests in flight.
    fn meanwhile(&mut self, _: &Ring, _: Progress) -> Result<()> {
        Ok(())
    }

    /// The location of a byte: the ring's buffer, the offset in it, and the end of the range that
    /// this applies to.
    fn place(&self, offset: u64) -> (u16, u64, u64);
}

/// Moves all bytes of the job, or returns why not. No request is in flight on return, except with
/// [`Stop::Stuck`].
pub(crate) fn run(ring: &mut Ring, job: &Job<'_>, buffer: &mut dyn Buffer) -> Result<(), Stop> {
    let refused = |errno| Stop::Refused { errno, done: 0 };
    // Completions of other requests would be taken for this job's.
    if ring.in_flight() > 0 {
        return Err(refused(Errno::from_raw(libc::EBUSY)));
    }
    ring.set_file(0, job.file).map_err(refused)?;
    let mut state = State::new(job);
    let mut flight = ring.flight();
    // If the caller's progress callback panics, the kernel still owns the buffer.
    let end = catch_unwind(AssertUnwindSafe(|| state.go(&mut flight, buffer)));
    let mut late = Vec::new();
    let drained = flight.drain(|completion| late.extend(state.take(completion)));
    let end = end.unwrap_or_else(|panic| resume_unwind(panic));
    drained.map_err(Stop::Stuck)?;
    state.complete_all(late);
    state.conclude(end)
}

/// A request: the part of the extent that is not moved yet.
#[derive(Clone, Copy, Debug)]
struct Request(Extent);

struct State<'j> {
    job: &'j Job<'j>,
    /// Indexed by the user data of the submission.
    slots: Vec<Option<Request>>,
    free: Vec<usize>,
    again: VecDeque<Request>,
    /// Offset of the next request in the extent.
    next: u64,
    /// The failure closest to the start of the file.
    failed: Option<(u64, Failure)>,
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Errno(Errno),
    EndOfFile,
}

/// Why no more requests are made.
enum End {
    /// All have completed, or one has failed and the others have completed.
    Over,
    Cancelled,
    Memory(Error),
    /// The kernel refused to wait.
    Refused(Errno),
}

impl<'j> State<'j> {
    fn new(job: &'j Job<'j>) -> Self {
        let depth = job.depth.max(1) as usize;
        Self {
            job,
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

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Makes requests; some may be in flight on return.
    fn go(&mut self, ring: &mut Flight<'_>, buffer: &mut dyn Buffer) -> End {
        loop {
            if self.job.watch.is_cancelled() {
                return End::Cancelled;
            }
            let filled = if self.failed.is_none() { self.fill(ring, buffer) } else { Ok(()) };
            if let Err(end) = filled {
                return end;
            }
            if self.in_flight() == 0 {
                return End::Over;
            }
            if let Err(error) = buffer.meanwhile(ring, self.progress()) {
                return End::Memory(error);
            }
            if let Err(errno) = ring.wait(1) {
                return End::Refused(errno);
            }
            let mut completed = Vec::new();
            ring.reap(|completion| completed.extend(self.take(completion)));
            self.complete_all(completed);
        }
    }

    /// The result, once nothing is in flight.
    fn conclude(&self, end: End) -> Result<(), Stop> {
        // Not up to the failure if something before it had to be retried.
        let done = self.contiguous();
        let is_all = self.next == self.job.extent.len && self.again.is_empty();
        match (end, self.failed) {
            (End::Cancelled, _) => Err(Stop::Cancelled { done }),
            (End::Memory(error), _) => Err(Stop::Memory(error)),
            (End::Refused(errno), _) => Err(Stop::Refused { errno, done }),
            (End::Over, None) if is_all => Ok(()),
            (End::Over, None) => Err(Stop::Refused { errno: Errno::from_raw(libc::EIO), done }),
            (End::Over, Some((offset, Failure::Errno(errno)))) => {
                Err(Stop::Failed { offset, errno, done })
            }
            (End::Over, Some((end, Failure::EndOfFile))) => Err(Stop::Short { end }),
        }
    }

    /// Queues as many requests as the depth allows.
    fn fill(&mut self, ring: &mut Flight<'_>, buffer: &mut dyn Buffer) -> Result<(), End> {
        while let Some(&slot) = self.free.last() {
            let request = match self.again.pop_front() {
                Some(request) => request,
                None => match self.following(ring, buffer).map_err(End::Memory)? {
                    Some(request) => request,
                    None => return Ok(()),
                },
            };
            if let Err(errno) = ring.push(&self.request(request, slot, buffer)) {
                self.again.push_front(request);
                return Err(End::Refused(errno));
            }
            self.free.pop();
            self.slots[slot] = Some(request);
        }
        Ok(())
    }

    /// The next chunk, if its memory is allocated or there is nothing else to wait for.
    fn following(&mut self, ring: &Ring, buffer: &mut dyn Buffer) -> Result<Option<Request>> {
        let extent = self.job.extent;
        if self.next == extent.len {
            return Ok(None);
        }
        let start = extent.buf + self.next;
        let (_, _, limit) = buffer.place(start);
        let len = self.job.chunk.min(extent.len - self.next).min(limit - start);
        if !buffer.prepare(ring, start + len, self.progress())? {
            return Ok(None);
        }
        let request = Request(Extent { file: extent.file + self.next, buf: start, len });
        self.next += len;
        Ok(Some(request))
    }

    fn request(
        &self,
        Request(extent): Request,
        slot: usize,
        buffer: &dyn Buffer,
    ) -> crate::lend::Request {
        let (number, offset, _) = buffer.place(extent.buf);
        let span = Span { buffer: number, offset, len: extent.len as u32 };
        let position = extent.file;
        let operation = match self.job.direction {
            Direction::Load => Operation::Read { to: span, position },
            Direction::Save => Operation::Write { from: span, position },
        };
        crate::lend::Request { operation, file: 0, user_data: slot as u64, linked: false }
    }

    /// Interprets a completion: its request is no longer in flight.
    fn take(&mut self, completion: Completion) -> Option<(Extent, Result<u64, Errno>)> {
        let slot = completion.user_data() as usize;
        let Request(extent) = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some((extent, completion.result()))
    }

    fn complete_all(&mut self, completed: Vec<(Extent, Result<u64, Errno>)>) {
        for (extent, result) in completed {
            self.complete(extent, result);
        }
    }

    fn complete(&mut self, extent: Extent, result: Result<u64, Errno>) {
        let needed = self.job.needed_end.saturating_sub(extent.file).min(extent.len);
        match result {
            Err(errno) => match errno.raw() {
                libc::EINTR | libc::EAGAIN => self.again.push_back(Request(extent)),
                libc::EINVAL if self.job.ends_within_block(extent.file) => {
                    self.fail(extent.file, Failure::EndOfFile);
                }
                _ => self.fail(extent.file, Failure::Errno(errno)),
            },
            Ok(moved) if moved >= needed => self.job.watch.add(needed),
            Ok(moved) => {
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

    /// Bytes moved contiguously from the start of the extent.
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
    use std::io::Write as _;
    use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::control::{Control, Watch};
    use crate::lend::{self, Memory};
    use crate::memory::Mapping;

    const EIO: i32 = -libc::EIO;

    /// Converts the kernel's result.
    fn given(result: i32) -> Result<u64, Errno> {
        u64::try_from(result).map_err(|_| Errno::from_raw(-result))
    }

    /// A load of a whole extent, one request of at most 8192 bytes at a time.
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

    /// Puts requests of 4096 bytes for five chunks in flight and completes them with `results`: for
    /// each chunk, the results in the order of arrival.
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
            state.complete(Extent { file: at, buf: at, len: 4096 }, given(*result));
        }
        let failed =
            state.failed.map(|(offset, failure)| (offset, matches!(failure, Failure::EndOfFile)));
        let done = state.contiguous();
        (failed, done, state.again.iter().map(|request| request.0).collect())
    }

    #[test]
    fn full_completions_finish_the_transfer() {
        let all = [(0, 4096), (2, 4096), (1, 4096), (4, 4096), (3, 4096)];
        assert_eq!(after(20_480, &all), (None, 20_480, vec![]));
    }

    #[test]
    fn failure_at_the_lowest_offset_is_reported() {
        let results = [(0, 4096), (3, EIO), (2, 4096), (1, EIO), (4, 4096)];
        assert_eq!(after(20_480, &results), (Some((4096, false)), 4096, vec![]));
    }

    #[test]
    fn done_counts_from_the_start_of_the_range() {
        let control = Control::default();
        let watch = Watch::start(&control, 1 << 21);
        let file = std::io::stdin();
        let extent = Extent { file: 1 << 20, buf: 0, len: 5 * 4096 };
        let job = Job { chunk: 4096, depth: 5, ..job(file.as_fd(), extent, &watch) };
        let mut state = State::new(&job);
        state.next = extent.len;
        state.fail(extent.file + 2 * 4096, Failure::EndOfFile);
        assert_eq!(state.contiguous(), 2 * 4096);
    }

    #[test]
    fn request_to_be_repeated_is_not_counted() {
        let request = Extent { file: 0, buf: 0, len: 4096 };
        let results = [(0, -libc::EAGAIN), (1, EIO)];
        assert_eq!(after(20_480, &results), (Some((4096, false)), 0, vec![request]));
    }

    #[test]
    fn short_read_is_continued_where_it_stopped() {
        let rest = Extent { file: 4096 + 1024, buf: 4096 + 1024, len: 3072 };
        assert_eq!(after(20_480, &[(1, 1024)]), (None, 5120, vec![rest]));
    }

    #[test]
    fn read_ending_within_a_block_is_continued() {
        let rest = Extent { file: 4096 + 1000, buf: 4096 + 1000, len: 3096 };
        assert_eq!(after(20_480, &[(1, 1000)]), (None, 5096, vec![rest]));
    }

    #[test]
    fn empty_read_is_the_end_of_the_file() {
        assert_eq!(after(20_480, &[(1, 0)]), (Some((4096, true)), 4096, vec![]));
    }

    #[test]
    fn einval_within_a_block_is_the_end_of_file() {
        let control = Control::default();
        let watch = Watch::start(&control, 8192);
        let file = std::io::stdin();
        let mut job = job(file.as_fd(), Extent { file: 0, buf: 0, len: 8192 }, &watch);
        let einval = |job: &Job<'_>, at: u64| {
            let mut state = State::new(job);
            state.complete(Extent { file: at, buf: at, len: 8192 - at }, given(-libc::EINVAL));
            let (offset, failure) = state.failed.expect("it failed");
            (offset, matches!(failure, Failure::EndOfFile))
        };
        assert_eq!(einval(&job, 1000), (1000, true));
        assert_eq!(einval(&job, 1024), (1024, false));
        job.direction = Direction::Save;
        assert_eq!(einval(&job, 1000), (1000, false));
    }

    #[test]
    fn bytes_beyond_the_range_may_be_missing() {
        assert_eq!(after(16_484, &[(4, 100)]), (None, 20_480, vec![]));
        let rest = Extent { file: 16_483, buf: 16_483, len: 3997 };
        assert_eq!(after(16_484, &[(4, 99)]), (None, 16_483, vec![rest]));
    }

    #[test]
    fn interrupted_requests_are_repeated() {
        let request = Extent { file: 8192, buf: 8192, len: 4096 };
        assert_eq!(after(20_480, &[(2, -libc::EINTR)]), (None, 8192, vec![request]));
        assert_eq!(after(20_480, &[(2, -libc::EAGAIN)]), (None, 8192, vec![request]));
    }

    const LEN: u64 = 4096;

    /// Memory, and an action while a request is in flight.
    struct Block<F>(F);

    impl<F: FnMut(&Ring)> Buffer for Block<F> {
        fn prepare(&mut self, _: &Ring, _: u64, _: Progress) -> Result<bool> {
            Ok(true)
        }

        fn meanwhile(&mut self, ring: &Ring, _: Progress) -> Result<()> {
            ring.submit_some();
            (self.0)(ring);
            Ok(())
        }

        fn place(&self, offset: u64) -> (u16, u64, u64) {
            (0, offset, LEN)
        }
    }

    /// A ring and its memory; `None` without `io_uring`.
    fn ring(len: u64) -> Option<(Ring, Arc<Mapping>)> {
        let uring =
            lend::create(1, false).inspect_err(|error| println!("skipped: {error}")).ok()?;
        let mapping = Arc::new(Mapping::anonymous(len).expect("memory"));
        Some((Ring::new(uring, Memory::process(&mapping)), mapping))
    }

    /// Reads from a socket, which blocks until something is written to its other end.
    fn read(from: &UnixStream, ring: &mut Ring, buffer: &mut dyn Buffer) -> Result<(), Stop> {
        let control = Control::default();
        let watch = Watch::start(&control, LEN);
        let extent = Extent { file: 0, buf: 0, len: LEN };
        let job = Job { block: 1, chunk: LEN, ..job(from.as_fd(), extent, &watch) };
        run(ring, &job, buffer)
    }

    #[test]
    fn panicking_callback_waits_for_requests_in_flight() {
        let Some((mut ring, mapping)) = ring(LEN) else { return };
        let (from, mut to) = UnixStream::pair().expect("a pair");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                to.write_all(&[7; LEN as usize]).expect("written");
            });
            let mut block = Block(|_: &Ring| panic!("as a progress callback may"));
            let call = AssertUnwindSafe(|| read(&from, &mut ring, &mut block));
            assert!(catch_unwind(call).is_err());
        });
        assert_eq!(ring.stuck(), None);
        assert_eq!(mapping.to_vec(0, LEN).expect("bytes"), [7; LEN as usize], "it was waited for");
        drop(ring);
        assert_eq!(Arc::strong_count(&mapping), 1, "and is ours alone again");
    }

    #[test]
    fn memory_is_leaked_if_the_wait_fails() {
        let Some((mut ring, mapping)) = ring(LEN) else { return };
        let (from, _to) = UnixStream::pair().expect("a pair");
        let null = std::fs::File::open("/dev/null").expect("a file");
        let mut block = Block(|ring: &Ring| {
            let number = ring.as_fd().as_raw_fd();
            // SAFETY: the ring's descriptor now refers to another file, and is closed with the
            // ring.
            let fd = unsafe { libc::dup2(null.as_raw_fd(), number) };
            assert_eq!(fd, number);
        });
        let stop = read(&from, &mut ring, &mut block).expect_err("nothing came");
        assert!(matches!(stop, Stop::Stuck(errno) if errno.raw() == libc::EOPNOTSUPP), "{stop:?}");
        assert_eq!(ring.stuck(), Some(Errno::from_raw(libc::EOPNOTSUPP)));
        drop(ring);
        assert_eq!(Arc::strong_count(&mapping), 2, "whoever drops the ring");
    }

    #[test]
    fn panicking_callback_consumes_its_completion() {
        let Some((mut ring, _)) = ring(LEN) else { return };
        let zero = std::fs::File::open("/dev/zero").expect("open");
        ring.set_file(0, zero.as_fd()).expect("set");
        let to = Span { buffer: 0, offset: 0, len: 8 };
        let operation = Operation::Read { to, position: 0 };
        let request = lend::Request { operation, file: 0, user_data: 5, linked: false };
        ring.push(&request).expect("queued");
        let null = std::fs::File::open("/dev/null").expect("open");
        assert_eq!(ring.set_file(0, null.as_fd()).map_err(Errno::raw), Err(libc::EBUSY));
        ring.wait(1).expect("done");
        let panicked = catch_unwind(AssertUnwindSafe(|| ring.reap(|_| panic!("as it may"))));
        assert!(panicked.is_err());
        assert_eq!(ring.in_flight(), 0);
        ring.set_file(0, null.as_fd()).expect("nothing is in flight");
    }

    /// Memory in pieces of 4 KiB, each of which needs its own request.
    struct Pieces;

    impl Buffer for Pieces {
        fn prepare(&mut self, _: &Ring, _: u64, _: Progress) -> Result<bool> {
            Ok(true)
        }

        fn place(&self, offset: u64) -> (u16, u64, u64) {
            ((offset / 4096) as u16, offset % 4096, (offset / 4096 + 1) * 4096)
        }
    }

    #[test]
    fn requests_stay_within_their_piece() {
        let Some((ring, _)) = ring(1) else { return };
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

        // If the kernel refuses to wait, only what was done by then counts.
        state.next = 3096;
        let refused = state.conclude(End::Refused(Errno::from_raw(libc::EBADF)));
        let Err(Stop::Refused { errno, done }) = refused else { panic!("{refused:?}") };
        assert_eq!((errno.raw(), done), (libc::EBADF, 3096));
        let early = state.conclude(End::Over);
        assert!(matches!(early, Err(Stop::Refused { done: 3096, .. })), "{early:?}");
    }

    #[test]
    fn ring_with_foreign_requests_is_refused() {
        let Some((mut ring, mapping)) = ring(LEN) else { return };
        mapping.fill(0, LEN, 1).expect("filled");
        let zero = std::fs::File::open("/dev/zero").expect("open");
        ring.set_file(0, zero.as_fd()).expect("set");
        let span = Span { buffer: 0, offset: 0, len: 8 };
        let operation = Operation::Read { to: span, position: 0 };
        let request = lend::Request { operation, file: 0, user_data: 0, linked: false };
        ring.push(&request).expect("queued");
        let (from, mut to) = UnixStream::pair().expect("a pair");
        to.write_all(&[7; LEN as usize]).expect("written");
        let mut block = Block(|_: &Ring| ());
        let stop = read(&from, &mut ring, &mut block).expect_err("one is there");
        assert!(
            matches!(stop, Stop::Refused { errno, .. } if errno.raw() == libc::EBUSY),
            "{stop:?}"
        );
        // There is room for one.
        assert_eq!(ring.push(&request).map_err(Errno::raw), Err(libc::EBUSY));
    }
}
