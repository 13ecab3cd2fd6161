// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last failure of a thread.

use std::ffi::c_char;

use crate::failure;

/// Returns one line that says what failed in the last failed call of this thread, with file names and
/// offsets; an empty string if no call has failed.
///
/// Successful calls do not change it. The string is valid until the next call of this thread fails or
/// the thread ends; the caller must not free it.
#[unsafe(no_mangle)]
pub extern "C" fn dmabuf_dio_error_message() -> *const c_char {
    failure::last_message()
}

/// Returns one line that says what to do about the last failure, as a command if possible. It may be
/// empty, and is valid as long as the message.
#[unsafe(no_mangle)]
pub extern "C" fn dmabuf_dio_error_hint() -> *const c_char {
    failure::last_hint()
}

/// Returns why each backend is not available, a line for each, if that was the last failure; else an empty
/// string. It is valid as long as the message.
#[unsafe(no_mangle)]
pub extern "C" fn dmabuf_dio_error_reasons() -> *const c_char {
    failure::last_reasons()
}

/// Returns how many bytes the last failed call of this thread had moved contiguously from the start of
/// its range; 0 if it was not a transfer.
#[unsafe(no_mangle)]
pub extern "C" fn dmabuf_dio_error_done() -> u64 {
    failure::last_done()
}
