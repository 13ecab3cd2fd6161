// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a gather.

use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use super::aside;
use super::check::Bounds;
use super::gathering::{Engine, Gathering, spare};
use super::one::One;
use super::piece::{Piece, Rules};
use super::result::Setup;
use super::ring::{Batches, RingSettings, Target};
use crate::backend::driver::Reach;
use crate::backend::{Backend, buffered};
use crate::buffer::Buffer;
use crate::buffer::shared::Shared;
use crate::choose::choose;
use crate::choose::kept::not_kept;
use crate::choose::table;
use crate::control::Control;
use crate::direction::Direction;
use crate::error::{Error, Result};
use crate::file::{File, Spec};
use crate::memory::available::{self, Charged};
use crate::options::{Options, transfer_methods};
use crate::refusal;
use crate::refusal::attempt::Attempt;
use crate::report::measure::cached;

/// Default number of requests in flight: it keeps every disk busy with small reads.
const DEPTH: u32 = 128;

/// Settings for reading pieces of a file, from which a [`Gathering`] is set up.
#[derive(Clone, Debug)]
pub struct Gatherer<'f> {
    source: Spec<'f>,
    options: Options,
    control: Control,
    polled: bool,
    spare: Range<u64>,
}

impl Gatherer<'static> {
    /// Reads from the regular file or block device at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::from_spec(Spec::Path(path.into()))
    }
}

impl<'f> From<&'f std::fs::File> for Gatherer<'f> {
    fn from(file: &'f std::fs::File) -> Self {
        Self::from_fd(file.as_fd())
    }
}

impl<'f> Gatherer<'f> {
    /// Reads from an open regular file or block device, as [`Loader::from_fd`] does.
    ///
    /// [`Loader::from_fd`]: crate::Loader::from_fd
    pub fn from_fd(fd: BorrowedFd<'f>) -> Self {
        Self::from_spec(Spec::Fd(fd))
    }

    fn from_spec(source: Spec<'f>) -> Self {
        let (options, control) = (Options::default(), Control::default());
        Self { source, options, control, polled: false, spare: 0..0 }
    }

    transfer_methods!();

    /// Requests in flight: 1 to 1024; default 128. Without a ring (backends
    /// [`Module`](Backend::Module) and [`Buffered`](Backend::Buffered)) each needs a thread, and
    /// the maximum is 16.
    #[must_use]
    pub fn queue_depth(mut self, requests: u32) -> Self {
        self.options.queue_depth = Some(requests);
        self
    }

    /// Whether to poll for completions instead of using interrupts; default: false. Calls are
    /// shorter, but keep the CPU busy. Polling needs direct I/O and a disk with poll queues
    /// (`NVMe`, if the kernel is booted with `nvme.poll_queues=N`). Where it does not work,
    /// interrupts are used and the report says why.
    #[must_use]
    pub fn polled(mut self, polled: bool) -> Self {
        self.polled = polled;
        self
    }

    /// The range of the buffer, in bytes, for the blocks that enclose unaligned pieces. Without it
    /// such pieces fail if direct I/O is used. Every call uses the range from its start.
    #[must_use]
    pub fn spare(mut self, range: Range<u64>) -> Self {
        self.spare = range;
        self
    }

    /// Spare bytes that these pieces need, in a range that starts at a multiple of the page size: 0
    /// if all are aligned, or if no alignment is needed.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; [`Error::Access`]; [`Error::NotAFile`]; [`Error::Piece`] if offset and
    /// length of a piece overflow.
    pub fn room(&self, pieces: &[Piece]) -> Result<u64> {
        aside::room(pieces, rules(&self.file()?, self.options.backend))
    }

    /// Opens the file and sets everything up. The pages of `buf` are registered as long as the
    /// [`Gathering`] lives; for a memfd, all of its pages are allocated.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; [`Error::Access`]; [`Error::NotAFile`]; [`Error::Setting`];
    /// [`Error::ReadOnlyBuffer`]; [`Error::RangeBeyondBuffer`] and [`Error::RangeOverflow`] for the
    /// spare bytes; [`Error::NoMemory`]; [`Error::Buffer`]; [`Error::Unavailable`].
    pub fn open(&self, buf: &Buffer) -> Result<Gathering> {
        let buf = buf.shared()?;
        self.options.check()?;
        let file = self.file()?;
        if !buf.is_writable() {
            return Err(Error::ReadOnlyBuffer);
        }
        let spare = spare(self.spare.clone(), buf)?;
        if !buf.is_dma_buf() {
            let there =
                rustix::fs::fstat(buf.as_fd()).map_or(0, |stat| stat.st_blocks as u64 * 512);
            available::ensure(buf.len().saturating_sub(there), Charged::Us)?;
        }
        let buf = buf.try_clone()?;
        let backends = self.options.backends(Backend::for_gathering(buf.kind()));
        let (backend, engine, refusals) =
            choose(self.options.backend, backends, |backend| self.engine(backend, &file, &buf))?;
        let rules = rules(&file, Some(backend));
        let (why_unpolled, segments) = match &engine {
            Engine::Ring(ring) => (ring.why_unpolled.clone(), ring.segments()),
            Engine::One(_) if self.polled => {
                (Some(format!("not polled: {backend} does not support it")), None)
            }
            Engine::One(_) => (Some(String::new()), None),
        };
        let setup = Setup {
            backend,
            buffer: buf.kind(),
            unallocated: file.unallocated,
            direct: rules.are_direct(),
            why_buffered: file.why_buffered.clone(),
            copies: file.copies(),
            dma: file.dma(|| not_kept(Some(backend))),
            segments,
            refusals,
            why_unpolled,
            note: (backend == Backend::Buffered)
                .then(|| buffered::note(&buf, Direction::Load))
                .flatten(),
        };
        Ok(Gathering {
            cached: cached(file.fd(), file.system, 0..u64::MAX).unwrap_or(0),
            bounds: Bounds { buffer: buf.len(), spare, rules },
            file,
            buf,
            engine,
            depth: self.in_flight() as usize,
            control: self.control.clone(),
            setup: Arc::new(setup),
        })
    }

    fn file(&self) -> Result<File> {
        let file = File::open(&self.source, Direction::Load, self.options.direct)?;
        if file.is_direct() && file.is_memory() {
            return file.without_direct("the file is in memory: its file system is a tmpfs".into());
        }
        Ok(file)
    }

    fn engine(&self, backend: Backend, file: &File, buf: &Shared) -> Result<Engine, Attempt> {
        let target = match table::reach(backend, buf)? {
            Reach::Ioctl(attached) => return Ok(Engine::One(One::Module(attached))),
            Reach::Calls(mapping) => return Ok(Engine::One(One::Mapped(mapping))),
            Reach::LentRing(attached) => Target::Attached { attached, len: buf.len() },
            Reach::MappedRing(mapping) => Target::Mapped(mapping),
        };
        refusal::check_ring(backend, file)?;
        let why_unpolled = match (self.polled, &file.why_buffered) {
            (false, _) => Some(String::new()),
            (true, Some(_)) => Some("not polled: the file is not read with O_DIRECT".into()),
            (true, None) => None,
        };
        let limit = rules(file, Some(backend)).limit();
        let settings = RingSettings { backend, depth: self.in_flight(), limit };
        Ok(Engine::Ring(Box::new(Batches::new(file, target, settings, why_unpolled)?)))
    }

    fn in_flight(&self) -> u32 {
        self.options.queue_depth.unwrap_or(DEPTH)
    }
}

/// The required alignment of requests.
fn rules(file: &File, backend: Option<Backend>) -> Rules {
    if file.is_direct() && backend != Some(Backend::Buffered) {
        Rules::direct(file.align)
    } else {
        Rules::BUFFERED
    }
}
