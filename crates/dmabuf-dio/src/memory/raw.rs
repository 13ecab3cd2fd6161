// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on memory by its address. Of shared memory there are no slices: see
//! `shared.rs`.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno as Os, Result};

/// What a call of the C library returned.
pub(super) fn result(returned: isize) -> Result<usize> {
    usize::try_from(returned)
        .map_err(|_| Os::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Os::IO))
}

/// Reads into memory.
///
/// # Safety
///
/// The range is the caller's to have written: of a mapping of shared memory, or private and
/// borrowed by nobody.
pub(super) unsafe fn read(fd: BorrowedFd<'_>, to: *mut u8, len: usize) -> Result<usize> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::read(fd.as_raw_fd(), to.cast(), len) })
}

/// Reads from a place in a file into memory.
///
/// # Safety
///
/// As for [`read`].
pub(super) unsafe fn pread(
    fd: BorrowedFd<'_>,
    to: *mut u8,
    len: usize,
    offset: u64,
) -> Result<usize> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::pread(fd.as_raw_fd(), to.cast(), len, offset as libc::off_t) })
}

/// Writes out of memory.
///
/// # Safety
///
/// The range is of a mapping, or of memory that nobody else writes meanwhile.
pub(super) unsafe fn write(fd: BorrowedFd<'_>, from: *const u8, len: usize) -> Result<usize> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::write(fd.as_raw_fd(), from.cast(), len) })
}

/// Writes to a place in a file out of memory.
///
/// # Safety
///
/// As for [`write`].
pub(super) unsafe fn pwrite(
    fd: BorrowedFd<'_>,
    from: *const u8,
    len: usize,
    offset: u64,
) -> Result<usize> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::pwrite(fd.as_raw_fd(), from.cast(), len, offset as libc::off_t) })
}

/// Sends out of memory on a socket, without a signal if the other end is gone.
///
/// # Safety
///
/// As for [`write`].
pub(super) unsafe fn send(fd: BorrowedFd<'_>, from: *const u8, len: usize) -> Result<usize> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::send(fd.as_raw_fd(), from.cast(), len, libc::MSG_NOSIGNAL) })
}
