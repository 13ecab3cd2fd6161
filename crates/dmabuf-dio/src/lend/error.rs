// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why memory cannot be lent.

use crate::errno::Errno;

/// Why the kernel module does not borrow the pages of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum NotLent {
    /// Nobody vouches that the buffers of this exporter stay in place while their pages are
    /// borrowed.
    Exporter,
    /// The buffer has memory that file I/O must not reference: uncounted or reserved pages, or
    /// memory of a device.
    Pages,
    /// The kernel's mapping of the buffer is not of its pages, or there is none.
    Mapping,
    /// This kernel's udmabuf does not synchronise the devices that have it attached.
    Unsynced,
}

impl NotLent {
    /// What the module says with `EOPNOTSUPP` or `EBUSY`.
    pub(crate) fn from_number(refusal: u32) -> Option<Self> {
        use dmabuf_dio_sys::dio;
        match refusal {
            dio::REFUSED_EXPORTER => Some(Self::Exporter),
            dio::REFUSED_PAGES => Some(Self::Pages),
            dio::REFUSED_MAPPING => Some(Self::Mapping),
            dio::REFUSED_UNSYNCED => Some(Self::Unsynced),
            _ => None,
        }
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

    /// The device does not answer as the module does.
    #[error("{} does not answer as the module does", dmabuf_dio_sys::dio::DEVICE)]
    OtherModule {
        /// As the kernel gave it.
        errno: Errno,
    },

    /// The module cannot lend pages to `io_uring` on this kernel.
    #[error("this kernel cannot lend pages to io_uring")]
    NoSlots,

    /// The module does not borrow the pages of this buffer.
    #[error("dmabuf_dio does not borrow this buffer of exporter {exporter}")]
    NotLent {
        /// Who made the buffer.
        exporter: String,
        /// Why.
        why: NotLent,
        /// As the kernel gave it.
        errno: Errno,
    },

    /// The buffer cannot be attached for another reason.
    #[error("the buffer, of exporter {exporter}, cannot be attached")]
    Attach {
        /// Who made the buffer.
        exporter: String,
        /// As the kernel gave it; `ENOMEM` says nothing about the buffer.
        errno: Errno,
    },

    /// There is no ring.
    #[error("io_uring cannot be set up: {errno}")]
    Ring {
        /// As the kernel gave it.
        errno: Errno,
    },

    /// The ring takes no table of so many buffers or files.
    #[error("io_uring takes no table of {entries} {of}")]
    Table {
        /// How many.
        entries: usize,
        /// `"buffers"`, `"files"`.
        of: &'static str,
        /// As the kernel gave it.
        errno: Errno,
    },

    /// A registered buffer of the ring cannot be filled.
    #[error("{what} slot {index} of {length} bytes")]
    Slot {
        /// `"the module refuses"`, ...
        what: &'static str,
        /// Its number.
        index: u32,
        /// Its length in bytes.
        length: u64,
        /// As the kernel gave it.
        errno: Errno,
    },
}

impl LendError {
    /// The kernel's error number, if one said so.
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
