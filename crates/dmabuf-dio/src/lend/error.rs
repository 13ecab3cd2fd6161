// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why memory cannot be lent.

use crate::errno::Errno;

/// Why the kernel module does not borrow the pages of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum NotLent {
    /// Buffers of this exporter are not known to stay in place while their pages are borrowed.
    Exporter,
    /// The buffer has memory that file I/O must not reference: uncounted or reserved pages, or
    /// memory of a device.
    Pages,
    /// The kernel's mapping of the buffer does not map its pages, or there is none.
    Mapping,
    /// The exporter does not synchronise devices that need it: this kernel's udmabuf, and most drivers of DRM.
    Unsynced,
    /// The udmabuf's memfd has pages that were only allocated, by `fallocate(2)`. The first write
    /// to the memfd, or access by a mapping of it, zeroes them, whatever has been stored by then.
    Unfilled,
    /// A page of the buffer has a hardware memory error.
    Poisoned,
}

impl NotLent {
    /// Decodes what the module returns with `EOPNOTSUPP` or `EBUSY`.
    pub(crate) fn from_number(refusal: u32) -> Option<Self> {
        use dmabuf_dio_sys::dio;
        match refusal {
            dio::REFUSED_EXPORTER => Some(Self::Exporter),
            dio::REFUSED_PAGES => Some(Self::Pages),
            dio::REFUSED_MAPPING => Some(Self::Mapping),
            dio::REFUSED_UNSYNCED => Some(Self::Unsynced),
            dio::REFUSED_UNFILLED => Some(Self::Unfilled),
            dio::REFUSED_POISONED => Some(Self::Poisoned),
            _ => None,
        }
    }

    /// Whether the memory itself is unusable, so that other ways to access it would lose data, too.
    pub(crate) fn is_of_the_memory(self) -> bool {
        matches!(self, Self::Unfilled | Self::Poisoned)
    }
}

/// Why memory cannot be lent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LendError {
    /// The module's device cannot be opened.
    #[error("{} cannot be opened: {errno}", dmabuf_dio_sys::dio::DEVICE)]
    NoModule {
        /// `ENOENT`: the module is not loaded. `EACCES`, ...
        errno: Errno,
    },

    /// The device does not answer like the module.
    #[error("{} does not answer as this module does", dmabuf_dio_sys::dio::DEVICE)]
    OtherModule {
        /// The kernel's error number.
        errno: Errno,
    },

    /// The module cannot lend pages to `io_uring` on this kernel.
    #[error("this kernel cannot lend pages to io_uring")]
    NoSlots,

    /// The module does not borrow the pages of this buffer.
    #[error("dmabuf_dio does not borrow this buffer of exporter {exporter}")]
    NotLent {
        /// The exporter of the buffer.
        exporter: String,
        /// The reason.
        why: NotLent,
        /// The kernel's error number.
        errno: Errno,
    },

    /// The buffer cannot be attached for another reason.
    #[error("the buffer, of exporter {exporter}, cannot be attached")]
    Attach {
        /// The exporter of the buffer.
        exporter: String,
        /// The kernel's error number; `ENOMEM` says nothing about the buffer.
        errno: Errno,
    },

    /// The ring cannot be created.
    #[error("io_uring cannot be set up: {errno}")]
    Ring {
        /// The kernel's error number.
        errno: Errno,
    },

    /// The ring does not support a table of this size.
    #[error("io_uring does not support a table of {entries} {of}")]
    Table {
        /// Number of entries.
        entries: usize,
        /// `"buffers"` or `"files"`.
        of: &'static str,
        /// The kernel's error number.
        errno: Errno,
    },

    /// A registered buffer of the ring cannot be filled.
    #[error("{what} slot {index} of {length} bytes")]
    Slot {
        /// `"the module refuses"`, ...
        what: &'static str,
        /// Index of the buffer.
        index: u32,
        /// Length of the buffer in bytes.
        length: u64,
        /// The kernel's error number.
        errno: Errno,
    },
}

impl LendError {
    /// The kernel's error number, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::NoModule { errno }
            | Self::OtherModule { errno }
            | Self::NotLent { errno, .. }
            | Self::Attach { errno, .. }
            | Self::Ring { errno }
            | Self::Table { errno, .. }
            | Self::Slot { errno, .. } => Some(*errno),
            Self::NoSlots => None,
        }
    }
}
