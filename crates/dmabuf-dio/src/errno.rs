// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel error numbers, from wherever they come.

pub use dmabuf_dio_sys::Errno;

/// Conversion into an [`Errno`]. Not a `From`, which would make rustix's type part of the public interface.
pub(crate) trait IntoErrno {
    fn into_errno(self) -> Errno;
}

impl IntoErrno for Errno {
    fn into_errno(self) -> Errno {
        self
    }
}

impl IntoErrno for rustix::io::Errno {
    fn into_errno(self) -> Errno {
        Errno::from_raw(self.raw_os_error())
    }
}
