// SPDX-License-Identifier: MIT OR Apache-2.0
//! The alignment of direct I/O.

use crate::memory::page::page_size;

/// The alignment that `O_DIRECT` requires, in bytes; both values are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alignment {
    /// Alignment of file offsets and lengths.
    pub offset: u64,
    /// Alignment of memory addresses.
    pub memory: u64,
}

impl Alignment {
    /// An alignment that suits every device, for file systems that do not report one.
    pub(crate) fn unknown() -> Self {
        Self { offset: page_size(), memory: page_size() }
    }
}
