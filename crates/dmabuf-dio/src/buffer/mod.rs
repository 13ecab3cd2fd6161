// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffer type.

pub(crate) mod cpu_access;
pub(crate) mod dma_buf;
pub(crate) mod map;
pub(crate) mod shared;

mod alloc;
mod private;

use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use dmabuf_dio_sys::dmabuf::Access;

use self::dma_buf::DmaBuf;
use self::map::{Map, MapMut};
use self::private::Private;
use self::shared::{Shared, check_range};
use crate::backend::Refusal;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::memory::Mapping;
use crate::memory::page::page_size;
use crate::memory::sizes::PageSizes;
use crate::options::Options;
use crate::report::Report;

/// Memory that holds the content of a file, or will: a dma-buf, a memfd, both, or memory of this
/// process.
///
/// The memory lives as long as any descriptor, mapping or device uses it. Pass the descriptor
/// ([`fd`](Self::fd), [`dma_buf`](Self::dma_buf)) to the importer. Access the content through
/// [`map`](Self::map) and [`map_mut`](Self::map_mut), which begin and end CPU access as devices
/// need it.
///
/// `Send` and `Sync`. A child of `fork(2)` inherits the descriptor and shares the memory.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    /// The range of the content.
    range: Range<u64>,
    report: Option<Box<Report>>,
    /// What keeps a memfd's pages in memory.
    lock: Option<Arc<Mapping>>,
}

#[derive(Debug)]
enum Memory {
    DmaBuf(DmaBuf),
    Memfd(Shared),
    /// A memfd, and a dma-buf over its pages or why there is none.
    File(Shared, Result<DmaBuf, Refusal>),
    Private(Private),
}

impl Buffer {
    fn whole(memory: Memory, len: u64) -> Self {
        Self { memory, range: 0..len, report: None, lock: None }
    }

    /// A memfd with the content of a file, and a dma-buf over its pages or why there is none.
    pub(crate) fn file(memfd: Shared, dma_buf: Result<Shared, Refusal>) -> Self {
        let len = memfd.len();
        Self::whole(Memory::File(memfd, dma_buf.map(DmaBuf::from_shared)), len)
    }

    pub(crate) fn private(mapping: Arc<Mapping>) -> Self {
        let len = mapping.len();
        Self::whole(Memory::Private(Private::new(mapping)), len)
    }

    /// Splits [`Private`](Kind::Private) memory into buffers of their own, one for each range of
    /// bytes of this buffer. Each is as long as its range. When it is dropped, its memory is freed,
    /// in whole pages: a page that several parts have bytes of is freed with the last of them. Less
    /// than 64 KiB beside parts that live is freed with these, and memory of less than 2 MiB
    /// with the last part. What lies outside the ranges is freed at once. Bytes keep their
    /// addresses, so a part may start anywhere in a page; it has no report.
    ///
    /// # Errors
    ///
    /// [`Error::NoParts`], and the buffer is dropped: the memory is of another kind or is a part
    /// already, or a range is empty, overlaps or precedes the one before it, or exceeds the buffer.
    pub fn into_parts(self, ranges: &[Range<u64>]) -> Result<Vec<Self>> {
        let ascend = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let fit = ranges.iter().all(|range| range.start < range.end && range.end <= self.len());
        match self.memory {
            Memory::Private(memory) if ascend && fit && memory.is_whole() => {
                let whole = |part: Private| {
                    let len = part.len();
                    Self::whole(Memory::Private(part), len)
                };
                Ok(memory.split(ranges).into_iter().map(whole).collect())
            }
            _ => Err(Error::NoParts),
        }
    }

    /// Keeps a mapping that locks the pages.
    pub(crate) fn with_lock(mut self, lock: Option<Mapping>) -> Self {
        self.lock = lock.map(Arc::new);
        self
    }

    pub(crate) fn with_range(mut self, range: Range<u64>) -> Self {
        self.range = range;
        self
    }

    /// Private memory that the buffer alone owns.
    pub(crate) fn own_memory(&mut self) -> Option<&Arc<Mapping>> {
        match &self.memory {
            Memory::Private(memory) if memory.is_whole() => Some(memory.mapping()),
            _ => None,
        }
    }

    pub(crate) fn set_content(&mut self, range: Range<u64>, report: Report) {
        (self.range, self.report) = (range, Some(Box::new(report)));
    }

    /// Records how the content was transferred, for programs that fill a buffer themselves.
    #[must_use]
    pub fn with_report(mut self, report: Report) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    /// Allocates a zeroed buffer of `len` bytes, rounded up to whole pages: a dma-buf from the
    /// system heap, or a memfd where none can be had. [`kind`](Self::kind) says which.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`], and as for [`memfd`](Self::memfd).
    pub fn alloc(len: u64) -> Result<Self> {
        Self::alloc_kind(Kind::Any, "system", len)
    }

    /// Like [`alloc`](Self::alloc), with a buffer of this kind and dma-bufs from this heap:
    /// [`DmaBuf::alloc_from`]. A file in memory is a memfd; private memory cannot be allocated
    /// empty, so it is a memfd, too.
    ///
    /// # Errors
    ///
    /// As for [`DmaBuf::alloc_from`] and [`memfd`](Self::memfd).
    pub fn alloc_kind(kind: Kind, heap: &str, len: u64) -> Result<Self> {
        if !matches!(kind, Kind::DmaBuf | Kind::Any) {
            return Self::memfd(len);
        }
        match DmaBuf::alloc_from(heap, len) {
            Err(error) if kind == Kind::Any && !matches!(error, Error::NoMemory { .. }) => {
                Self::memfd(len)
            }
            allocated => allocated.map(Self::from),
        }
    }

    /// Creates a zeroed memfd of `len` bytes, rounded up to whole pages and sealed against
    /// shrinking. Its pages are allocated on first touch.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`] if that is more than there is; [`Error::Buffer`] if the kernel refuses.
    pub fn memfd(len: u64) -> Result<Self> {
        Shared::memfd(len).map(Self::from)
    }

    /// Allocates `len` zeroed bytes of [`Private`](Kind::Private) memory, in huge pages if it is large enough
    /// and the system has them, to be filled through [`bytes_mut`](Self::bytes_mut).
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`] if that is more than there is; [`Error::Buffer`] if the kernel refuses.
    pub fn zeroed(len: u64) -> Result<Self> {
        Self::zeroed_with(len, &Options::default())
    }

    /// Like [`zeroed`](Self::zeroed), where and how a load would get its memory: of the options, `huge_pages`,
    /// `numa` and `lock` count.
    ///
    /// # Errors
    ///
    /// As for [`zeroed`](Self::zeroed); [`Error::Node`]; [`Error::NodeMemory`]; [`Error::Lock`].
    pub fn zeroed_with(len: u64, options: &Options) -> Result<Self> {
        let mapping = options.private_memory(len, Mapping::zeroed)?;
        if options.lock {
            mapping.lock()?;
        }
        Ok(Self::private(Arc::new(mapping)))
    }

    /// Takes ownership of a descriptor of a dma-buf or memfd. A file on a tmpfs counts as a memfd if it
    /// has no name, or if the descriptor is for reading only and its mode lets nobody write: a file
    /// that `dmabuf-dio keep` keeps.
    ///
    /// A memfd is sealed against shrinking if possible. If not, or if it has huge pages, its pages
    /// may vanish at any time. Views of it are then copied by the kernel, which is slower but turns
    /// a missing page into an error.
    ///
    /// # Errors
    ///
    /// [`Error::NotABuffer`] if it is neither.
    pub fn from_fd(fd: OwnedFd) -> Result<Self> {
        Shared::from_fd(fd).map(Self::from)
    }

    /// Takes over the buffer that `dmabuf-dio load FILE -- PROGRAM` passes to PROGRAM in the
    /// variables `DMABUF_DIO_FD`, `DMABUF_DIO_OFFSET` and `DMABUF_DIO_LEN`. It has a duplicate of
    /// the descriptor, and knows the [`range`](Self::range) of the content.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`]; [`Error::NotABuffer`]; [`Error::RangeBeyondBuffer`];
    /// [`Error::Buffer`] with `EBADF` if the descriptor is not open.
    pub fn from_env() -> Result<Self> {
        let number: i32 = variable("DMABUF_DIO_FD")?;
        let offset: u64 = variable("DMABUF_DIO_OFFSET")?;
        let length: u64 = variable("DMABUF_DIO_LEN")?;
        // SAFETY: the call takes over no descriptor: it duplicates one, or fails if the number is
        // not open.
        let fd = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
        if fd < 0 {
            return Err(Error::Buffer { call: "inherit", errno: Errno::BADF });
        }
        // SAFETY: the descriptor was just created, and nothing else owns it.
        let buffer = Self::from_fd(unsafe { OwnedFd::from_raw_fd(fd) })?;
        buffer.check_range(offset, length)?;
        Ok(buffer.with_range(offset..offset + length))
    }

    /// Length of the memory in bytes; for a dma-buf, a multiple of the page size. The content may
    /// be shorter: [`range`](Self::range).
    pub fn len(&self) -> u64 {
        match &self.memory {
            Memory::Private(memory) => memory.len(),
            Memory::DmaBuf(buf) => buf.len(),
            Memory::Memfd(memfd) | Memory::File(memfd, _) => memfd.len(),
        }
    }

    /// Whether the length is 0, which only a memfd's can be.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The position of the content in the buffer, in bytes: the loaded range, or the whole buffer.
    /// It starts at 0 if the loaded range starts on a page boundary of the file, else within the
    /// first page. If the device's blocks are larger than a page, blocks count instead.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The start of [`range`](Self::range).
    pub fn data_offset(&self) -> u64 {
        self.range.start
    }

    /// Length of the content in bytes.
    pub fn data_len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// How the content was transferred; `None` if it was not loaded.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_deref()
    }

    /// The kind of the buffer; never [`Kind::Any`].
    pub fn kind(&self) -> Kind {
        match &self.memory {
            Memory::DmaBuf(_) => Kind::DmaBuf,
            Memory::Memfd(_) => Kind::Memfd,
            Memory::File(..) => Kind::File,
            Memory::Private(_) => Kind::Private,
        }
    }

    /// Whether the buffer can be written: its descriptor is open for writing, and it is not sealed.
    pub fn is_writable(&self) -> bool {
        self.shared().map_or(true, Shared::is_writable)
    }

    /// The dma-buf, for devices. For a [`File`](Kind::File) it is over the pages of the memfd: data
    /// written through one is visible through the other. A partial page at the end is an exception:
    /// the dma-buf has a copy of it, followed by zeros, because the kernel creates dma-bufs of
    /// whole pages only ([`shared_len`](Self::shared_len)).
    ///
    /// Programs that use the file do not begin and end CPU access. A Linux kernel without the fix
    /// in kernel/series does not synchronise devices for a udmabuf anyway: use the dma-buf with
    /// devices that are coherent and not behind bounce buffers.
    ///
    /// # Errors
    ///
    /// [`Error::NotADmaBuf`]; for a file in memory it says why none can be created.
    pub fn dma_buf(&self) -> Result<&DmaBuf> {
        match &self.memory {
            Memory::DmaBuf(buf) | Memory::File(_, Ok(buf)) => Ok(buf),
            Memory::File(_, Err(refusal)) => {
                let why = Some(Box::new(refusal.clone()));
                Err(Error::NotADmaBuf { kind: Kind::File, why })
            }
            Memory::Memfd(_) | Memory::Private(_) => {
                Err(Error::NotADmaBuf { kind: self.kind(), why: None })
            }
        }
    }

    /// How many bytes, from the start, a file in memory and its dma-buf share: those in whole
    /// pages. 0 if there is only one of them.
    pub fn shared_len(&self) -> u64 {
        match &self.memory {
            Memory::File(memfd, Ok(_)) => memfd.len() / page_size() * page_size(),
            _ => 0,
        }
    }

    /// The descriptor of the dma-buf or memfd. For a file in memory, it is the memfd's.
    ///
    /// # Errors
    ///
    /// [`Error::NoDescriptor`] for private memory.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.shared()?.as_fd())
    }

    /// Returns the descriptor.
    ///
    /// # Errors
    ///
    /// As for [`fd`](Self::fd).
    pub fn into_fd(self) -> Result<OwnedFd> {
        match self.memory {
            Memory::DmaBuf(buf) => Ok(buf.into_fd()),
            Memory::Memfd(memfd) | Memory::File(memfd, _) => Ok(memfd.into_fd()),
            Memory::Private(_) => Err(Error::NoDescriptor),
        }
    }

    /// The dma-buf or memfd that a transfer uses.
    pub(crate) fn shared(&self) -> Result<&Shared> {
        match &self.memory {
            Memory::DmaBuf(buf) => Ok(buf.shared()),
            Memory::Memfd(memfd) | Memory::File(memfd, _) => Ok(memfd),
            Memory::Private(_) => Err(Error::NoDescriptor),
        }
    }

    /// The buffer's name; `None` if it has none or `/proc` does not show it.
    pub fn name(&self) -> Option<String> {
        self.shared().ok()?.name()
    }

    /// The path at which other programs open a memfd, `/proc/PID/fd/N` of this process; `None` for
    /// a dma-buf, which cannot be opened by path, and for private memory.
    ///
    /// It works for processes of the same user that have no fewer capabilities, as long as this
    /// process runs, is dumpable (`PR_SET_DUMPABLE` in prctl(2)), and keeps this buffer. The path
    /// is a symbolic link whose target is not a valid path: programs must open it without resolving
    /// it.
    pub fn path(&self) -> Option<PathBuf> {
        self.shared().ok()?.path()
    }

    /// The exporter of a dma-buf (such as `"system"`), or `"memfd"`.
    pub fn exporter(&self) -> Option<String> {
        self.shared().ok()?.exporter()
    }

    /// Names a dma-buf: [`DmaBuf::set_name`].
    ///
    /// # Errors
    ///
    /// As for [`DmaBuf::set_name`], and [`Error::NotADmaBuf`].
    pub fn set_name(&self, name: &str) -> Result<()> {
        self.dma_buf()?.set_name(name)
    }

    /// Maps the whole buffer. Does not begin CPU access: see
    /// [`begin_cpu_access`](Self::begin_cpu_access).
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`], for example with `ENODEV` if the exporter does not support mapping.
    /// [`Error::NoDescriptor`] for private memory, which is mapped: see [`map`](Self::map).
    pub fn mapping(&self, writable: bool) -> Result<Mapping> {
        self.shared()?.mapping(writable)
    }

    /// Maps the buffer for reading and begins CPU access. Blocks until devices that write it have
    /// finished.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`], for example with `ENODEV` if the exporter does not support mapping.
    pub fn map(&self) -> Result<Map<'_>> {
        match &self.memory {
            Memory::Private(memory) => Ok(Map::private(memory)),
            _ => self.shared()?.map(),
        }
    }

    /// Maps the buffer for reading and writing and begins CPU access. Blocks until devices that use
    /// it have finished.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnlyBuffer`]; [`Error::Buffer`] as for [`map`](Self::map).
    pub fn map_mut(&mut self) -> Result<MapMut<'_>> {
        match &self.memory {
            Memory::Private(memory) => Ok(MapMut::private(memory)),
            _ => self.shared()?.map_shared(),
        }
    }

    /// Copies bytes from `offset` of the buffer into `out`. The buffer is mapped for each call: for
    /// many reads, [`map`](Self::map) it once.
    ///
    /// # Errors
    ///
    /// As for [`map`](Self::map) and [`Map::read_at`].
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.map()?.read_at(offset, out)
    }

    /// The content of private memory; `None` for other kinds, which [`map`](Self::map) gives access
    /// to. Its address is congruent to the offset in the file, modulo the page size.
    pub fn bytes(&self) -> Option<&[u8]> {
        let first = self.first()?;
        // SAFETY: the range is memory of this process that lives as long as self. The kernel has
        // finished with it, and it is written only through `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(first, self.data_len() as usize) })
    }

    /// Like [`bytes`](Self::bytes), for writing.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let first = self.first()?;
        // SAFETY: as in `bytes`.
        Some(unsafe { std::slice::from_raw_parts_mut(first, self.data_len() as usize) })
    }

    /// The address of the content in private memory.
    fn first(&self) -> Option<*mut u8> {
        let Memory::Private(memory) = &self.memory else { return None };
        let offset = memory.own().start + self.range.start;
        Some(memory.mapping().at(offset))
    }

    /// Begins CPU access, for callers that read or write the buffer other than through a view or a
    /// transfer of this library: through a [`Mapping`], or with their own requests on
    /// [lent](crate::lend) memory. Blocks until devices have finished. Does nothing for memory that
    /// is not a dma-buf.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`].
    pub fn begin_cpu_access(&self, access: Access) -> Result<()> {
        self.shared().map_or(Ok(()), |shared| shared.begin_cpu_access(access))
    }

    /// Ends CPU access that was begun with the same `access`.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`].
    pub fn end_cpu_access(&self, access: Access) -> Result<()> {
        self.shared().map_or(Ok(()), |shared| shared.end_cpu_access(access))
    }

    /// The page sizes of the memory. `None` for a dma-buf, which does not report them, and if the
    /// pages cannot be allocated.
    ///
    /// Touches every page of a memfd, which allocates those that it does not have yet.
    pub fn page_sizes(&self) -> Option<PageSizes> {
        match &self.memory {
            Memory::Private(memory) => PageSizes::of(memory.mapping()),
            _ => self.shared().ok()?.page_sizes(),
        }
    }

    /// Seals a memfd permanently against writing (`F_SEAL_WRITE` in fcntl(2)): its content can
    /// still be read, but no longer changed. No udmabuf can be created from it afterwards.
    ///
    /// A file in memory can no longer be written or mapped for writing, and no holes can be
    /// punched. If it has a dma-buf, or is mapped for writing, `F_SEAL_FUTURE_WRITE` is used: the
    /// kernel refuses the other for memory that is pinned. Then existing writable mappings stay
    /// writable, and so does the dma-buf, for anyone who has its descriptor.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: `EBUSY` while a memfd is mapped for writing, also in a child that was
    /// forked while it was loaded; `EPERM` if it does not allow sealing; `EINVAL` for a dma-buf.
    /// [`Error::NoDescriptor`] for private memory.
    pub fn seal(&mut self) -> Result<()> {
        match &mut self.memory {
            Memory::DmaBuf(_) => Err(Error::Buffer { call: "seal", errno: Errno::INVAL }),
            Memory::Memfd(memfd) => memfd.seal(),
            Memory::File(memfd, Ok(_)) => memfd.seal_future_writes(),
            Memory::File(memfd, Err(_)) => match memfd.seal() {
                Err(error) if error.errno() == Some(Errno::BUSY) => memfd.seal_future_writes(),
                sealed => sealed,
            },
            Memory::Private(_) => Err(Error::NoDescriptor),
        }
    }

    /// Seals a memfd against new writers (`F_SEAL_FUTURE_WRITE` in fcntl(2)): existing mappings
    /// stay writable.
    ///
    /// # Errors
    ///
    /// As for [`seal`](Self::seal), but never `EBUSY`.
    pub fn seal_future_writes(&mut self) -> Result<()> {
        match &mut self.memory {
            Memory::DmaBuf(_) => Err(Error::Buffer { call: "seal", errno: Errno::INVAL }),
            Memory::Memfd(memfd) | Memory::File(memfd, _) => memfd.seal_future_writes(),
            Memory::Private(_) => Err(Error::NoDescriptor),
        }
    }

    /// Duplicates the descriptor: the result refers to the same memory.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] with `EMFILE` if the process has too many open files.
    /// [`Error::NoDescriptor`] for private memory, which has one owner.
    pub fn try_clone(&self) -> Result<Self> {
        let memory = match &self.memory {
            Memory::DmaBuf(buf) => Memory::DmaBuf(buf.try_clone()?),
            Memory::Memfd(memfd) => Memory::Memfd(memfd.try_clone()?),
            Memory::File(memfd, Ok(buf)) => Memory::File(memfd.try_clone()?, Ok(buf.try_clone()?)),
            Memory::File(memfd, Err(why)) => Memory::File(memfd.try_clone()?, Err(why.clone())),
            Memory::Private(_) => return Err(Error::NoDescriptor),
        };
        let (range, report) = (self.range.clone(), self.report.clone());
        Ok(Self { memory, range, report, lock: self.lock.clone() })
    }

    /// Checks that `length` bytes at byte `offset` lie within the buffer.
    ///
    /// # Errors
    ///
    /// [`Error::RangeBeyondBuffer`]; [`Error::RangeOverflow`].
    pub fn check_range(&self, offset: u64, length: u64) -> Result<()> {
        check_range(self.len(), offset, length)
    }
}

impl From<Shared> for Buffer {
    fn from(shared: Shared) -> Self {
        let len = shared.len();
        Self::whole(
            if shared.is_dma_buf() {
                Memory::DmaBuf(DmaBuf::from_shared(shared))
            } else {
                Memory::Memfd(shared)
            },
            len,
        )
    }
}

impl From<DmaBuf> for Buffer {
    fn from(buf: DmaBuf) -> Self {
        let len = buf.len();
        Self::whole(Memory::DmaBuf(buf), len)
    }
}

impl TryFrom<OwnedFd> for Buffer {
    type Error = Error;

    fn try_from(fd: OwnedFd) -> Result<Self> {
        Self::from_fd(fd)
    }
}

/// Parses an environment variable as a number.
fn variable<T: FromStr>(variable: &'static str) -> Result<T> {
    let Some(text) = std::env::var_os(variable) else {
        return Err(Error::Environment { variable, found: None });
    };
    let text = text.to_string_lossy();
    let error = |_| Error::Environment { variable, found: Some(text.clone().into_owned()) };
    text.parse().map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private() -> Buffer {
        Buffer::private(Arc::new(Mapping::anonymous(8192).expect("memory"))).with_range(100..200)
    }

    #[test]
    fn memfd_without_bytes_is_empty() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let empty = Buffer::from_fd(rustix::fs::memfd_create("empty", flags).expect("a memfd"));
        assert!(empty.expect("a buffer").is_empty());
        assert!(!Buffer::memfd(1).expect("memfd").is_empty());
    }

    #[test]
    fn private_memory_has_no_descriptor_and_no_dma_buf() {
        let mut buffer = private();
        assert_eq!((buffer.kind(), buffer.len(), buffer.data_len()), (Kind::Private, 8192, 100));
        assert!(buffer.is_writable() && buffer.path().is_none() && buffer.report().is_none());
        for error in [
            buffer.fd().map(drop).expect_err("no descriptor"),
            buffer.try_clone().map(drop).expect_err("no copy"),
            buffer.seal().expect_err("no seal"),
            private().into_fd().map(drop).expect_err("no descriptor"),
        ] {
            assert!(matches!(error, Error::NoDescriptor), "{error}");
        }
        let error = buffer.dma_buf().map(drop).expect_err("no dma-buf");
        assert!(matches!(error, Error::NotADmaBuf { kind: Kind::Private, why: None }), "{error}");
    }

    #[test]
    fn bytes_are_borrowed_from_private_memory_alone() {
        let mut buffer = private();
        buffer.bytes_mut().expect("its own").fill(7);
        assert_eq!(buffer.bytes(), Some(&[7; 100][..]));
        let mut view = buffer.map_mut().expect("a view");
        view.write_at(100, b"x").expect("written");
        drop(view);
        assert_eq!(buffer.bytes().map(|bytes| bytes[0]), Some(b'x'));
        let view = buffer.map().expect("a view");
        assert_eq!(buffer.bytes().map(|bytes| bytes[0]), Some(b'x'), "while it is mapped");
        view.finish().expect("finished");
        assert!(Buffer::memfd(1).expect("memfd").bytes().is_none());
    }

    #[test]
    fn parts_are_buffers_of_their_own() {
        let fresh = || private().with_range(0..8192);
        let mut whole = fresh();
        whole.bytes_mut().expect("its own").fill(1);
        let first = whole.map().expect("a view").as_ptr().addr();
        let mut parts = whole.into_parts(&[3..5, 5..4096, 8000..8192]).expect("parts");
        parts[1].bytes_mut().expect("its own").fill(2);
        let mut view = parts[2].map_mut().expect("a view");
        assert_eq!((view.len(), view.as_ptr().addr()), (192, first + 8000));
        view.write_at(191, &[3]).expect("written");
        assert!(matches!(view.write_at(191, &[3, 3]), Err(Error::RangeBeyondBuffer { .. })));
        drop(view);
        assert_eq!(parts[0].bytes(), Some(&[1, 1][..]));
        assert_eq!(
            parts[2].bytes().map(|bytes| (bytes.len(), bytes[190], bytes[191])),
            Some((192, 1, 3))
        );
        assert_eq!(
            (parts[1].len(), parts[1].range(), parts[1].kind()),
            (4091, 0..4091, Kind::Private)
        );
        drop(parts.remove(0));
        assert!(parts[0].bytes().expect("its own").iter().all(|byte| *byte == 2));

        let wrong = [[0..1, 1..8193], [1..1, 1..2], [0..2, 1..3], [2..3, 0..1]];
        for wrong in &wrong {
            assert!(matches!(fresh().into_parts(wrong), Err(Error::NoParts)), "{wrong:?}");
        }
        assert!(matches!(
            parts.remove(0).into_parts(std::slice::from_ref(&(0..1))),
            Err(Error::NoParts)
        ));
        assert!(matches!(
            Buffer::memfd(5).expect("memfd").into_parts(std::slice::from_ref(&(0..1))),
            Err(Error::NoParts)
        ));
    }

    #[test]
    fn memfd_is_no_dma_buf() {
        let buffer = Buffer::memfd(5000).expect("memfd");
        let error = buffer.dma_buf().map(drop).expect_err("no dma-buf");
        assert!(matches!(error, Error::NotADmaBuf { kind: Kind::Memfd, why: None }), "{error}");
        let fd = buffer.try_clone().expect("again").into_fd().expect("a descriptor");
        let error = DmaBuf::from_fd(fd).map(drop).expect_err("no dma-buf");
        assert!(matches!(error, Error::NotADmaBuf { kind: Kind::Memfd, why: None }), "{error}");
        assert_eq!((buffer.range(), buffer.shared_len()), (0..8192, 0));
    }
}
