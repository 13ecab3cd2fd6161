// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls by rustix, with this crate's error type.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::Ioctl;

use crate::Result;
use crate::errno::from_os;

/// Opens a device node.
pub(crate) fn open(path: &str, access: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty()).map_err(from_os)
}

/// Makes an ioctl.
///
/// # Safety
///
/// As for [`rustix::ioctl::ioctl`].
pub(crate) unsafe fn ioctl<I: Ioctl>(fd: BorrowedFd<'_>, call: I) -> Result<I::Output> {
    // SAFETY: the caller's promise.
    unsafe { rustix::ioctl::ioctl(fd, call) }.map_err(from_os)
}
