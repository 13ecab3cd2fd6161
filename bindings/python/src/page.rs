// SPDX-License-Identifier: MIT OR Apache-2.0
//! The size of a page.

/// In bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: the call takes a number only.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}
