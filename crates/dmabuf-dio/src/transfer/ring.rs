// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job's requests on a ring, several of them in flight.

use super::plan::Plan;
use super::{Job, Progress, Stop};
use crate::direction::Direction;
use crate::errno::Errno;
use crate::error::Result;
use crate::file::extent::Extent;
use crate::lend::{self, Halt, OPENED, Operation, Planner, Ring, Span};

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
    ring.set_file(OPENED, job.file).map_err(refused)?;
    let mut transfer = Transfer { job, plan: Plan::new(job), buffer, cancelled: false };
    let end = lend::run(ring, &mut transfer, job.depth as usize, 1);
    let done = transfer.plan.done();
    match end {
        Err(Halt::Stuck(errno)) => Err(Stop::Stuck(errno)),
        Err(Halt::Planner(error)) => Err(Stop::Memory(error)),
        Err(Halt::Refused(errno)) => Err(Stop::Refused { errno, done }),
        Ok(()) if transfer.cancelled => Err(Stop::Cancelled { done }),
        Ok(()) => transfer.plan.finish(),
    }
}

struct Transfer<'a, 'j> {
    job: &'j Job<'j>,
    plan: Plan<'j>,
    buffer: &'a mut dyn Buffer,
    cancelled: bool,
}

impl Transfer<'_, '_> {
    fn progress(&self) -> Progress {
        Progress { done: self.job.extent.buf + self.plan.done(), idle: self.plan.is_idle() }
    }
}

impl Planner for Transfer<'_, '_> {
    type Request = Extent;

    /// The next chunk, if its memory is allocated or there is nothing else to wait for.
    fn next(&mut self, ring: &mut Ring, request: &mut Extent) -> Result<bool> {
        self.cancelled |= self.job.watch.is_cancelled();
        if self.cancelled {
            return Ok(false);
        }
        let Some(next) = self.plan.next(|offset| self.buffer.place(offset).2) else {
            return Ok(false);
        };
        let so_far = self.progress();
        if !self.plan.repeats() && !self.buffer.prepare(ring, next.buf_end(), so_far)? {
            return Ok(false);
        }
        self.plan.start(next);
        *request = next;
        Ok(true)
    }

    fn ask(&self, request: &Extent) -> (Operation, u32) {
        let (buffer, offset, _) = self.buffer.place(request.buf);
        let span = Span { buffer, offset, len: request.len as u32 };
        let position = request.file;
        let operation = match self.job.direction {
            Direction::Load => Operation::Read { to: span, position },
            Direction::Save => Operation::Write { from: span, position },
        };
        (operation, OPENED)
    }

    fn meanwhile(&mut self, ring: &Ring) -> Result<()> {
        if self.cancelled {
            return Ok(());
        }
        self.buffer.meanwhile(ring, self.progress())
    }

    fn complete(&mut self, request: &Extent, result: Result<u64, Errno>) {
        self.plan.complete(*request, result);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::{AsFd as _, AsRawFd as _};
    use std::os::unix::net::UnixStream;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::control::{Control, Watch};
    use crate::lend::{self, Memory};
    use crate::memory::Mapping;

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
        let job = Job { block: 1, chunk: LEN, ..Job::of(from.as_fd(), extent, &watch) };
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
        let Some((mut ring, _)) = ring(1) else { return };
        let control = Control::default();
        let watch = Watch::start(&control, 10_000);
        let file = std::io::stdin();
        let extent = Extent { file: 70_000, buf: 1000, len: 10_000 };
        let job = Job::of(file.as_fd(), extent, &watch);
        let (plan, buffer) = (Plan::new(&job), &mut Pieces);
        let mut transfer = Transfer { job: &job, plan, buffer, cancelled: false };
        let mut made = Vec::new();
        let mut extent = Extent::default();
        while transfer.next(&mut ring, &mut extent).expect("memory") {
            made.push((extent.file, extent.buf, extent.len));
        }
        assert_eq!(made, [(70_000, 1000, 3096), (73_096, 4096, 4096), (77_192, 8192, 2808)]);
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
