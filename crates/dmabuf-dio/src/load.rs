// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads from a file to a buffer.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::Backend;
use crate::buffer::Buffer;
use crate::buffer::shared::check_range;
use crate::choose::table;
use crate::choose::{self, Run, choose};
use crate::content::Content;
use crate::control::{Control, Watch};
use crate::direction::Direction;
use crate::error::{Error, Result};
use crate::fetch::Fetch;
use crate::file::{self, File, Spec};
use crate::kind::Kind;
use crate::numa::Numa;
use crate::options::{Options, option_methods};
use crate::report::Report;
use crate::settle::settle;
use crate::transfer::layout::Layout;
use crate::transfer::private;
use crate::transfer::task::{Task, Transferred};

/// Loads a file, or a range of it, into a buffer.
///
/// `Send` and `Sync`. It opens no file until a load starts, so it can be used after `fork(2)`.
///
/// ```no_run
/// # fn main() -> Result<(), dmabuf_dio::Error> {
/// let buffer = dmabuf_dio::Loader::new("model.gguf")
///     .offset(4096)
///     .length(1 << 20)
///     .progress(|progress| eprintln!("{} of {}", progress.done, progress.total))
///     .load()?;
/// # let _ = buffer;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Loader<'f> {
    source: Source<'f>,
    offset: u64,
    length: Option<u64>,
    options: Options,
    control: Control,
}

/// What is loaded.
#[derive(Clone, Debug)]
enum Source<'f> {
    File(Spec<'f>),
    Content(Arc<dyn Content>),
}

impl Loader<'static> {
    /// Loads from the regular file or block device at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::from_source(Source::File(Spec::Path(path.into())))
    }

    /// Loads from a content that is no file, such as an object of a store: `dmabuf_dio_remote::Object`.
    ///
    /// The CPU writes it to the buffer; no file and no page cache are involved. A [`backend`](Self::backend) is
    /// refused; the block size, the queue depth, the allocation step and [`direct`](Self::direct) have no effect.
    /// A dma-buf is a udmabuf, or one of the system heap. Errors of the content are [`Error::Content`].
    pub fn from_content(content: Arc<dyn Content>) -> Self {
        Self::from_source(Source::Content(content))
    }
}

impl<'f> From<&'f std::fs::File> for Loader<'f> {
    fn from(file: &'f std::fs::File) -> Self {
        Self::from_fd(file.as_fd())
    }
}

impl<'f> Loader<'f> {
    /// Loads from an open regular file or block device. Its file position is neither used nor
    /// changed. If possible, the file is reopened with `O_DIRECT` through `/proc/self/fd`.
    pub fn from_fd(fd: BorrowedFd<'f>) -> Self {
        Self::from_source(Source::File(Spec::Fd(fd)))
    }

    fn from_source(source: Source<'f>) -> Self {
        let (options, control) = (Options::default(), Control::default());
        Self { source, offset: 0, length: None, options, control }
    }

    option_methods!();

    /// Start of the range in the file, in bytes; default 0. Any offset works; multiples of the page
    /// size suit direct I/O best.
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> Self {
        self.offset = bytes;
        self
    }

    /// Length of the range in bytes; default, and `None`: up to the current end of the file.
    #[must_use]
    pub fn length(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.length = bytes.into();
        self
    }

    /// Memory to allocate at a time, in bytes: a multiple of the page size, at most 1 GiB. The
    /// first read is issued once this much is allocated; the rest is allocated while it runs. The
    /// default is the block size, rounded up to whole huge pages. The module has its own default.
    /// The system heap uses only `/sys/module/dma_heap/parameters/read_gather`. Memory in small
    /// pages is copied into rather than allocated ahead.
    #[must_use]
    pub fn allocation_step(mut self, bytes: u64) -> Self {
        self.options.allocation_step = Some(bytes);
        self
    }

    /// Whether to try for huge pages in memory that the library allocates itself: a memfd, the
    /// memfd under a udmabuf, and private memory. Default: true. The kernel
    /// chooses the pages of other dma-bufs.
    ///
    /// Reserved huge pages are for memfds only. In private memory, a write after `fork(2)` needs a further page,
    /// and where none is left the kernel takes it from the child, which ends by `SIGBUS` (seen on Linux 7.3).
    #[must_use]
    pub fn huge_pages(mut self, huge: bool) -> Self {
        self.options.huge_pages = huge;
        self
    }

    /// The NUMA nodes of the memory of a new buffer; default, and `None`: the policy of the threads that touch it
    /// first ([`Report::nodes`] says where it then is, if this was set). A CMA heap's memory is where the region is.
    #[must_use]
    pub fn numa(mut self, numa: impl Into<Option<Numa>>) -> Self {
        self.options.numa = numa.into();
        self
    }

    /// Whether to lock the memory of a new buffer, so that it is never swapped out: mlock(2). Default: false. It
    /// counts towards `RLIMIT_MEMLOCK` of this process, unless that has `CAP_IPC_LOCK`.
    ///
    /// The lock of a memfd lasts as long as this process, and the [`Buffer`] or one of its clones in it: neither
    /// [`into_fd`](Buffer::into_fd) nor another process keeps it, nor does a program that takes the place of this
    /// one (`execve(2)`). A child of `fork(2)` has no lock of its own. Dma-bufs and reserved huge
    /// pages are never swapped out: nothing is locked for them.
    #[must_use]
    pub fn lock(mut self, lock: bool) -> Self {
        self.options.lock = lock;
        self
    }

    /// The kind of buffer that [`load`](Self::load) creates. Default: [`Kind::Any`], which is a
    /// dma-buf if one can be had, else a memfd; [`Buffer::kind`] says which. With a
    /// [`backend`](Self::backend), it is the kind that this backend creates.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.options.kind = kind;
        self
    }

    /// Loads into a new buffer. Blocks until the whole range is loaded.
    ///
    /// The buffer starts at the range's offset in the file, rounded down to a page, so that the
    /// content need not be moved; see [`Buffer::range`]. Bytes outside the content are zero. A memfd
    /// ends where the content ends and can neither shrink nor grow; in reserved huge pages its length
    /// is a multiple of their size. A [`File`](Kind::File) holds the range and nothing else, whatever
    /// its offset in the file: direct I/O is used if that is a multiple of the device's block size.
    /// It is not an error if no dma-buf can be created over it ([`Buffer::dma_buf`]).
    /// [`Private`](Kind::Private) memory is filled by direct I/O, like a memfd, or through the page
    /// cache if the file offers nothing else.
    ///
    /// The length is fixed when the file is opened: data appended later is not loaded.
    ///
    /// # Errors
    ///
    /// On any error except [`Error::InFlight`] the buffer is freed. [`Error::Open`];
    /// [`Error::Access`]; [`Error::NotAFile`]; [`Error::EmptyFile`] and [`Error::EmptyRange`];
    /// [`Error::ShortFile`], also if the file is truncated during the load;
    /// [`Error::RangeOverflow`]; [`Error::Setting`]; [`Error::Node`]; [`Error::NodeMemory`];
    /// [`Error::NoMemory`]; [`Error::Lock`]; [`Error::Transfer`], for example with `EIO`; [`Error::Cancelled`];
    /// [`Error::NoProc`] for a file in memory;
    /// [`Error::Unavailable`] if the selected backend is not available, or no backend can create a
    /// dma-buf and nothing else was allowed.
    pub fn load(&self) -> Result<Buffer> {
        if let Source::Content(content) = &self.source {
            return self.fetch(content.as_ref())?.load();
        }
        if self.options.kind == Kind::Private {
            return self.load_private();
        }
        if self.options.kind == Kind::File
            && matches!(rustix::fs::stat("/proc/self/fd"), Err(rustix::io::Errno::NOENT))
        {
            return Err(Error::NoProc);
        }
        let (file, length) = self.open_some()?;
        let watch = Watch::start(&self.control, length);
        let task = self.task(&file, length, &watch);
        let data_offset = task.layout()?.data_offset;
        let before = choose::before(&task);
        let chosen = choose(self.options.backend, &self.candidates(), |(backend, kind)| {
            let fresh = table::load(backend, kind, &task)?;
            check_end(&task)?;
            Ok((fresh.buf, fresh.moved))
        })
        .map_err(no_dma_buf)?;
        let (buf, mut report) = Run::by(before, chosen).report(&task, |buf| Some(buf.kind()));
        report.numa = self.options.numa;
        debug_assert!(self.options.kind != Kind::File || (data_offset, buf.len()) == (0, length));
        let buffer = settle(buf, &self.options, &mut report)?;
        let range = data_offset..data_offset + length;
        Ok(buffer.with_range(range).with_report(report))
    }

    /// Loads into memory of this process.
    fn load_private(&self) -> Result<Buffer> {
        let (file, length) = self.open_some()?;
        let watch = Watch::start(&self.control, length);
        let task = self.task(&file, length, &watch);
        let layout = task.layout()?;
        if let Some(backend) = self.options.backend {
            return Err(not_private(backend));
        }
        let range = layout.data_offset..layout.data_offset + length;
        let before = choose::before(&task);
        let loaded = private::load(&task, layout)?;
        check_end(&task)?;
        let (mapping, mut report) =
            Run::alone(before, loaded).report(&task, |_| Some(Kind::Private));
        (report.numa, report.locked) = (self.options.numa, self.options.lock);
        Ok(Buffer::private(mapping).with_range(range).with_report(report))
    }

    /// Loads into [`Private`](Kind::Private) memory that is there already, in place of its content, as
    /// [`load`](Self::load) does into new memory: its pages need not be allocated again. Blocks until the whole
    /// range is loaded, which is then the buffer's [`range`](Buffer::range). Bytes beside it are undefined. Where
    /// the memory is, and whether it is locked, does not change: [`numa`](Self::numa) and [`lock`](Self::lock) have
    /// no effect, and the report tells of neither.
    ///
    /// # Errors
    ///
    /// As for [`load`](Self::load), and [`Error::NotPrivate`]; [`Error::RangeBeyondBuffer`] if the range, from the
    /// page that it starts in to the end of its last block, is longer than the buffer. After an error the content
    /// is undefined; after [`Error::InFlight`] the kernel may still write to the memory, and the buffer is empty.
    pub fn load_over(&self, buf: &mut Buffer) -> Result<()> {
        let mapping = Arc::clone(buf.own_memory().ok_or(Error::NotPrivate)?);
        if let Source::Content(content) = &self.source {
            let fetch = self.fetch(content.as_ref())?;
            let (start, report) = fetch.load_over(&mapping)?;
            buf.set_content(start..start + fetch.length, report);
            return Ok(());
        }
        let (file, length) = self.open_some()?;
        let watch = Watch::start(&self.control, length);
        let task = self.task(&file, length, &watch);
        let layout = Layout::new(self.offset, length, file.align.offset)?;
        if let Some(backend) = self.options.backend {
            return Err(not_private(backend));
        }
        check_range(mapping.len(), 0, layout.buffer)?;
        let before = choose::before(&task);
        let moved = match private::load_over(&task, &mapping, layout) {
            Err(error @ Error::InFlight { .. }) => {
                // The requests keep the memory; nobody may see it change.
                *buf = Buffer::zeroed(0)?;
                return Err(error);
            }
            moved => moved?,
        };
        check_end(&task)?;
        let (_, report) =
            Run::alone(before, (mapping, moved)).report(&task, |_| Some(Kind::Private));
        buf.set_content(layout.data_offset..layout.data_offset + length, report);
        Ok(())
    }

    /// Loads into `buf` at `buf_offset` bytes. Blocks until the whole range is loaded.
    ///
    /// Bytes of the buffer outside the range do not change. A length of 0 succeeds and does
    /// nothing. Any offsets work. If the offsets in file and buffer are congruent modulo the
    /// device's block size, direct I/O is used, else the page cache, as the report says. Concurrent
    /// readers of the range, such as a view, may see old and new bytes.
    ///
    /// # Errors
    ///
    /// As for [`load`](Self::load), and [`Error::RangeBeyondBuffer`], [`Error::ReadOnlyBuffer`],
    /// [`Error::Buffer`] and [`Error::Unsynced`]. After an error, the range is undefined beyond the
    /// bytes that the error reports as moved; after [`Error::InFlight`] it may keep changing.
    pub fn load_into(&self, buf: &Buffer, buf_offset: u64) -> Result<Report> {
        let buf = buf.shared()?;
        if let Source::Content(content) = &self.source {
            return self.fetch(content.as_ref())?.load_into(buf, buf_offset);
        }
        let (file, length) = self.open()?;
        buf.check_range(buf_offset, length)?;
        if !buf.is_writable() {
            return Err(Error::ReadOnlyBuffer);
        }
        let watch = Watch::start(&self.control, length);
        let task = self.task(&file, length, &watch);
        let backends = self.options.backends(Backend::for_existing(buf.kind()));
        let before = choose::before(&task);
        let chosen = choose(self.options.backend, backends, |backend| {
            if length == 0 {
                return Ok((buf, Transferred::default()));
            }
            let moved = table::transfer(backend, &task, buf, buf_offset)?;
            check_end(&task)?;
            Ok((buf, moved))
        })?;
        Ok(Run::by(before, chosen).report(&task, |buf| Some(buf.kind())).1)
    }

    /// The candidates for a new buffer, in the order in which they are tried.
    fn candidates(&self) -> Vec<(Backend, Kind)> {
        let kinds: &[Kind] = match self.options.kind {
            Kind::DmaBuf => &[Kind::DmaBuf],
            Kind::Memfd | Kind::File => &[Kind::Memfd],
            Kind::Any | Kind::Private => &[Kind::DmaBuf, Kind::Memfd],
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
                    // This backend reports the refusal itself.
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

    /// Like [`open`](Self::open), but fails if the range is empty: a buffer has at least one byte.
    fn open_some(&self) -> Result<(File, u64)> {
        match self.open()? {
            (file, 0) => Err(Error::EmptyRange { path: file.path, direction: Direction::Load }),
            opened => Ok(opened),
        }
    }

    /// Opens the file and determines the length to load.
    fn open(&self) -> Result<(File, u64)> {
        self.options.check()?;
        if let Some(length) = self.length {
            file::check_range(self.offset, length)?;
        }
        let Source::File(spec) = &self.source else { unreachable!("contents are fetched") };
        let file = File::open(spec, Direction::Load, self.options.direct)?;
        let length = self.length_in(file.end()?, || file.path.clone())?;
        Ok((file, length))
    }

    /// The length to load of a file or content that ends at `end`.
    fn length_in(&self, end: u64, path: impl Fn() -> PathBuf) -> Result<u64> {
        let offset = self.offset;
        let short = |length| Error::ShortFile { path: path(), offset, length, end, done: 0 };
        match self.length {
            Some(length) if offset + length > end => Err(short(length)),
            Some(length) => Ok(length),
            None if end == 0 => Err(Error::EmptyFile { path: path() }),
            None if offset >= end => Err(short(1)),
            None => Ok(end - offset),
        }
    }

    /// The range of a content to load.
    fn fetch<'a>(&'a self, content: &'a dyn Content) -> Result<Fetch<'a>> {
        self.options.check()?;
        if let Some(length) = self.length {
            file::check_range(self.offset, length)?;
        }
        let length = self.length_in(content.length(), || content.name().to_owned())?;
        let (options, control) = (&self.options, &self.control);
        Ok(Fetch { content, offset: self.offset, length, options, control })
    }
}

/// A memfd can always be created, so if no backend is available, a dma-buf was requested.
fn no_dma_buf(error: Error) -> Error {
    match error {
        Error::Unavailable { asked: None, refusals, .. } => {
            Error::Unavailable { asked: None, kind: Some(Kind::DmaBuf), refusals }
        }
        error => error,
    }
}

/// Private memory is filled without a backend.
fn not_private(backend: Backend) -> Error {
    let refusal = backend.refuse_new(Kind::Private).remedy("leave the backend out");
    Error::Unavailable { asked: Some(backend), kind: None, refusals: vec![refusal] }
}

/// Fails if the file was truncated during the transfer and no longer covers the range.
fn check_end(task: &Task<'_>) -> Result<()> {
    let end = task.file.end()?;
    if end < task.end() { Err(task.short(end)) } else { Ok(()) }
}
