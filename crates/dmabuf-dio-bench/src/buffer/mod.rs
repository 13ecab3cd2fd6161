// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffers of the benchmarks, created by system calls, as a reference for the library.

pub(crate) mod mapping;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dmabuf_dio_sys::dmabuf::{self, Access};
use dmabuf_dio_sys::{Errno, heap, udmabuf};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno as Os;

use crate::outcome::{Lack, NO_DEVICE, NOT_ROOT, Result, Trouble, failed, refused, repeat};
use mapping::Mapping;

/// The kind of a buffer, and the target of its I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BufferKind {
    /// A dma-buf of the system heap.
    DmaBuf,
    /// A dma-buf over a memfd, which is then closed.
    Udmabuf,
    /// A memfd without allocated pages.
    Memfd,
    /// A dma-buf over a memfd, whose pages are therefore allocated. The dma-buf is the buffer, the
    /// memfd is the target of the I/O.
    UdmabufMemfd,
}

/// Creates buffers of a kind.
#[derive(Debug)]
pub(crate) struct Maker {
    kind: BufferKind,
    /// The heap or `/dev/udmabuf`.
    device: Option<OwnedFd>,
}

impl Maker {
    pub(crate) fn new(kind: BufferKind) -> Result<Self> {
        let device = match kind {
            BufferKind::Memfd => None,
            BufferKind::DmaBuf => Some(open_heap()?),
            BufferKind::Udmabuf | BufferKind::UdmabufMemfd => {
                let remedy = "this kernel has no udmabuf: CONFIG_UDMABUF, or modprobe udmabuf";
                let lacks = [(NO_DEVICE, remedy), NOT_ROOT];
                Some(udmabuf::open().map_err(refused(udmabuf::DEVICE, &lacks))?)
            }
        };
        Ok(Self { kind, device })
    }

    /// Creates a buffer of `len` bytes, a multiple of the page size.
    pub(crate) fn make(&self, len: u64) -> Result<Buffer> {
        match &self.device {
            Some(heap) if self.kind == BufferKind::DmaBuf => {
                let fd = heap::alloc(heap.as_fd(), len);
                Ok(Buffer::of_dmabuf(fd.map_err(failed("allocation from the system heap"))?, len))
            }
            _ => self.cover(memfd(len)?),
        }
    }

    /// Creates the dma-buf over a memfd, if this kind has one.
    pub(crate) fn cover(&self, mut memfd: Buffer) -> Result<Buffer> {
        if let Some(device) = &self.device {
            let (fd, len) = (memfd.target(), memfd.len);
            let dmabuf = udmabuf::create(device.as_fd(), fd, 0, len);
            memfd.dmabuf = Some(dmabuf.map_err(|errno| cannot_create(errno, len))?);
        }
        if self.kind == BufferKind::Udmabuf {
            memfd.memfd = None;
        }
        Ok(memfd)
    }
}

/// Opens the system heap.
pub(crate) fn open_heap() -> Result<OwnedFd> {
    let remedy = "this kernel has no system heap: CONFIG_DMABUF_HEAPS_SYSTEM";
    heap::open(heap::SYSTEM).map_err(refused(heap::SYSTEM, &[(NO_DEVICE, remedy), NOT_ROOT]))
}

/// Why no dma-buf of that length could be created over a memfd.
fn cannot_create(errno: Errno, len: u64) -> Trouble {
    let limit = std::fs::read_to_string(udmabuf::SIZE_LIMIT_MB).ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    let too_large: &[Os] =
        if limit.is_some_and(|limit| len > limit << 20) { &[Os::INVAL] } else { &[] };
    let remedy = "it is too large for this kernel: see udmabuf.size_limit_mb";
    refused("UDMABUF_CREATE", &[(too_large, remedy)])(errno)
}

/// A memfd without pages, with the seals that udmabuf requires.
pub(crate) fn memfd(len: u64) -> Result<Buffer> {
    let make = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("dmabuf-dio-bench", flags)?;
        ftruncate(&fd, len)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK)?;
        Ok::<_, Os>(Buffer { len, dmabuf: None, memfd: Some(fd) })
    };
    make().map_err(failed("memfd_create"))
}

/// A buffer: a dma-buf, a memfd, or a dma-buf and the memfd below it.
#[derive(Debug)]
pub(crate) struct Buffer {
    len: u64,
    dmabuf: Option<OwnedFd>,
    memfd: Option<OwnedFd>,
}

impl Buffer {
    /// Wraps a dma-buf of `len` bytes.
    pub(crate) fn of_dmabuf(fd: OwnedFd, len: u64) -> Self {
        Self { len, dmabuf: Some(fd), memfd: None }
    }

    /// The dma-buf, or a memfd that has none.
    pub(crate) fn into_dmabuf(self) -> OwnedFd {
        self.dmabuf.or(self.memfd).expect("a buffer has a descriptor")
    }

    /// The target of the I/O: the memfd, if there is one.
    pub(crate) fn target(&self) -> BorrowedFd<'_> {
        self.memfd.as_ref().or(self.dmabuf.as_ref()).expect("a buffer has a descriptor").as_fd()
    }

    /// Maps the target of the I/O.
    pub(crate) fn map(&self) -> Result<Mapping> {
        Mapping::new(self.target(), self.len)
    }

    /// The same; of a memfd the pages are allocated. A dma-buf has them.
    pub(crate) fn map_with_pages(&self) -> Result<Mapping> {
        let mut mapping = self.map()?;
        if self.dmabuf.is_none() {
            mapping.populate(0, self.len)?;
        }
        Ok(mapping)
    }

    /// Lets the CPU access the target through a mapping meanwhile. A memfd does not need it.
    pub(crate) fn bracket<T>(&self, access: Access, what: impl FnOnce() -> T) -> Result<T> {
        match &self.dmabuf {
            Some(fd) if self.memfd.is_none() => bracket(fd.as_fd(), access, what),
            _ => Ok(what()),
        }
    }

    /// `pread()` of the start of the file into a mapping of the target.
    pub(crate) fn read(&self, file: &File, mapping: &mut Mapping) -> Result<()> {
        // SAFETY: the buffer is this program's own and no other mapping of it is in use; a memfd
        // is sealed against shrinking.
        let bytes = unsafe { mapping.bytes() };
        let read = |done| rustix::io::pread(file, &mut bytes[done as usize..], done);
        self.bracket(Access::Write, || repeat("pread", self.len, read))?
    }

    pub(crate) fn sendfile(&self, file: &File) -> Result<()> {
        repeat("sendfile", self.len, |done| {
            let mut from = done;
            rustix::fs::sendfile(self.target(), file, Some(&mut from), (self.len - done) as usize)
        })
    }

    /// `copy_file_range()` to a dma-buf. Where it is not supported, it is rejected before any data is transferred.
    pub(crate) fn copy_file_range(&self, file: &File) -> Result<()> {
        const WHAT: &str = "copy_file_range to a dma-buf";
        let copy = |done| {
            let (mut from, mut to, rest) = (done, done, (self.len - done) as usize);
            rustix::fs::copy_file_range(file, Some(&mut from), self.target(), Some(&mut to), rest)
        };
        let lacks: &[Lack<'_>] = &[
            (&[Os::INVAL, Os::XDEV], "this kernel lacks it; see kernel/series"),
            (&[Os::OPNOTSUPP], "the exporter does not lend its pages"),
            (&[Os::NOSYS, Os::PERM], "the call is forbidden or missing here"),
        ];
        let first = copy(0).map_err(refused(WHAT, lacks))?;
        repeat(WHAT, self.len, |done| if done == 0 { Ok(first) } else { copy(done) })
    }

    /// Passes the content to `what`: through the dma-buf, if there is one.
    pub(crate) fn look<T>(&self, what: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        let content = self.dmabuf.as_ref().map_or_else(|| self.target(), AsFd::as_fd);
        let mut mapping = Mapping::new(content, self.len)?;
        // SAFETY: the buffer is this program's own, nothing is being moved now, and a memfd is
        // sealed against shrinking.
        let bytes = unsafe { mapping.bytes() };
        match &self.dmabuf {
            Some(fd) => bracket(fd.as_fd(), Access::ReadWrite, || what(bytes)),
            None => Ok(what(bytes)),
        }
    }
}

fn bracket<T>(fd: BorrowedFd<'_>, access: Access, what: impl FnOnce() -> T) -> Result<T> {
    let sync = failed("DMA_BUF_IOCTL_SYNC");
    dmabuf::begin_cpu_access(fd, access).map_err(&sync)?;
    let result = what();
    dmabuf::end_cpu_access(fd, access).map_err(&sync)?;
    Ok(result)
}
