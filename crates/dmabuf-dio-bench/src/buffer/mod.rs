// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffers of the benchmarks, created by system calls, as a reference for the library.

pub(crate) mod devices;
pub(crate) mod mapping;
pub(crate) mod transfer;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dmabuf_dio_sys::Errno;
use dmabuf_dio_sys::dmabuf::{self, Access};
use dmabuf_dio_sys::{heap, udmabuf};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::measure::outcome::Trouble;
use crate::pattern::{Difference, POISON, Pattern};
use devices::{cannot_open, open_heap};
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

impl BufferKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DmaBuf => "dmabuf",
            Self::Udmabuf => "udmabuf",
            Self::Memfd => "memfd",
            Self::UdmabufMemfd => "u+memfd",
        }
    }

    /// Whether a new buffer has no pages yet.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::Memfd
    }

    /// Whether the target of the I/O is a dma-buf and not a memfd.
    pub(crate) fn moves_dmabuf(self) -> bool {
        matches!(self, Self::DmaBuf | Self::Udmabuf)
    }
}

/// Creates buffers of a kind.
#[derive(Debug)]
pub(crate) struct Maker {
    kind: BufferKind,
    /// The heap or `/dev/udmabuf`.
    device: Option<OwnedFd>,
}

impl Maker {
    pub(crate) fn new(kind: BufferKind) -> Result<Self, Trouble> {
        let device = match kind {
            BufferKind::Memfd => None,
            BufferKind::DmaBuf => Some(open_heap()?),
            BufferKind::Udmabuf | BufferKind::UdmabufMemfd => {
                Some(udmabuf::open().map_err(|errno| {
                    let remedy = "this kernel has no udmabuf: CONFIG_UDMABUF, or modprobe udmabuf";
                    cannot_open(udmabuf::DEVICE, errno, remedy)
                })?)
            }
        };
        Ok(Self { kind, device })
    }

    /// Creates a buffer of `len` bytes, a multiple of the page size.
    pub(crate) fn make(&self, len: u64) -> Result<Buffer, Trouble> {
        match &self.device {
            Some(heap) if self.kind == BufferKind::DmaBuf => {
                let fd = heap::alloc(heap.as_fd(), len)
                    .map_err(|errno| Trouble::failed("allocation from the system heap", errno))?;
                Ok(Buffer::of_dmabuf(fd, len))
            }
            _ => self.cover(memfd(len)?),
        }
    }

    /// Creates the dma-buf over a memfd, if this kind has one.
    pub(crate) fn cover(&self, buffer: Buffer) -> Result<Buffer, Trouble> {
        let len = buffer.len;
        let (device, memfd) = match (&self.device, buffer.memory) {
            (Some(device), BufferFds::Memfd(memfd)) => (device, memfd),
            (_, memory) => return Ok(Buffer { len, memory }),
        };
        let dmabuf = udmabuf::create(device.as_fd(), memfd.as_fd(), 0, len)
            .map_err(|errno| cannot_create(errno, len))?;
        let memory = match self.kind {
            BufferKind::Udmabuf => BufferFds::DmaBuf(dmabuf),
            _ => BufferFds::Both { dmabuf, memfd },
        };
        Ok(Buffer { len, memory })
    }
}

/// A memfd without pages, with the seals that udmabuf requires.
pub(crate) fn memfd(len: u64) -> Result<Buffer, Trouble> {
    let make = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("dmabuf-dio-bench", flags)?;
        ftruncate(&fd, len)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK)?;
        Ok(Buffer { len, memory: BufferFds::Memfd(fd) })
    };
    make().map_err(|errno: rustix::io::Errno| Trouble::failed("memfd_create", errno))
}

/// Touches memory once: in a virtual machine, the first touch can take a second per GiB.
pub(crate) fn touch_memory(len: u64) {
    // Errors here surface in the measurement.
    let _ = memfd(len).and_then(|buffer| buffer.poison());
}

/// Why no dma-buf of that length could be created over a memfd.
fn cannot_create(errno: Errno, len: u64) -> Trouble {
    let limit = std::fs::read_to_string(udmabuf::SIZE_LIMIT_MB).ok();
    match limit.and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(limit) if errno == Errno::INVAL && len > limit << 20 => Trouble::unavailable(
            "UDMABUF_CREATE",
            errno,
            &format!(
                "a udmabuf holds at most {limit} MiB here (64 before Linux 7.3); write more to {}",
                udmabuf::SIZE_LIMIT_MB
            ),
        ),
        _ => Trouble::failed("UDMABUF_CREATE", errno),
    }
}

/// A buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    len: u64,
    memory: BufferFds,
}

#[derive(Debug)]
enum BufferFds {
    DmaBuf(OwnedFd),
    Memfd(OwnedFd),
    /// A dma-buf and the memfd below it.
    Both {
        dmabuf: OwnedFd,
        memfd: OwnedFd,
    },
}

impl Buffer {
    /// Wraps a dma-buf of `len` bytes.
    pub(crate) fn of_dmabuf(fd: OwnedFd, len: u64) -> Self {
        Self { len, memory: BufferFds::DmaBuf(fd) }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether the buffer is a dma-buf.
    pub(crate) fn is_dmabuf(&self) -> bool {
        !matches!(self.memory, BufferFds::Memfd(_))
    }

    /// The dma-buf, or a memfd that has none.
    pub(crate) fn into_dmabuf(self) -> OwnedFd {
        match self.memory {
            BufferFds::DmaBuf(fd) | BufferFds::Memfd(fd) | BufferFds::Both { dmabuf: fd, .. } => fd,
        }
    }

    /// The target of the I/O: the memfd, if there is one.
    pub(crate) fn target(&self) -> BorrowedFd<'_> {
        match &self.memory {
            BufferFds::DmaBuf(fd) | BufferFds::Memfd(fd) | BufferFds::Both { memfd: fd, .. } => {
                fd.as_fd()
            }
        }
    }

    /// The buffer: the dma-buf, if there is one.
    fn content(&self) -> BorrowedFd<'_> {
        match &self.memory {
            BufferFds::DmaBuf(fd) | BufferFds::Memfd(fd) | BufferFds::Both { dmabuf: fd, .. } => {
                fd.as_fd()
            }
        }
    }

    /// Maps the target of the I/O.
    pub(crate) fn map(&self) -> Result<Mapping, Trouble> {
        Mapping::new(self.target(), self.len).map_err(|errno| Trouble::failed("mmap", errno))
    }

    /// Begins CPU access to the target through a mapping. A memfd does not need it.
    pub(crate) fn begin(&self, access: Access) -> Result<(), Trouble> {
        match &self.memory {
            BufferFds::DmaBuf(fd) => bracket(dmabuf::begin_cpu_access(fd.as_fd(), access)),
            _ => Ok(()),
        }
    }

    /// Ends it.
    pub(crate) fn end(&self, access: Access) -> Result<(), Trouble> {
        match &self.memory {
            BufferFds::DmaBuf(fd) => bracket(dmabuf::end_cpu_access(fd.as_fd(), access)),
            _ => Ok(()),
        }
    }

    /// Fills the buffer with the content of position `at` of the file.
    pub(crate) fn fill(&self, pattern: Pattern, at: u64) -> Result<(), Trouble> {
        self.look(|bytes| pattern.fill(bytes, at))
    }

    /// Compares every byte of the buffer with the content of position `at` of the file.
    pub(crate) fn check(
        &self,
        pattern: Pattern,
        at: u64,
    ) -> Result<Result<(), Difference>, Trouble> {
        self.look(|bytes| pattern.check(bytes, at))
    }

    /// Overwrites the content.
    pub(crate) fn poison(&self) -> Result<(), Trouble> {
        self.look(|bytes| bytes.fill(POISON))
    }

    /// Passes the content to `what`: through the dma-buf, if there is one.
    pub(crate) fn look<T>(&self, what: impl FnOnce(&mut [u8]) -> T) -> Result<T, Trouble> {
        let (content, access) = (self.content(), Access::ReadWrite);
        let is_dmabuf = self.is_dmabuf();
        let mut mapping =
            Mapping::new(content, self.len).map_err(|errno| Trouble::failed("mmap", errno))?;
        if is_dmabuf {
            bracket(dmabuf::begin_cpu_access(content, access))?;
        }
        // SAFETY: the buffer is this program's own, nothing is being moved now, and a memfd is
        // sealed against shrinking.
        let result = what(unsafe { mapping.bytes() });
        if is_dmabuf {
            bracket(dmabuf::end_cpu_access(content, access))?;
        }
        Ok(result)
    }
}

fn bracket(result: dmabuf_dio_sys::Result<()>) -> Result<(), Trouble> {
    result.map_err(|errno| Trouble::failed("DMA_BUF_IOCTL_SYNC", errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memfd_can_be_filled_checked_and_poisoned() {
        let buffer =
            Maker::new(BufferKind::Memfd).and_then(|maker| maker.make(8192)).expect("a memfd");
        let pattern = Pattern::new(5);
        assert!(buffer.check(pattern, 4096).expect("mapped").is_err(), "nothing there yet");
        buffer.fill(pattern, 4096).expect("filled");
        assert_eq!(buffer.check(pattern, 4096), Ok(Ok(())));
        assert!(buffer.check(pattern, 0).expect("mapped").is_err(), "another place of the file");
        buffer.poison().expect("poisoned");
        assert!(buffer.check(pattern, 4096).expect("mapped").is_err());
    }
}
