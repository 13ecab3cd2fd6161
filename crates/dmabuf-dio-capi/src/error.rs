// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the last failure of a thread was.

use std::ffi::c_char;

use crate::failure;

/// Returns what failed in the last call of this thread that failed: one line, with the names of
/// files and with offsets. An empty string if no call has failed.
///
/// A call that succeeds leaves it as it is. The string stays until the next call of this thread
/// fails, or the thread ends; it is not freed by the caller.
#[unsafe(no_mangle)]
pub extern "C" fn dmabuf_dio_error_message() -> *const c_char {
    failure::last_message()
}

/// Returns what to do about it: one line, a command where one helps. It may be empty, and lives as
/// long as the message.
#[unsafe(no_mangle)]
pub extern "C" fn dmabuf_dio_error_hint() -> *const c_char {
    failure::last_hint()
}

/// Returns how many bytes the last call of this thread that failed had moved, without a gap, from
/// the start of its range. 0 if it was not a transfer.
#[unsafe(no_mangle)]
pub extern "C" fn dmabuf_dio_error_done() -> u64 {
    failure::last_done()
}
