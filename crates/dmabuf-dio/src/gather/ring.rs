// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submits the requests of a gather to a ring, in batches.

use std::sync::Arc;
use std::thread::ThreadId;

use io_uring::IoUring;

use super::piece::LIMIT;
use super::plan::{self, Plan};
use crate::backend::Backend;
use crate::control::Watch;
use crate::direction::Direction;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::file::File;
use crate::lend::{
    self, Attached, BUFFERED, Cut, Halt, Memory, OPENED, Operation, Planner, Ring, Span,
};
use crate::memory::Mapping;
use crate::refusal;
use crate::refusal::attempt::Attempt;

/// The maximum number of completions to wait for at a time.
const BATCH: u32 = 32;
/// The maximum number of registered buffers in a ring.
const MAX_BUFFERS: u64 = 1 << 14;

/// The memory that a gather reads into.
#[derive(Debug)]
pub(super) enum Target {
    /// A dma-buf of `len` bytes.
    Attached {
        attached: Attached,
        len: u64,
    },
    Mapped(Arc<Mapping>),
}

/// A ring for requests from one file to one buffer. It has a registered buffer for every `1 <<
/// shift` bytes. Each overlaps the next by the length of a request, so that no request must be
/// split at a boundary.
#[derive(Debug)]
pub(super) struct Batches {
    /// `None` once requests cannot be waited for: their completions could not be distinguished from
    /// later ones.
    ring: Option<Ring>,
    shift: u32,
    /// The thread that owns the ring: the kernel accepts requests from no other. `None` while the
    /// ring may hold requests that the kernel did not accept.
    thread: Option<ThreadId>,
    /// Why requests cannot be waited for.
    stuck: Option<Errno>,
    target: Target,
    settings: RingSettings,
    /// Why completions are not polled; `None` if they are.
    pub(super) why_unpolled: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RingSettings {
    pub(super) backend: Backend,
    pub(super) depth: u32,
    /// Bytes per request.
    pub(super) limit: u64,
}

/// How [`Batches::drive`] ended.
enum Driven {
    /// No request is left, or the watch is cancelled.
    Done,
    /// The disk does not support polling: the requests need another ring.
    Unpolled(Errno),
}

impl Batches {
    /// Sets up a ring. It polls if `why_unpolled` is `None`.
    pub(super) fn new(
        file: &File,
        target: Target,
        settings: RingSettings,
        why_unpolled: Option<String>,
    ) -> Result<Self, Attempt> {
        let create = |polled| refusal::ring(settings.backend, settings.depth, polled);
        let (uring, why_unpolled) = match why_unpolled {
            Some(why) => (create(false)?, Some(why)),
            None => match create(true) {
                Ok(uring) => (uring, None),
                Err(refusal) => (create(false)?, Some(format!("not polled: {}", refusal.reason))),
            },
        };
        let shift = match &target {
            Target::Attached { attached, len } => slot_shift(*len, attached.segments()),
            // The limit is 1 GiB per buffer; offsets are found in constant time.
            Target::Mapped(_) => 29,
        };
        let (ring, thread, stuck) = (None, None, None);
        let mut batches = Self { ring, shift, thread, stuck, target, settings, why_unpolled };
        batches.set_up(uring, file)?;
        Ok(batches)
    }

    /// Replaces the ring by an equal one for the calling thread.
    fn renew(&mut self, file: &File) -> Result<(), Attempt> {
        let RingSettings { backend, depth, .. } = self.settings;
        // Dropped first, to release the memory.
        self.ring = None;
        self.thread = None;
        self.set_up(refusal::ring(backend, depth, self.why_unpolled.is_none())?, file)
    }

    /// Gives a bare ring the memory and the file.
    fn set_up(&mut self, mut uring: IoUring, file: &File) -> Result<(), Attempt> {
        let RingSettings { backend, limit, .. } = self.settings;
        let cut = Cut { step: 1 << self.shift, overlap: limit };
        let refused = |error| refusal::lending(backend, &error);
        let memory = match &self.target {
            Target::Attached { attached, len } => {
                let pieces = cut.pieces(0..*len).map(|(start, len)| (attached, start, len));
                Memory::lend(&mut uring, pieces, Direction::Load).map_err(refused)?
            }
            Target::Mapped(mapping) => Memory::registered(&uring, mapping, cut),
        };
        let mut ring = Ring::new(uring, memory);
        ring.set_file(OPENED, file.fd()).map_err(|errno| failed(file, errno))?;
        self.ring = Some(ring);
        self.thread = Some(std::thread::current().id());
        Ok(())
    }

    /// Makes all requests of the plan, until the watch is cancelled. No request is in flight on
    /// return, except after [`Error::InFlight`], which every later call returns as well.
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
            // Restored only after a clean end.
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

    fn check_stuck(&mut self, file: &File) -> Result<()> {
        self.stuck = self.stuck.or_else(|| self.ring.as_ref()?.stuck());
        let Some(errno) = self.stuck else { return Ok(()) };
        let (path, direction) = (file.path.clone(), Direction::Load);
        Err(Error::InFlight { path, direction, errno })
    }

    fn drive(&mut self, plan: &mut Plan<'_>, file: &File, watch: &Watch<'_>) -> Result<Driven> {
        let (polled, shift, depth) = (self.why_unpolled.is_none(), self.shift, self.settings.depth);
        let Some(ring) = &mut self.ring else {
            return Err(failed(file, Errno::from_raw(libc::ENOTCONN)));
        };
        let mut call = Call { plan, file, watch, shift, polled, unpolled: None };
        // Half of the requests stay in flight while others are prepared.
        let batch = (depth / 2).clamp(1, BATCH) as usize;
        match lend::run(ring, &mut call, depth as usize, batch) {
            Ok(()) => Ok(call.unpolled.map_or(Driven::Done, Driven::Unpolled)),
            Err(Halt::Planner(error)) => Err(error),
            Err(Halt::Refused(errno) | Halt::Stuck(errno)) => Err(failed(file, errno)),
        }
    }

    /// Number of contiguous segments of the buffer, if known.
    pub(super) fn segments(&self) -> Option<u32> {
        match &self.target {
            Target::Attached { attached, .. } => Some(attached.segments()),
            Target::Mapped(_) => None,
        }
    }
}

/// The length of a slot, as a shift. To find an offset the kernel walks the slot's contiguous
/// segments, so a slot should have few; but filling a slot takes about as long as a request.
fn slot_shift(len: u64, segments: u32) -> u32 {
    /// Segments in a slot.
    const FEW: u64 = 16;
    let wanted = (len / u64::from(segments.max(1))).saturating_mul(FEW);
    let least = len.div_ceil(MAX_BUFFERS).max(LIMIT);
    wanted.clamp(least, least.max(256 << 20)).next_power_of_two().trailing_zeros()
}

/// A call on its way.
struct Call<'c, 'p> {
    plan: &'c mut Plan<'p>,
    file: &'c File,
    watch: &'c Watch<'c>,
    shift: u32,
    polled: bool,
    /// The disk does not support polling, so the remaining pieces need another ring.
    unpolled: Option<Errno>,
}

impl Planner for Call<'_, '_> {
    type Request = plan::Request;

    #[inline]
    fn next(&mut self, ring: &mut Ring, request: &mut plan::Request) -> Result<bool> {
        if self.unpolled.is_some() || self.watch.is_cancelled() || !self.plan.next(request) {
            return Ok(false);
        }
        if request.buffered && !ring.has_file(BUFFERED) {
            let set = ring.set_file(BUFFERED, self.file.buffered()?);
            set.map_err(|errno| failed(self.file, errno))?;
        }
        Ok(true)
    }

    #[inline]
    fn ask(&self, request: &plan::Request) -> (Operation, u32) {
        let group = &request.group;
        let buffer = group.buf >> self.shift;
        let to = Span {
            buffer: buffer as u16,
            offset: group.buf - (buffer << self.shift),
            len: group.len as u32,
        };
        let file = if request.buffered { BUFFERED } else { OPENED };
        (Operation::Read { to, position: group.file }, file)
    }

    #[inline]
    fn complete(&mut self, request: &plan::Request, result: Result<u64, Errno>) {
        match result {
            Err(errno) if self.polled && cannot_poll(errno) => {
                self.unpolled = Some(errno);
                self.plan.again(*request);
            }
            result => self.plan.complete(request, result),
        }
    }

    fn report(&mut self) {
        self.watch.set(self.plan.counts.moved);
    }
}

fn cannot_poll(errno: Errno) -> bool {
    matches!(errno.raw(), libc::EOPNOTSUPP | libc::EINVAL)
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
        "not polled: the disk has no poll queues, or the file system does not support it: \
         {errno}; NVMe has them if the kernel is booted with nvme.poll_queues=N"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::shared::Shared;
    use crate::control::Control;
    use crate::file::{Alignment, Spec};
    use crate::gather::check::{Bounds, check};
    use crate::gather::piece::{Group, Piece, Rules};

    #[test]
    fn slot_size_follows_length_and_segments() {
        for (len, segments, shift) in [
            (1 << 30, 1, 28),
            (1 << 30, 0, 28),
            (1 << 30, 1 << 12, 22),
            (1 << 30, 3 << 10, 23),
            (1 << 30, 1 << 18, 18),
            (4096, 1, 18),
            (1 << 40, 1 << 28, 26),
            (1 << 44, 1, 30),
        ] {
            assert_eq!(slot_shift(len, segments), shift, "{len} bytes in {segments} segments");
        }
    }

    #[test]
    fn a_request_names_its_slot_and_the_offset_in_it() {
        let group = Group { file: 12_288, buf: (3 << 20) + 4096, len: 512, first: 0, count: 1 };
        let file = File::open(&Spec::Path("/proc/self/exe".into()), Direction::Load, false);
        let (control, rules) = (Control::default(), Rules::BUFFERED);
        let checked = check(&[], &Bounds { buffer: 0, spare: 0..0, rules }).expect("fit");
        let (file, watch) = (&file.expect("a file"), &Watch::start(&control, 0));
        let plan = &mut Plan::new(&[], checked, rules, &(0..0), 0);
        let call = Call { plan, file, watch, shift: 20, polled: false, unpolled: None };
        for (buffered, file) in [(false, OPENED), (true, BUFFERED)] {
            let request = plan::Request { group, buffered, ..plan::Request::default() };
            let (operation, asked) = call.ask(&request);
            let Operation::Read { to, position } = operation else { panic!("{operation:?}") };
            assert_eq!((to.buffer, to.offset, to.len, position), (3, 4096, 512, 12_288));
            assert_eq!(asked, file);
        }
    }

    #[test]
    fn read_error_does_not_mean_polling_is_unsupported() {
        let cannot = |number| cannot_poll(Errno::from_raw(number));
        assert!(cannot(libc::EOPNOTSUPP) && cannot(libc::EINVAL) && !cannot(libc::EIO));
    }

    /// A file of 64 KiB that is said to need no alignment, so direct reads of it are refused, and a
    /// ring for it. `None` if the host has no `io_uring`, or its disk refuses nothing.
    fn refusing(folder: &tempfile::TempDir, buf: &Shared) -> Option<(File, Batches)> {
        let path = folder.path().join("file");
        let content: Vec<u8> = (0..65_536_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, content).expect("written");
        let mut file = File::open(&Spec::Path(path), Direction::Load, true).expect("a file");
        let odd = rustix::io::pread(file.fd(), &mut [0; 100], 2);
        if !file.is_direct() || odd != Err(rustix::io::Errno::INVAL) {
            return None;
        }
        file.align = Alignment { offset: 2, memory: 1 };
        let target = Target::Mapped(Arc::new(buf.mapping(true).expect("mapped")));
        let settings = RingSettings { backend: Backend::Memfd, depth: 4, limit: LIMIT };
        let batches = Batches::new(&file, target, settings, Some(String::new())).ok()?;
        Some((file, batches))
    }

    #[test]
    fn refused_direct_reads_are_retried_buffered() {
        let folder = tempfile::tempdir().expect("a folder");
        let buf = Shared::memfd(65_536).expect("a memfd");
        let Some((file, mut batches)) = refusing(&folder, &buf) else { return };
        let control = Control::default();
        let pieces: Vec<_> = (0..40)
            .map(|at| Piece { offset: at * 1000 + 2, buf_offset: at * 1024, len: 600 })
            .collect();
        let rules = Rules::direct(file.align);
        let bounds = Bounds { buffer: 65_536, spare: 0..0, rules };
        for _ in 0..2 {
            let checked = check(&pieces, &bounds).expect("fit");
            let watch = Watch::start(&control, checked.bytes);
            let mut plan = Plan::new(&pieces, checked, rules, &(0..0), 65_536);
            batches.run(&mut plan, &file, &watch).expect("read");
            let outcome = plan.finish(None);
            assert!(outcome.exceptions.is_empty());
            assert_eq!((outcome.counts.moved, outcome.counts.direct), (24_000, 0));
            let bytes = buf.map().expect("a view").to_vec().expect("all of it");
            for (piece, at) in pieces.iter().zip((0..).step_by(1024)) {
                let found = bytes[at..at + 600].iter().zip(piece.offset..);
                assert!(found.into_iter().all(|(byte, at)| u64::from(*byte) == at % 251));
            }
        }
    }

    #[test]
    fn stuck_ring_reads_nothing_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let buf = Shared::memfd(65_536).expect("a memfd");
        let Some((file, mut batches)) = refusing(&folder, &buf) else { return };
        batches.stuck = Some(Errno::from_raw(libc::EBADF));
        let control = Control::default();
        let rules = Rules::BUFFERED;
        let checked = check(&[], &Bounds { buffer: 65_536, spare: 0..0, rules }).expect("fit");
        let mut plan = Plan::new(&[], checked, rules, &(0..0), 65_536);
        for _ in 0..2 {
            let run = batches.run(&mut plan, &file, &Watch::start(&control, 0));
            assert!(matches!(run, Err(Attempt::Failed(Error::InFlight { .. }))), "{run:?}");
        }
    }
}
