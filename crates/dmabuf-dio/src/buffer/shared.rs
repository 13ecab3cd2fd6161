// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that has a descriptor: a dma-buf or a memfd.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use dmabuf_dio_sys::dmabuf::{self, Access};
use rustix::fs::{OFlags, SealFlags, SeekFrom};

use crate::errno::{Errno, IntoErrno};
use crate::error::{Error, Result};
use crate::fd::{fdinfo, is_dmabuf, is_kept, is_nameless_tmpfs, is_tmpfs, proc_link, proc_path};
use crate::kind::Kind;
use crate::memory::Mapping;
use crate::memory::available;
use crate::memory::sizes::PageSizes;

/// The call of [`Error::Buffer`] if CPU access cannot begin.
pub(crate) const BEGIN_ACCESS: &str = "begin CPU access to";

/// An owned file descriptor of a dma-buf or memfd, and its length. The memory lives as long as any
/// descriptor, mapping or device uses it.
#[derive(Debug)]
pub(crate) struct Shared {
    fd: OwnedFd,
    len: u64,
    /// [`Kind::DmaBuf`] or [`Kind::Memfd`].
    kind: Kind,
    writable: bool,
}

impl Shared {
    pub(super) fn from_memfd(fd: OwnedFd, len: u64) -> Self {
        Self { fd, len, kind: Kind::Memfd, writable: true }
    }

    /// Takes ownership of a dma-buf of `len` bytes, open for reading and writing.
    pub(crate) fn from_parts(fd: OwnedFd, len: u64) -> Self {
        Self { fd, len, kind: Kind::DmaBuf, writable: true }
    }

    /// Takes ownership of a descriptor of a dma-buf or memfd, or of a file that is kept on a tmpfs.
    ///
    /// A memfd is sealed against shrinking if possible. If not, or if it has huge pages, its pages
    /// may vanish at any time. Views of it are then copied by the kernel, which is slower but turns
    /// a missing page into an error.
    ///
    /// # Errors
    ///
    /// [`Error::NotABuffer`] if it is neither.
    pub(crate) fn from_fd(fd: OwnedFd) -> Result<Self> {
        let kind = kind_of(fd.as_fd())?;
        if kind == Kind::Memfd {
            let _ = rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK);
        }
        let len = if kind == Kind::DmaBuf {
            // A dma-buf has no file position that this could move.
            rustix::fs::seek(&fd, SeekFrom::End(0))
        } else {
            rustix::fs::fstat(&fd).map(|stat| stat.st_size as u64)
        };
        let call = "find the length of";
        let len = len.map_err(|errno| Error::Buffer { call, errno: errno.into_errno() })?;
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|errno| Error::Buffer {
            call: "find the access mode of",
            errno: errno.into_errno(),
        })?;
        let sealed = rustix::fs::fcntl_get_seals(&fd)
            .is_ok_and(|seals| seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE));
        let writable = flags & OFlags::ACCMODE == OFlags::RDWR && !sealed;
        Ok(Self { fd, len, kind, writable })
    }

    /// Length in bytes; for a dma-buf, a multiple of the page size.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn is_dma_buf(&self) -> bool {
        self.kind == Kind::DmaBuf
    }

    /// [`Kind::DmaBuf`] or [`Kind::Memfd`].
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the descriptor is open for writing.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// The buffer's name; `None` if it has none or `/proc` does not show it.
    pub(crate) fn name(&self) -> Option<String> {
        if self.is_dma_buf() {
            return fdinfo(self.as_fd(), "name");
        }
        let link = proc_link(self.as_fd())?;
        Some(link.strip_prefix("/memfd:")?.strip_suffix(" (deleted)")?.to_owned())
    }

    /// The path at which other programs open a memfd, `/proc/PID/fd/N` of this process; `None` for
    /// a dma-buf, which cannot be opened by path.
    ///
    /// It works for processes of the same user that have no fewer capabilities, as long as this
    /// process runs, is dumpable (`PR_SET_DUMPABLE` in prctl(2)), and keeps this buffer. The path
    /// is a symbolic link whose target is not a valid path: programs must open it without resolving
    /// it.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        (self.kind == Kind::Memfd).then(|| proc_path(self.as_fd()))
    }

    /// Sets the name of a dma-buf, at most 31 bytes, as shown by `/proc/*/fdinfo` and debugfs.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: `EINVAL` if the name is too long, `ENOTTY` for a memfd.
    pub(crate) fn set_name(&self, name: &str) -> Result<()> {
        let error = |errno| Error::Buffer { call: "name", errno };
        let name = CString::new(name).map_err(|_| error(Errno::INVAL))?;
        dmabuf::set_name(self.as_fd(), &name).map_err(error)
    }

    /// The exporter of a dma-buf (such as `"system"`), or `"memfd"`.
    pub(crate) fn exporter(&self) -> Option<String> {
        if self.is_dma_buf() { fdinfo(self.as_fd(), "exp_name") } else { Some("memfd".into()) }
    }

    /// Maps the whole buffer. Does not begin CPU access: see
    /// [`begin_cpu_access`](Self::begin_cpu_access).
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`], for example with `ENODEV` if the exporter does not support mapping.
    pub(crate) fn mapping(&self, writable: bool) -> Result<Mapping> {
        Ok(self.vouch_for(Mapping::new(self.as_fd(), self.len, writable)?))
    }

    /// Records in a mapping of this buffer whether its pages can be taken away.
    pub(crate) fn vouch_for(&self, mapping: Mapping) -> Mapping {
        if !self.is_dma_buf() && !is_lasting(self.as_fd()) {
            return mapping;
        }
        // SAFETY: the length is fixed for life: the buffer is a dma-buf, or sealed.
        unsafe { mapping.lasting() }
    }

    /// Begins CPU access, for callers that read or write the buffer other than through a view or a
    /// transfer of this library: through a [`Mapping`], or with their own requests on
    /// [lent](crate::lend) memory. Blocks until devices have finished. Does nothing for a memfd.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`].
    pub(crate) fn begin_cpu_access(&self, access: Access) -> Result<()> {
        if !self.is_dma_buf() {
            return Ok(());
        }
        dmabuf::begin_cpu_access(self.as_fd(), access)
            .map_err(|errno| Error::Buffer { call: BEGIN_ACCESS, errno })
    }

    /// Ends CPU access that was begun with the same `access`.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`].
    pub(crate) fn end_cpu_access(&self, access: Access) -> Result<()> {
        if !self.is_dma_buf() {
            return Ok(());
        }
        dmabuf::end_cpu_access(self.as_fd(), access)
            .map_err(|errno| Error::Buffer { call: "end CPU access to", errno })
    }

    /// The page sizes of a memfd's memory. `None` for a dma-buf, which does not report them, and if
    /// the pages cannot be allocated.
    ///
    /// Touches every page, which allocates those that the memfd does not have yet.
    pub(crate) fn page_sizes(&self) -> Option<PageSizes> {
        PageSizes::of(&self.populated()?)
    }

    /// A memfd's mapping with all its pages. `None` for a dma-buf, and if the pages cannot be allocated.
    pub(crate) fn populated(&self) -> Option<Mapping> {
        if self.is_dma_buf() {
            return None;
        }
        let mapping = self.mapping(false).ok()?;
        mapping.populate(0, self.len, false).ok()?;
        Some(mapping)
    }

    /// Seals a memfd permanently against writing (`F_SEAL_WRITE` in fcntl(2)): its content can
    /// still be read, but no longer changed. No udmabuf can be created from it afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: `EBUSY` while it is mapped for writing, also in a child that was forked
    /// while it was loaded; `EPERM` if it does not allow sealing; `EINVAL` for a dma-buf.
    pub(crate) fn seal(&mut self) -> Result<()> {
        self.add_seal(SealFlags::WRITE)
    }

    /// Seals a memfd against new writers: existing mappings stay writable.
    pub(crate) fn seal_future_writes(&mut self) -> Result<()> {
        self.add_seal(SealFlags::FUTURE_WRITE)
    }

    /// Adds a seal against writing.
    fn add_seal(&mut self, seal: SealFlags) -> Result<()> {
        let sealed = rustix::fs::fcntl_add_seals(&self.fd, seal);
        sealed.map_err(|errno| Error::Buffer { call: "seal", errno: errno.into_errno() })?;
        self.writable = false;
        Ok(())
    }

    /// Duplicates the descriptor: the result refers to the same buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] with `EMFILE` if the process has too many open files.
    pub(crate) fn try_clone(&self) -> Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 3)
            .map_err(|errno| Error::Buffer { call: "duplicate", errno: errno.into_errno() })?;
        Ok(Self { fd, ..*self })
    }

    /// Returns the descriptor.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    pub(crate) fn check_range(&self, offset: u64, length: u64) -> Result<()> {
        check_range(self.len, offset, length)
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Shared {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// Checks that `length` bytes at byte `offset` lie within `len` bytes.
pub(crate) fn check_range(len: u64, offset: u64, length: u64) -> Result<()> {
    let end = offset.checked_add(length).ok_or(Error::RangeOverflow { offset, length })?;
    if end > len {
        return Err(Error::RangeBeyondBuffer { offset, length, buffer: len });
    }
    Ok(())
}

/// Determines the kind of a descriptor.
fn kind_of(fd: BorrowedFd<'_>) -> Result<Kind> {
    if is_dmabuf(fd) {
        return Ok(Kind::DmaBuf);
    }
    match proc_link(fd) {
        Some(link) if link.starts_with("/memfd:") => Ok(Kind::Memfd),
        // Also without /proc
        _ if is_nameless_tmpfs(fd) || is_kept(fd) => Ok(Kind::Memfd),
        Some(link) => Err(Error::NotABuffer { found: link }),
        None => Err(Error::NotABuffer { found: "unknown, as /proc/self/fd cannot be read".into() }),
    }
}

/// Whether a memfd's pages can neither be taken away nor be missing: it is sealed against
/// shrinking, has no huge pages, and the kernel overcommits memory. The seal does not prevent
/// punching holes, and there may be no page to fill one.
fn is_lasting(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
        && is_tmpfs(fd)
        && available::overcommits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memfd_has_whole_pages_and_a_name() {
        let buf = Shared::memfd(1).expect("memfd");
        assert_eq!((buf.len(), buf.kind()), (crate::memory::page::page_size(), Kind::Memfd));
        assert_eq!(buf.name().as_deref(), Some("dmabuf-dio"));
        let again = Shared::from_fd(buf.into_fd()).expect("a memfd is a buffer");
        assert!(again.is_writable());
        assert!(again.set_name("x").is_err());
    }

    #[test]
    fn range_is_checked() {
        let buf = Shared::memfd(4096).expect("memfd");
        assert!(buf.check_range(0, buf.len()).is_ok());
        assert!(matches!(buf.check_range(1, buf.len()), Err(Error::RangeBeyondBuffer { .. })));
        assert!(matches!(buf.check_range(2, u64::MAX), Err(Error::RangeOverflow { .. })));
    }

    #[test]
    fn other_descriptors_are_refused() {
        // A named file: an unnamed one counts as a buffer if the temporary folder is in memory.
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        let error = Shared::from_fd(file.reopen().expect("again").into()).expect_err("no buffer");
        assert!(matches!(error, Error::NotABuffer { .. }), "{error}");
    }
}
