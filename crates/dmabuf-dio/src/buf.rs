// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffer.

use std::ffi::CString;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::str::FromStr;

use dmabuf_dio_sys::dmabuf::{self, Access};
use rustix::fs::{FileType, MemfdFlags, OFlags, SealFlags, SeekFrom};
use rustix::io::Errno as Os;

use crate::available::{self, Charged};
use crate::backend::Backend;
use crate::error::{Attempt, Error, Result};
use crate::file;
use crate::heap;
use crate::map::{Map, MapMut};
use crate::memory::{self, HUGE_PAGE, Mapping, PageSizes};

/// What a buffer's file descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Kind {
    /// A dma-buf: devices can import it.
    DmaBuf,
    /// A memfd, or a file without a name on a tmpfs: processes can share it. `/dev/udmabuf` can
    /// make a dma-buf of a memfd.
    Memfd,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DmaBuf => "dma-buf",
            Self::Memfd => "memfd",
        })
    }
}

/// A buffer: an owned file descriptor of a dma-buf or memfd, and its length.
///
/// The memory lives as long as any descriptor, mapping or device uses it. Pass the descriptor
/// ([`AsFd`], [`OwnedFd::from`]) to whatever imports it; look at the content through
/// [`map`](Self::map) and [`map_mut`](Self::map_mut), which bracket the CPU's access as devices
/// need it.
#[derive(Debug)]
pub struct DmaBuf {
    fd: OwnedFd,
    len: u64,
    kind: Kind,
    writable: bool,
    /// Whether nobody can take pages away.
    lasting: bool,
}

impl DmaBuf {
    /// Allocates a zeroed dma-buf of `len` bytes, rounded up to pages, from the system heap.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`]; [`Error::Unavailable`] if this kernel has no system heap or keeps it
    /// from this user; [`Error::Buffer`].
    pub fn alloc(len: u64) -> Result<Self> {
        Self::try_alloc(Backend::Buffered, len).map_err(|attempt| match attempt {
            Attempt::Failed(error) => error,
            Attempt::Refused(refusal) => {
                Error::Unavailable { asked: None, kind: None, refusals: vec![refusal] }
            }
        })
    }

    /// As [`alloc`](Self::alloc), from the heap of that name in `/dev/dma_heap`: one that gives
    /// contiguous memory, say, to a device that has no IOMMU.
    ///
    /// # Errors
    ///
    /// [`Error::Heap`]; [`Error::NoMemory`]; [`Error::Buffer`].
    pub fn alloc_from(heap: &str, len: u64) -> Result<Self> {
        let error = |errno: Os| Error::Heap { heap: heap.to_owned(), errno: errno.into() };
        if heap.is_empty() || heap.starts_with('.') || heap.contains('/') {
            return Err(error(Os::INVAL));
        }
        let path = format!("{}/{heap}", dmabuf_dio_sys::heap::DIRECTORY);
        let device = dmabuf_dio_sys::heap::open(&path).map_err(error)?;
        Self::alloc_by(&device, len)
    }

    /// Takes over the buffer that `dmabuf-dio load FILE -- PROGRAM` hands to PROGRAM, by the
    /// variables `DMABUF_DIO_FD`, `DMABUF_DIO_OFFSET` and `DMABUF_DIO_LEN`. Returns a descriptor of
    /// its own, and where in the buffer the content is.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`]; [`Error::NotABuffer`]; [`Error::RangeBeyondBuffer`];
    /// [`Error::Buffer`] with `EBADF` if there is no such descriptor.
    pub fn from_env() -> Result<(Self, Range<u64>)> {
        let number: i32 = variable("DMABUF_DIO_FD")?;
        let offset: u64 = variable("DMABUF_DIO_OFFSET")?;
        let length: u64 = variable("DMABUF_DIO_LEN")?;
        // SAFETY: the call claims nothing: it makes a descriptor, or fails if there is none of
        // that number.
        let fd = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
        if fd < 0 {
            return Err(Error::Buffer { call: "inherit", errno: Os::BADF.into() });
        }
        // SAFETY: it was made just now, and is nobody else's.
        let buf = Self::from_fd(unsafe { OwnedFd::from_raw_fd(fd) })?;
        buf.check_range(offset, length)?;
        Ok((buf, offset..offset + length))
    }

    /// As [`alloc`](Self::alloc), with the refusal in the name of `backend`.
    pub(crate) fn try_alloc(backend: Backend, len: u64) -> Result<Self, Attempt> {
        Ok(Self::alloc_by(&heap::open(backend)?, len)?)
    }

    fn alloc_by(heap: &OwnedFd, len: u64) -> Result<Self> {
        available::ensure(len, Charged::Nobody)?;
        let fd = dmabuf_dio_sys::heap::alloc(heap.as_fd(), len).map_err(|errno| match errno {
            Os::NOMEM => Error::NoMemory { wanted: len, available: None },
            _ => Error::Buffer { call: "allocate", errno: errno.into() },
        })?;
        Ok(Self::from_parts(fd, len.next_multiple_of(memory::page_size())))
    }

    /// Creates a zeroed memfd of `len` bytes, rounded up to pages, that nobody can shrink. Its
    /// pages are allocated when they are first touched.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] if the kernel refuses.
    pub fn memfd(len: u64) -> Result<Self> {
        let len = memory::round_up(len, memory::page_size())
            .ok_or(Error::RangeOverflow { offset: 0, length: len })?;
        Self::create_memfd(len, MemfdFlags::empty(), SealFlags::SHRINK)
            .map_err(|errno| Error::Buffer { call: "create", errno: errno.into() })
    }

    /// Creates a memfd of huge pages, reserved for it, of `len` bytes rounded up to those.
    pub(crate) fn memfd_huge(len: u64) -> rustix::io::Result<(Self, Mapping)> {
        let len = memory::round_up(len, HUGE_PAGE).ok_or(Os::OVERFLOW)?;
        let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let buf = Self::create_memfd(len, huge, SealFlags::SHRINK | SealFlags::GROW)?;
        // The mapping is what reserves the pages: without it a touch could kill us.
        let mapping = buf.mapping(true).map_err(|_| Os::NOMEM)?;
        Ok((buf, mapping))
    }

    /// Creates a memfd of exactly `len` bytes, that nobody can shrink or grow.
    pub(crate) fn memfd_exact(len: u64) -> rustix::io::Result<Self> {
        Self::create_memfd(len, MemfdFlags::empty(), SealFlags::SHRINK | SealFlags::GROW)
    }

    fn create_memfd(len: u64, flags: MemfdFlags, seals: SealFlags) -> rustix::io::Result<Self> {
        file::check_size(len)?;
        let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("dmabuf-dio", flags)?;
        rustix::fs::ftruncate(&fd, len)?;
        rustix::fs::fcntl_add_seals(&fd, seals)?;
        let lasting = is_lasting(fd.as_fd());
        Ok(Self { fd, len, kind: Kind::Memfd, writable: true, lasting })
    }

    pub(crate) fn from_parts(fd: OwnedFd, len: u64) -> Self {
        Self { fd, len, kind: Kind::DmaBuf, writable: true, lasting: true }
    }

    /// Takes over a descriptor of a dma-buf or memfd.
    ///
    /// A memfd that allows it is sealed against shrinking. From and to one that does not allow it,
    /// and one of huge pages, views are copied by the kernel, which takes longer: somebody may take
    /// its pages away at any time, which then is an error.
    ///
    /// # Errors
    ///
    /// [`Error::NotABuffer`] if it is neither.
    pub fn from_fd(fd: OwnedFd) -> Result<Self> {
        let kind = kind_of(fd.as_fd())?;
        if kind == Kind::Memfd {
            let _ = rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK);
        }
        let lasting = kind == Kind::DmaBuf || is_lasting(fd.as_fd());
        let len = match kind {
            // It has no position that this could move.
            Kind::DmaBuf => rustix::fs::seek(&fd, SeekFrom::End(0)),
            Kind::Memfd => rustix::fs::fstat(&fd).map(|stat| stat.st_size as u64),
        };
        let call = "find the length of";
        let len = len.map_err(|errno| Error::Buffer { call, errno: errno.into() })?;
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|errno| Error::Buffer {
            call: "find the access mode of",
            errno: errno.into(),
        })?;
        let writable = flags & OFlags::ACCMODE == OFlags::RDWR;
        Ok(Self { fd, len, kind, writable, lasting })
    }

    /// Length in bytes, a multiple of the page size in a dma-buf.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the buffer has no bytes; a dma-buf always has some.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the descriptor is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the descriptor allows writing the buffer.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The buffer's name, or `None` if it has none or `/proc` does not show it.
    pub fn name(&self) -> Option<String> {
        match self.kind {
            Kind::DmaBuf => fdinfo(self.as_fd(), "name"),
            Kind::Memfd => proc_link(self.as_fd()).and_then(|link| {
                Some(link.strip_prefix("/memfd:")?.strip_suffix(" (deleted)")?.to_owned())
            }),
        }
    }

    /// Gives a dma-buf a name of at most 31 bytes, which `/proc/*/fdinfo` and debugfs then show.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: `EINVAL` for a name that is too long, `ENOTTY` for a memfd.
    pub fn set_name(&self, name: &str) -> Result<()> {
        let error = |errno: Os| Error::Buffer { call: "name", errno: errno.into() };
        let name = CString::new(name).map_err(|_| error(Os::INVAL))?;
        dmabuf::set_name(self.as_fd(), &name).map_err(error)
    }

    /// Who made the buffer: the exporter of a dma-buf (`"system"` say), or `"memfd"`.
    pub fn exporter(&self) -> Option<String> {
        match self.kind {
            Kind::DmaBuf => fdinfo(self.as_fd(), "exp_name"),
            Kind::Memfd => Some("memfd".into()),
        }
    }

    /// Maps the buffer for reading and begins CPU access to it. Waits for devices that write it.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`], with `ENODEV` or the like if the exporter offers no mapping.
    pub fn map(&self) -> Result<Map<'_>> {
        Map::begin(self, self.mapping(false)?)
    }

    /// Maps the buffer for reading and writing and begins CPU access to it. Waits for devices
    /// that use it.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnlyBuffer`]; [`Error::Buffer`] as for [`map`](Self::map).
    pub fn map_mut(&mut self) -> Result<MapMut<'_>> {
        self.map_shared()
    }

    /// As [`map_mut`](Self::map_mut), for transfers that share the buffer with no one by rule of
    /// their callers.
    pub(crate) fn map_shared(&self) -> Result<MapMut<'_>> {
        if !self.writable {
            return Err(Error::ReadOnlyBuffer);
        }
        MapMut::begin(self, self.mapping(true)?)
    }

    /// Maps all of it, with no access begun.
    pub(crate) fn mapping(&self, writable: bool) -> Result<Mapping> {
        Ok(self.vouch_for(Mapping::new(self.as_fd(), self.len, writable)?))
    }

    /// Tells a mapping of this buffer's pages whether they last.
    pub(crate) fn vouch_for(&self, mapping: Mapping) -> Mapping {
        if !self.lasting {
            return mapping;
        }
        // SAFETY: it has its bytes for life: it is a dma-buf, or sealed.
        unsafe { mapping.lasting() }
    }

    /// Brackets CPU access; does nothing for a memfd.
    pub(crate) fn begin(&self, access: Access) -> Result<()> {
        match self.kind {
            Kind::Memfd => Ok(()),
            Kind::DmaBuf => dmabuf::begin_cpu_access(self.as_fd(), access).map_err(|errno| {
                Error::Buffer { call: "begin CPU access to", errno: errno.into() }
            }),
        }
    }

    /// The other half of [`begin`](Self::begin).
    pub(crate) fn end(&self, access: Access) -> Result<()> {
        match self.kind {
            Kind::Memfd => Ok(()),
            Kind::DmaBuf => dmabuf::end_cpu_access(self.as_fd(), access)
                .map_err(|errno| Error::Buffer { call: "end CPU access to", errno: errno.into() }),
        }
    }

    /// In what pages a memfd's memory came; `None` for a dma-buf, which does not tell, and where the
    /// pages cannot be made ready to be looked at.
    ///
    /// Touches every page to find out, and so allocates those that the memfd does not have yet.
    pub fn page_sizes(&self) -> Option<PageSizes> {
        if self.kind == Kind::DmaBuf {
            return None;
        }
        let mapping = self.mapping(false).ok()?;
        mapping.populate(0, self.len, false).ok()?;
        PageSizes::of(&mapping)
    }

    /// A second descriptor of the same buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] with `EMFILE` if the process has too many descriptors.
    pub fn try_clone(&self) -> Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 3)
            .map_err(|errno| Error::Buffer { call: "duplicate", errno: errno.into() })?;
        Ok(Self { fd, ..*self })
    }

    /// Gives the descriptor away.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Fails unless `length` bytes at `offset` lie within the buffer.
    pub(crate) fn check_range(&self, offset: u64, length: u64) -> Result<()> {
        let end = offset.checked_add(length).ok_or(Error::RangeOverflow { offset, length })?;
        if end > self.len {
            return Err(Error::RangeBeyondBuffer { offset, length, buffer: self.len });
        }
        Ok(())
    }
}

impl AsFd for DmaBuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for DmaBuf {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl From<DmaBuf> for OwnedFd {
    fn from(buf: DmaBuf) -> Self {
        buf.fd
    }
}

impl TryFrom<OwnedFd> for DmaBuf {
    type Error = Error;

    fn try_from(fd: OwnedFd) -> Result<Self> {
        Self::from_fd(fd)
    }
}

/// A number in the environment.
fn variable<T: FromStr>(variable: &'static str) -> Result<T> {
    let Some(text) = std::env::var_os(variable) else {
        return Err(Error::Environment { variable, found: None });
    };
    let text = text.to_string_lossy();
    let error = |_| Error::Environment { variable, found: Some(text.clone().into_owned()) };
    text.parse().map_err(error)
}

/// Finds out what a descriptor is.
fn kind_of(fd: BorrowedFd<'_>) -> Result<Kind> {
    if is_dmabuf(fd) {
        return Ok(Kind::DmaBuf);
    }
    match proc_link(fd) {
        Some(link) if link.starts_with("/memfd:") || is_nameless_tmpfs(fd) => Ok(Kind::Memfd),
        Some(link) => Err(Error::NotABuffer { found: link }),
        None => Err(Error::NotABuffer { found: "unknown: /proc is not mounted".into() }),
    }
}

/// Whether a descriptor is a dma-buf: only those have an exporter.
pub(crate) fn is_dmabuf(fd: BorrowedFd<'_>) -> bool {
    fdinfo(fd, "exp_name").is_some()
}

/// Whether a descriptor is memory that only descriptors lead to.
fn is_nameless_tmpfs(fd: BorrowedFd<'_>) -> bool {
    let nameless = rustix::fs::fstat(fd).is_ok_and(|stat| {
        stat.st_nlink == 0 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
    });
    nameless && is_tmpfs(fd)
}

/// Whether a memfd keeps the pages that it has, and gets those that it has not: it is sealed
/// against shrinking, it is not of huge pages, and the kernel is generous. Holes can be made for all the
/// seal, and there may be no page to fill one.
fn is_lasting(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
        && is_tmpfs(fd)
        && available::overcommits()
}

/// Whether a descriptor is a file on a tmpfs.
pub(crate) fn is_tmpfs(fd: BorrowedFd<'_>) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994; // linux/magic.h
    rustix::fs::fstatfs(fd).is_ok_and(|fs| fs.f_type as u64 == TMPFS_MAGIC)
}

/// Whether a descriptor is a file on a file system of a process.
pub(crate) fn is_fuse(fd: BorrowedFd<'_>) -> bool {
    const FUSE_SUPER_MAGIC: u64 = 0x6573_5546; // linux/magic.h
    rustix::fs::fstatfs(fd).is_ok_and(|fs| fs.f_type as u64 == FUSE_SUPER_MAGIC)
}

fn fdinfo(fd: BorrowedFd<'_>, field: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// Where `/proc/self/fd` says that a descriptor leads.
pub(crate) fn proc_link(fd: BorrowedFd<'_>) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    Some(link.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memfd_has_whole_pages_and_a_name() {
        let buf = DmaBuf::memfd(1).expect("memfd");
        assert_eq!((buf.len(), buf.kind()), (memory::page_size(), Kind::Memfd));
        assert_eq!(buf.name().as_deref(), Some("dmabuf-dio"));
        let again = DmaBuf::from_fd(buf.into_fd()).expect("a memfd is a buffer");
        assert!(again.is_writable());
        assert!(again.set_name("x").is_err());
    }

    #[test]
    fn range_is_checked() {
        let buf = DmaBuf::memfd(4096).expect("memfd");
        assert!(buf.check_range(0, 4096).is_ok());
        assert!(matches!(buf.check_range(1, 4096), Err(Error::RangeBeyondBuffer { .. })));
        assert!(matches!(buf.check_range(2, u64::MAX), Err(Error::RangeOverflow { .. })));
    }

    #[test]
    fn other_descriptors_are_refused() {
        // With a name, as one without is a buffer where the folder for such files is in memory.
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        let error = DmaBuf::from_fd(file.reopen().expect("again").into()).expect_err("no buffer");
        assert!(matches!(error, Error::NotABuffer { .. }), "{error}");
    }
}
