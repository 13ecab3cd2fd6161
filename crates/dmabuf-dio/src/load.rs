// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading: from a file to a buffer.

use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;

use crate::backend::Backend;
use crate::backend::choose::{self, first_available};
use crate::backend::table;
use crate::buf::DmaBuf;
use crate::control::Watch;
use crate::direction::Direction;
use crate::error::{Error, Result};
use crate::file::{File, Spec};
use crate::kind::Kind;
use crate::options::{Options, Wanted, option_methods};
use crate::private::{self, Private};
use crate::report::Report;
use crate::transfer::task::{Task, Transferred};

/// Loads a file, or a range of it, into a buffer.
///
/// ```no_run
/// # fn main() -> Result<(), dmabuf_dio::Error> {
/// let loaded = dmabuf_dio::Loader::new("model.gguf")
///     .offset(4096)
///     .length(1 << 20)
///     .progress(|progress| eprintln!("{} of {}", progress.done, progress.total))
///     .load()?;
/// # let _ = loaded;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Loader<'f> {
    source: Spec<'f>,
    offset: u64,
    length: Option<u64>,
    options: Options,
}

/// A buffer with the content of a file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The buffer. What lies before and after the range in it is zero.
    pub buf: DmaBuf,
    /// Where in the buffer the range begins: less than a page, or than a block of the device if
    /// that is larger, and 0 if the range begins at a multiple of those in the file.
    pub data_offset: u64,
    /// Length of the range in bytes.
    pub len: u64,
    /// How the bytes came there.
    pub report: Report,
}

impl Loaded {
    /// Where in the buffer the range is.
    pub fn range(&self) -> Range<u64> {
        self.data_offset..self.data_offset + self.len
    }
}

impl Loader<'static> {
    /// Loads from the regular file or block device at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::from_spec(Spec::Path(path.into()))
    }
}

impl<'f> From<&'f std::fs::File> for Loader<'f> {
    fn from(file: &'f std::fs::File) -> Self {
        Self::from_fd(file.as_fd())
    }
}

impl<'f> Loader<'f> {
    /// Loads from an open regular file or block device, whatever its file position is, which
    /// stays. It is opened once more through `/proc/self/fd`, with `O_DIRECT`, if that works.
    pub fn from_fd(fd: BorrowedFd<'f>) -> Self {
        Self::from_spec(Spec::Fd(fd))
    }

    fn from_spec(source: Spec<'f>) -> Self {
        Self { source, offset: 0, length: None, options: Options::default() }
    }

    option_methods!();

    /// Where in the file the range begins, in bytes: 0 if not set. Any offset works; direct I/O
    /// is best served by multiples of the page size.
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> Self {
        self.offset = bytes;
        self
    }

    /// Length of the range in bytes: up to where the file ends now if not set.
    #[must_use]
    pub fn length(mut self, bytes: u64) -> Self {
        self.length = Some(bytes);
        self
    }

    /// Memory that is made ready at a time, in bytes: a multiple of the page size, at most
    /// 1 GiB. The first read is issued when that much is there, and the rest is allocated while
    /// it runs. As much as a request, in whole huge pages, if not set. The module has its own
    /// default, the system heap goes by `/sys/module/dma_heap/parameters/read_gather` alone, and
    /// memory in small pages is not made ready but copied into.
    #[must_use]
    pub fn allocation_step(mut self, bytes: u64) -> Self {
        self.options.allocation_step = Some(bytes);
        self
    }

    /// Whether to try for huge pages where the library allocates the memory of a process: for a
    /// memfd, for the udmabuf made of one, and in [`load_private`](Self::load_private). They are
    /// tried for if this is not set. Kernels choose the pages of a dma-buf themselves.
    #[must_use]
    pub fn huge_pages(mut self, huge: bool) -> Self {
        self.options.huge_pages = huge;
        self
    }

    /// What the buffer of [`load`](Self::load) is to be: a dma-buf if this is not set, or what the
    /// [`backend`](Self::backend) makes that is asked for.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.options.kind = Wanted::Only(kind);
        self
    }

    /// Lets [`load`](Self::load) make whatever there is: a dma-buf where one can be made, else a
    /// memfd.
    #[must_use]
    pub fn any_kind(mut self) -> Self {
        self.options.kind = Wanted::Any;
        self
    }

    /// Loads into a new buffer: a dma-buf, unless [`kind`](Self::kind) or
    /// [`any_kind`](Self::any_kind) says otherwise. Blocks until all of the range is there.
    ///
    /// The buffer begins at the multiple of the page size at or below the range's start in the
    /// file, so that the content need not be moved; see [`Loaded::data_offset`]. A memfd is as long
    /// as that and the content, and neither shrinks nor grows; in reserved huge pages it is a
    /// multiple of their size.
    ///
    /// The length is decided when the file is opened: what is appended later is not loaded.
    ///
    /// # Errors
    ///
    /// On any error but [`Error::InFlight`] the buffer is freed. [`Error::Open`];
    /// [`Error::Access`]; [`Error::NotAFile`]; [`Error::EmptyFile`] and [`Error::EmptyRange`];
    /// [`Error::ShortFile`] also if the file is truncated meanwhile; [`Error::RangeOverflow`];
    /// [`Error::Setting`]; [`Error::NoMemory`]; [`Error::Transfer`], with `EIO` say;
    /// [`Error::Cancelled`]; [`Error::Unavailable`] if there is no such buffer here, which
    /// [`any_kind`](Self::any_kind) would do without, or the backend asked for is not available.
    pub fn load(&self) -> Result<Loaded> {
        let (file, length) = self.open()?;
        if length == 0 {
            return Err(Error::EmptyRange { path: file.path, direction: Direction::Load });
        }
        let watch = Watch::start(&self.options.control, length);
        let task = self.task(&file, length, &watch);
        let layout = task.layout()?;
        let run = first_available(&task, &self.candidates(), |(backend, kind)| {
            let fresh = table::load(backend, kind, &task)?;
            check_end(&task)?;
            Ok((fresh.buf, fresh.moved))
        })
        .map_err(no_dma_buf)?;
        let (buf, report) = run.report(&task, |buf| Some(buf.kind()));
        Ok(Loaded { buf, data_offset: layout.data_offset, len: length, report })
    }

    /// Loads into new memory that only this process has. Blocks until all of the range is there.
    ///
    /// For who needs no sharing: such memory comes in huge pages on most systems (where
    /// `/sys/kernel/mm/transparent_hugepage/enabled` is `madvise` or `always`), for which a memfd
    /// needs a setting that only root can change. It is filled by direct I/O, as a memfd is, and
    /// through the page cache where the file offers nothing else. The setting
    /// [`backend`](Self::backend) is not used.
    ///
    /// # Errors
    ///
    /// As for [`load`](Self::load), but for [`Error::Unavailable`].
    pub fn load_private(&self) -> Result<Private> {
        let (file, length) = self.open()?;
        if length == 0 {
            return Err(Error::EmptyRange { path: file.path, direction: Direction::Load });
        }
        let watch = Watch::start(&self.options.control, length);
        let task = self.task(&file, length, &watch);
        let layout = task.layout()?;
        let (mapping, report) = choose::alone(&task, || {
            let loaded = private::load(&task, layout)?;
            check_end(&task)?;
            Ok(loaded)
        })?;
        Ok(Private::new(mapping, layout.data_offset, length, report))
    }

    /// Loads into `buf` at `buf_offset`. Blocks until all of the range is there.
    ///
    /// Bytes of the buffer outside the range do not change. A length of 0 moves nothing and
    /// succeeds. Any offsets work; those in file and buffer that are congruent modulo the
    /// device's block size are moved by direct I/O, others through the page cache, as the
    /// report then says. Whoever reads the range meanwhile, through a view say, sees old bytes and
    /// new ones.
    ///
    /// # Errors
    ///
    /// As for [`load`](Self::load), and [`Error::RangeBeyondBuffer`],
    /// [`Error::ReadOnlyBuffer`], [`Error::Buffer`] and [`Error::Unsynced`]. After an error the range in the buffer
    /// is undefined behind the bytes that the error says were moved; after [`Error::InFlight`] it
    /// may go on changing.
    pub fn load_into(&self, buf: &DmaBuf, buf_offset: u64) -> Result<Report> {
        let (file, length) = self.open()?;
        buf.check_range(buf_offset, length)?;
        if !buf.is_writable() {
            return Err(Error::ReadOnlyBuffer);
        }
        let watch = Watch::start(&self.options.control, length);
        let task = self.task(&file, length, &watch);
        let backends = self.options.backends(Backend::for_existing(buf.kind()));
        let run = first_available(&task, backends, |backend| {
            if length == 0 {
                return Ok((buf, Transferred::default()));
            }
            let moved = table::transfer(backend, &task, buf, buf_offset)?;
            check_end(&task)?;
            Ok((buf, moved))
        })?;
        Ok(run.report(&task, |buf| Some(buf.kind())).1)
    }

    /// What to try for a new buffer, in this order.
    fn candidates(&self) -> Vec<(Backend, Kind)> {
        let kinds: &[Kind] = match (self.options.kind, self.options.backend) {
            (Wanted::Only(Kind::DmaBuf), _) | (Wanted::Unsaid, None) => &[Kind::DmaBuf],
            (Wanted::Only(Kind::Memfd), _) => &[Kind::Memfd],
            (Wanted::Any, _) | (Wanted::Unsaid, Some(_)) => &[Kind::DmaBuf, Kind::Memfd],
        };
        let of_kind = |kind| {
            let order = Backend::for_new(kind);
            order.iter().map(move |&backend| (backend, kind))
        };
        let all = kinds.iter().copied().flat_map(of_kind);
        match self.options.backend {
            None => all.collect(),
            Some(asked) => {
                let mut makes: Vec<_> = all.filter(|(backend, _)| *backend == asked).collect();
                if makes.is_empty() {
                    // It says so itself.
                    makes.push((asked, kinds[0]));
                }
                makes
            }
        }
    }

    fn task<'a>(&'a self, file: &'a File, length: u64, watch: &'a Watch<'a>) -> Task<'a> {
        let options = &self.options;
        Task { file, direction: Direction::Load, offset: self.offset, length, options, watch }
    }

    /// Opens the file and decides how much of it to load.
    fn open(&self) -> Result<(File, u64)> {
        self.options.check()?;
        if let Some(length) = self.length {
            check_range(self.offset, length)?;
        }
        let file = File::open(&self.source, Direction::Load, self.options.direct)?;
        let end = file.end()?;
        let offset = self.offset;
        let short =
            |length| Error::ShortFile { path: file.path.clone(), offset, length, end, done: 0 };
        let length = match self.length {
            Some(length) if offset + length > end => return Err(short(length)),
            Some(length) => length,
            None if end == 0 => return Err(Error::EmptyFile { path: file.path }),
            None if offset >= end => return Err(short(1)),
            None => end - offset,
        };
        Ok((file, length))
    }
}

/// A memfd can be had everywhere: where no backend would do, what was wanted is a dma-buf.
fn no_dma_buf(error: Error) -> Error {
    match error {
        Error::Unavailable { asked: None, refusals, .. } => {
            Error::Unavailable { asked: None, kind: Some(Kind::DmaBuf), refusals }
        }
        error => error,
    }
}

/// Fails if the file was truncated to less than the range meanwhile.
fn check_end(task: &Task<'_>) -> Result<()> {
    let end = task.file.end()?;
    if end < task.end() { Err(task.short(end)) } else { Ok(()) }
}

/// Fails if a range ends beyond the largest offset that a file can have.
pub(crate) fn check_range(offset: u64, length: u64) -> Result<()> {
    match offset.checked_add(length) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(Error::RangeOverflow { offset, length }),
    }
}
