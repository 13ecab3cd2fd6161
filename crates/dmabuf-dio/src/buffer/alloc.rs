// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates new buffers and takes over inherited ones.

use std::os::fd::AsFd as _;

use dmabuf_dio_sys::heap;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno as Os;

use super::shared::Shared;
use crate::errno::{Errno, IntoErrno};
use crate::error::{Error, Result};
use crate::file;
use crate::memory::Mapping;
use crate::memory::available;
use crate::memory::available::Charged;
use crate::memory::page::{huge_page, page_size, round_up};

impl Shared {
    /// Allocates a zeroed dma-buf of `len` bytes, rounded up to whole pages, from the system heap.
    ///
    /// # Errors
    ///
    /// As for [`alloc_from`](Self::alloc_from).
    pub(crate) fn alloc(len: u64) -> Result<Self> {
        Self::alloc_from("system", len)
    }

    /// Like [`alloc`](Self::alloc), from the heap called `name` in `/dev/dma_heap`: for example one
    /// with contiguous memory, for a device without an IOMMU.
    ///
    /// # Errors
    ///
    /// [`Error::Heap`]; [`Error::NoMemory`]; [`Error::Buffer`].
    pub(crate) fn alloc_from(name: &str, len: u64) -> Result<Self> {
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

    /// Creates a zeroed memfd of `len` bytes, rounded up to whole pages and sealed against
    /// shrinking. Its pages are allocated on first touch.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`] if that is more than there is; [`Error::Buffer`] if the kernel refuses.
    pub(crate) fn memfd(len: u64) -> Result<Self> {
        let len =
            round_up(len, page_size()).ok_or(Error::RangeOverflow { offset: 0, length: len })?;
        available::ensure(len, Charged::Us)?;
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
