// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of a file in memory that only this process has.

use std::ops::{Deref, DerefMut};

use crate::memory::Mapping;
use crate::report::Report;

/// The content of a file, in memory that no other process or device can reach. Made by
/// [`Loader::load_private`](crate::Loader::load_private), freed when dropped.
///
/// It derefs to the bytes of the range, which begin at an address that is congruent to their
/// offset in the file, modulo the page size.
#[derive(Debug)]
#[non_exhaustive]
pub struct Private {
    mapping: Mapping,
    start: usize,
    len: usize,
    /// How the bytes came there.
    pub report: Report,
}

impl Private {
    pub(crate) fn new(mapping: Mapping, start: u64, len: u64, report: Report) -> Self {
        assert!(start + len <= mapping.len());
        Self { mapping, start: start as usize, len: len as usize, report }
    }
}

impl Deref for Private {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in the mapping, which is anonymous memory that lives as long as
        // self; the kernel has finished with it, and others write it only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().add(self.start), self.len) }
    }
}

impl DerefMut for Private {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the mapping is writable, and `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_ptr().add(self.start), self.len) }
    }
}
