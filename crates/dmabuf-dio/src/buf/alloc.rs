// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates new buffers and takes over inherited ones.

use std::ops::Range;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::str::FromStr;

use dmabuf_dio_sys::heap;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno as Os;

use super::DmaBuf;
use crate::errno::{Errno, IntoErrno};
use crate::error::{Error, Result};
use crate::file;
use crate::memory::Mapping;
use crate::memory::available;
use crate::memory::available::Charged;
use crate::memory::page::{huge_page, page_size, round_up};

impl DmaBuf {
    /// Allocates a zeroed dma-buf of `len` bytes, rounded up to whole pages, from the system heap.
    ///
    /// # Errors
    ///
    /// As for [`alloc_from`](Self::alloc_from).
    pub fn alloc(len: u64) -> Result<Self> {
        Self::alloc_from("system", len)
    }

    /// Like [`alloc`](Self::alloc), from the heap called `name` in `/dev/dma_heap`: for example one
    /// with contiguous memory, for a device without an IOMMU.
    ///
    /// # Errors
    ///
    /// [`Error::Heap`]; [`Error::NoMemory`]; [`Error::Buffer`].
    pub fn alloc_from(name: &str, len: u64) -> Result<Self> {
        let error = |errno| Error::Heap { heap: name.to_owned(), errno };
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Err(error(Errno::INVAL));
        }
        let device = heap::open(&format!("{}/{name}", heap::DIRECTORY)).map_err(error)?;
        available::ensure(len, Charged::Nobody)?;
        let fd = heap::alloc(device.as_fd(), len).map_err(|errno| match errno {
            Errno::NOMEM => Error::NoMemory { wanted: len, available: None, reserve: None },
            _ => Error::Buffer { call: "allocate", errno },
        })?;
        Ok(Self::from_parts(fd, len.next_multiple_of(page_size())))
    }

    /// Takes over the buffer that `dmabuf-dio load FILE -- PROGRAM` passes to PROGRAM in the
    /// variables `DMABUF_DIO_FD`, `DMABUF_DIO_OFFSET` and `DMABUF_DIO_LEN`. Returns a duplicate of
    /// the descriptor, and the range of the content in the buffer, in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`]; [`Error::NotABuffer`]; [`Error::RangeBeyondBuffer`];
    /// [`Error::Buffer`] with `EBADF` if the descriptor is not open.
    pub fn from_env() -> Result<(Self, Range<u64>)> {
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
        let buf = Self::from_fd(unsafe { OwnedFd::from_raw_fd(fd) })?;
        buf.check_range(offset, length)?;
        Ok((buf, offset..offset + length))
    }

    /// Creates a zeroed memfd of `len` bytes, rounded up to whole pages and sealed against
    /// shrinking. Its pages are allocated on first touch.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] if the kernel refuses.
    pub fn memfd(len: u64) -> Result<Self> {
        let len =
            round_up(len, page_size()).ok_or(Error::RangeOverflow { offset: 0, length: len })?;
        Self::create_memfd(len, MemfdFlags::empty(), SealFlags::SHRINK)
            .map_err(|errno| Error::Buffer { call: "create", errno: errno.into_errno() })
    }

    /// Creates a memfd with reserved huge pages, of `len` bytes rounded up to their size.
    pub(crate) fn memfd_huge(len: u64) -> rustix::io::Result<(Self, Mapping)> {
        let len = round_up(len, huge_page()).ok_or(Os::OVERFLOW)?;
        // The size is part of the flags, as its logarithm (MFD_HUGE_SHIFT in memfd_create(2)).
        let size = MemfdFlags::from_bits_retain(huge_page().trailing_zeros() << 26);
        let huge = MemfdFlags::HUGETLB | size;
        let buf = Self::create_memfd(len, huge, SealFlags::SHRINK | SealFlags::GROW)?;
        // The mapping reserves the pages: without it, a touch could raise SIGBUS.
        let mapping = buf.mapping(true).map_err(|_| Os::NOMEM)?;
        Ok((buf, mapping))
    }

    /// Creates a memfd of exactly `len` bytes, sealed against shrinking and growing.
    pub(crate) fn memfd_exact(len: u64) -> rustix::io::Result<Self> {
        Self::create_memfd(len, MemfdFlags::empty(), SealFlags::SHRINK | SealFlags::GROW)
    }

    fn create_memfd(len: u64, flags: MemfdFlags, seals: SealFlags) -> rustix::io::Result<Self> {
        file::check_size(len)?;
        let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("dmabuf-dio", flags)?;
        rustix::fs::ftruncate(&fd, len)?;
        rustix::fs::fcntl_add_seals(&fd, seals)?;
        Ok(Self::from_memfd(fd, len))
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
