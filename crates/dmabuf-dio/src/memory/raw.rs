// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on memory by address. No slices of shared memory exist: see `shared.rs`.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno as Os, Result};

/// Converts a C library return value.
pub(super) fn result(returned: isize) -> Result<usize> {
    usize::try_from(returned)
        .map_err(|_| Os::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Os::IO))
}

/// Reads into memory.
///
/// # Safety
///
/// The caller may write the range: it is in a mapping of shared memory, or private and not
/// borrowed.
pub(super) unsafe fn read(fd: BorrowedFd<'_>, to: *mut u8, len: usize) -> Result<usize> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::read(fd.as_raw_fd(), to.cast(), len) })
}

/// Reads from an offset in a file into memory.
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
    result(unsafe { libc::pread64(fd.as_raw_fd(), to.cast(), len, offset as libc::off64_t) })
}

/// Writes from memory.
///
/// # Safety
///
/// The range is in a mapping, or in memory that nothing writes during the call.
pub(super) unsafe fn write(fd: BorrowedFd<'_>, from: *const u8, len: usize) -> Result<usize> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::write(fd.as_raw_fd(), from.cast(), len) })
}

/// Writes from memory to an offset in a file.
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
    result(unsafe { libc::pwrite64(fd.as_raw_fd(), from.cast(), len, offset as libc::off64_t) })
}

/// Sends from memory on a socket, without a signal if the peer has closed.
///
/// # Safety
///
/// As for [`write`].
pub(super) unsafe fn send(fd: BorrowedFd<'_>, from: *const u8, len: usize) -> Result<usize> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::send(fd.as_raw_fd(), from.cast(), len, libc::MSG_NOSIGNAL) })
}
