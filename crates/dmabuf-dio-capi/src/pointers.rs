// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments from C.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::failure::{Failure, Outcome};

/// # Safety
///
/// Null, or a string that lives for `'a`.
pub(crate) unsafe fn path<'a>(path: *const c_char, argument: &str) -> Outcome<&'a Path> {
    if path.is_null() {
        return Err(Failure::null(argument));
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// # Safety
///
/// Negative, or the number of a descriptor that nobody closes within `'a`. A number that is not open
/// makes system calls fail.
pub(crate) unsafe fn fd<'a>(fd: c_int) -> Outcome<BorrowedFd<'a>> {
    // SAFETY: any flag word can be asked for.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        let message = format!("descriptor {fd} is not open");
        return Err(Failure::new(libc::EBADF, message, "pass an open descriptor"));
    }
    // SAFETY: it is open, and as the caller promises.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// # Safety
///
/// Null, or a value that lives for `'a` and that nobody changes meanwhile.
pub(crate) unsafe fn shared<'a, T>(value: *const T, argument: &str) -> Outcome<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { value.as_ref() }.ok_or_else(|| Failure::null(argument))
}

/// # Safety
///
/// Null, or a value that lives for `'a` and that nobody else uses meanwhile.
pub(crate) unsafe fn exclusive<'a, T>(value: *mut T, argument: &str) -> Outcome<&'a mut T> {
    // SAFETY: as the caller promises.
    unsafe { value.as_mut() }.ok_or_else(|| Failure::null(argument))
}

/// Hands a value to C, as a pointer that [`free`] takes back.
pub(crate) fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// # Safety
///
/// Null, or a pointer of [`give`] that is not used any more.
pub(crate) unsafe fn free<T>(value: *mut T) {
    if !value.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(value) });
    }
}

/// A string without NUL bytes, which JSON and the texts of reports never have.
pub(crate) fn c_string(text: String) -> CString {
    CString::new(text).unwrap_or_default()
}
