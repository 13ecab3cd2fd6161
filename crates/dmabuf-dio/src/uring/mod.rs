// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps a number of requests of one size in flight on an `io_uring`.

mod state;

use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use io_uring::IoUring;
use io_uring::types::{SubmitArgs, Timespec};

use crate::control::Watch;
use crate::errno::Errno;
use crate::error::{Direction, Error, Result};
use crate::extent::Extent;
use state::State;

/// How often a cancellation is looked for while requests are in flight.
const TICK: Timespec = Timespec::new().nsec(100_000_000);
/// How often in a row the kernel refuses to wait, with 1 ms between, until that is taken to be for
/// good.
const PATIENCE: u32 = if cfg!(test) { 20 } else { 1000 };

/// Where a request finds its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In a fixed buffer, at the address as that buffer counts it.
    Fixed { index: u16, addr: u64 },
    /// At an address of the process.
    Plain { addr: u64 },
}

/// The buffer side of a transfer.
pub(crate) trait Memory {
    /// Makes sure that the requests up to `end` in the buffer can be submitted. Returns whether
    /// they can, and does not return without if nothing is in flight.
    fn prepare(&mut self, ring: &IoUring, end: u64, so_far: Progress) -> Result<bool>;

    /// Does what can be done while requests are in flight.
    fn meanwhile(&mut self, _: &IoUring, _: Progress) -> Result<()> {
        Ok(())
    }

    /// Where a byte of the buffer is, and up to where in the buffer that holds.
    fn place(&self, offset: u64) -> (Place, u64);

    /// Sees to it that the memory is there as long as the process: see [`Stop::Stuck`].
    fn keep(&self);
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Up to where in the buffer everything has been moved.
    pub(crate) done: u64,
    /// Whether nothing is in flight.
    pub(crate) idle: bool,
}

/// Why a transfer ended early. `done` counts from the start of the extent, without a gap.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The kernel failed a request at this offset in the file.
    Failed { offset: u64, errno: Errno, done: u64 },
    /// The file ends here.
    Short { end: u64 },
    /// The watch was cancelled.
    Cancelled { done: u64 },
    /// The memory could not be prepared.
    Memory(Error),
    /// The kernel does not wait for what is in flight any more. It may use the memory at any time,
    /// which therefore is kept.
    Stuck(Errno),
}

/// One transfer.
pub(crate) struct Job<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) direction: Direction,
    pub(crate) extent: Extent,
    /// Up to where in the file the bytes have to be there: a read may go beyond the file's end.
    pub(crate) needed_end: u64,
    /// What offsets may have to be multiples of; 1 when buffered.
    pub(crate) block: u64,
    pub(crate) chunk: u64,
    pub(crate) depth: u32,
    pub(crate) watch: &'a Watch<'a>,
}

impl Job<'_> {
    /// Whether a read that is refused at `offset` in the file, where another ended within a block,
    /// was at the file's end. Only reading nothing says that it was; but who takes whole blocks
    /// only, and so does not read on from there, ends within one nowhere else.
    pub(crate) fn ends_within_block(&self, offset: u64) -> bool {
        self.direction == Direction::Load && !offset.is_multiple_of(self.block)
    }
}

/// Creates a ring, which polls for completions if `polled`, or says why there is none.
pub(crate) fn create(depth: u32, polled: bool) -> std::io::Result<IoUring> {
    let mut builder = IoUring::builder();
    if polled {
        builder.setup_iopoll();
    }
    let mut modern = builder.clone();
    modern.setup_single_issuer().setup_defer_taskrun();
    match modern.build(depth.max(1)) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => builder.build(depth.max(1)),
        result => result,
    }
}

/// Moves all bytes of the job, or says why not. No request is in flight any more on return, but
/// for [`Stop::Stuck`].
///
/// # Safety
///
/// Every [`Place`] that `memory` gives has to be valid for the chunk that begins there, and
/// writable when loading, until this returns; and for ever if it calls [`Memory::keep`].
pub(crate) unsafe fn run(
    ring: &mut IoUring,
    job: &Job<'_>,
    memory: &mut dyn Memory,
) -> Result<(), Stop> {
    let mut state = State::new(job);
    let registered = ring.submitter().register_files(&[job.file.as_raw_fd()]);
    state.fixed_file = registered.is_ok();
    // If the caller's progress callback panics, the memory is still the kernel's.
    let end = catch_unwind(AssertUnwindSafe(|| state.go(ring, memory)));
    let mut late = Vec::new();
    let drained = drain(ring, |ring| {
        late.extend(state.take(ring));
        state.in_flight()
    });
    if drained.is_err() {
        memory.keep();
    } else if state.fixed_file {
        let _ = ring.submitter().unregister_files();
    }
    let end = end.unwrap_or_else(|panic| resume_unwind(panic));
    drained.map_err(Stop::Stuck)?;
    state.complete_all(late);
    state.conclude(end)
}

/// Submits what is queued and waits for completions, a signal or the tick.
pub(crate) fn wait(ring: &IoUring, completions: usize) -> Result<(), Errno> {
    let args = SubmitArgs::new().timespec(&TICK);
    match ring.submitter().submit_with_args(completions, &args) {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
            _ => Err(Errno::from(&error)),
        },
    }
}

/// Waits for everything in flight: the memory is the kernel's until then. `take` takes the
/// completions that are there, and says how many requests are left.
///
/// # Errors
///
/// Why the kernel refuses to wait, for good as it seems: nobody can say when requests end then, so
/// their memory must not be used for anything else, ever.
pub(crate) fn drain(
    ring: &mut IoUring,
    mut take: impl FnMut(&mut IoUring) -> usize,
) -> Result<(), Errno> {
    let mut refused = 0;
    while take(ring) > 0 {
        match wait(ring, 1) {
            Ok(()) => refused = 0,
            Err(errno) if refused == PATIENCE => return Err(errno),
            Err(_) => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write as _;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::control::Control;
    use crate::memory::Mapping;

    const LEN: u64 = 4096;

    /// Memory, and what happens while a request is in flight.
    struct Block<F> {
        mapping: Mapping,
        meanwhile: F,
        kept: Cell<bool>,
    }

    impl<F: FnMut(&IoUring)> Memory for Block<F> {
        fn prepare(&mut self, _: &IoUring, _: u64, _: Progress) -> Result<bool> {
            Ok(true)
        }

        fn meanwhile(&mut self, ring: &IoUring, _: Progress) -> Result<()> {
            ring.submit().expect("submitted");
            (self.meanwhile)(ring);
            Ok(())
        }

        fn place(&self, offset: u64) -> (Place, u64) {
            (Place::Plain { addr: self.mapping.at(offset) as u64 }, LEN)
        }

        fn keep(&self) {
            self.mapping.keep();
            self.kept.set(true);
        }
    }

    /// Reads from a socket, which takes until something is written to its other end.
    fn read<F: FnMut(&IoUring)>(from: &UnixStream, block: &mut Block<F>) -> Result<(), Stop> {
        let control = Control::default();
        let job = Job {
            file: from.as_fd(),
            direction: Direction::Load,
            extent: Extent { file: 0, buf: 0, len: LEN },
            needed_end: LEN,
            block: 1,
            chunk: LEN,
            depth: 1,
            watch: &Watch::start(&control, LEN),
        };
        let mut ring = create(1, false).expect("a ring");
        // SAFETY: the place is the whole of the mapping, which lives longer or is kept.
        unsafe { run(&mut ring, &job, block) }
    }

    fn block<F>(meanwhile: F) -> Block<F> {
        let mapping = Mapping::anonymous(LEN).expect("memory");
        Block { mapping, meanwhile, kept: Cell::new(false) }
    }

    fn is_missing() -> bool {
        let missing = create(1, false).err();
        missing.inspect(|error| println!("skipped: no io_uring: {error}")).is_some()
    }

    #[test]
    fn who_panics_waits_for_what_is_in_flight() {
        if is_missing() {
            return;
        }
        let (from, mut to) = UnixStream::pair().expect("a pair");
        let mut block = block(|_: &IoUring| panic!("as a progress callback may"));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                to.write_all(&[7; LEN as usize]).expect("written");
            });
            let panicked = catch_unwind(AssertUnwindSafe(|| read(&from, &mut block)));
            assert!(panicked.is_err());
        });
        assert!(!block.kept.get());
        // SAFETY: the mapping has that many bytes, and the request that wrote them is over.
        let bytes = unsafe { std::slice::from_raw_parts(block.mapping.as_ptr(), LEN as usize) };
        assert!(bytes.iter().all(|byte| *byte == 7), "it was waited for");
    }

    #[test]
    fn memory_is_kept_if_the_kernel_does_not_wait() {
        if is_missing() {
            return;
        }
        let (from, _to) = UnixStream::pair().expect("a pair");
        let null = std::fs::File::open("/dev/null").expect("a file");
        let mut block = block(|ring: &IoUring| {
            // SAFETY: the ring's descriptor becomes another file's, and is closed with the ring.
            let fd = unsafe { libc::dup2(null.as_raw_fd(), ring.as_raw_fd()) };
            assert_eq!(fd, ring.as_raw_fd());
        });
        let stop = read(&from, &mut block).expect_err("nothing came");
        assert!(matches!(stop, Stop::Stuck(errno) if errno.raw() == libc::EOPNOTSUPP), "{stop:?}");
        assert!(block.kept.get());
    }
}
