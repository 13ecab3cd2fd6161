// SPDX-License-Identifier: MIT OR Apache-2.0
//! A dma-buf.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::shared::Shared;
use crate::error::{Error, Result};

/// An owned file descriptor of a dma-buf, and its length. Devices can import it.
///
/// To access its content, convert it to a [`Buffer`](crate::Buffer).
///
/// `Send` and `Sync`.
#[derive(Debug)]
pub struct DmaBuf(Shared);

impl DmaBuf {
    pub(super) fn from_shared(shared: Shared) -> Self {
        debug_assert!(shared.is_dma_buf());
        Self(shared)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Allocates a zeroed dma-buf of `len` bytes, rounded up to whole pages, from the system heap.
    ///
    /// # Errors
    ///
    /// As for [`alloc_from`](Self::alloc_from).
    pub fn alloc(len: u64) -> Result<Self> {
        Shared::alloc(len).map(Self)
    }

    /// Like [`alloc`](Self::alloc), from the heap called `name` in `/dev/dma_heap`: for example one
    /// with contiguous memory, for a device without an IOMMU.
    ///
    /// # Errors
    ///
    /// [`Error::Heap`]; [`Error::NoMemory`]; [`Error::Buffer`].
    pub fn alloc_from(name: &str, len: u64) -> Result<Self> {
        Shared::alloc_from(name, len).map(Self)
    }

    /// Takes ownership of a descriptor of a dma-buf.
    ///
    /// # Errors
    ///
    /// [`Error::NotADmaBuf`] if it is a memfd; [`Error::NotABuffer`] if it is neither.
    pub fn from_fd(fd: OwnedFd) -> Result<Self> {
        let shared = Shared::from_fd(fd)?;
        if shared.is_dma_buf() {
            return Ok(Self(shared));
        }
        Err(Error::NotADmaBuf { kind: shared.kind(), why: None })
    }

    /// Length in bytes: a multiple of the page size.
    #[allow(clippy::len_without_is_empty, reason = "no dma-buf is")]
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// The exporter, such as `"system"`; `None` if `/proc` does not show it.
    pub fn exporter(&self) -> Option<String> {
        self.0.exporter()
    }

    /// The name; `None` if it has none or `/proc` does not show it.
    pub fn name(&self) -> Option<String> {
        self.0.name()
    }

    /// Sets the name, at most 31 bytes, as shown by `/proc/*/fdinfo` and debugfs.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: `EINVAL` if the name is too long.
    pub fn set_name(&self, name: &str) -> Result<()> {
        self.0.set_name(name)
    }

    /// Duplicates the descriptor: the result refers to the same dma-buf.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] with `EMFILE` if the process has too many open files.
    pub fn try_clone(&self) -> Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Returns the descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_fd()
    }
}

impl AsFd for DmaBuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for DmaBuf {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl From<DmaBuf> for OwnedFd {
    fn from(buf: DmaBuf) -> Self {
        buf.into_fd()
    }
}
