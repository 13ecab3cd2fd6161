// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a content is written to.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::control::Watch;
use crate::direction::Direction;
use crate::error::{Error, Result};
use crate::memory::Mapping;

/// The memory that a range of a [`Content`](super::Content) is written to, in any order and by any number of threads.
/// Offsets are those in the range.
#[derive(Debug)]
pub struct Fill<'a> {
    mapping: &'a Mapping,
    /// Where the range starts in the mapping.
    start: u64,
    name: &'a Path,
    watch: &'a Watch<'a>,
    counted: AtomicU64,
}

impl<'a> Fill<'a> {
    /// Room for what the watch has as its total, in memory that has it.
    pub(crate) fn new(
        mapping: &'a Mapping,
        start: u64,
        name: &'a Path,
        watch: &'a Watch<'a>,
    ) -> Self {
        Self { mapping, start, name, watch, counted: AtomicU64::new(0) }
    }

    /// Bytes to write.
    pub fn length(&self) -> u64 {
        self.watch.total()
    }

    /// Copies bytes to their place. They may be written again, until they are [counted](Self::count).
    ///
    /// # Errors
    ///
    /// [`Error::RangeBeyondBuffer`]; [`Error::Buffer`] if the kernel has no page for them.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.mapping.write(self.place(offset, bytes.len())?, bytes)
    }

    /// Copies bytes out again, to check them where they are.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.mapping.copy_to(self.place(offset, out.len())?, out)
    }

    fn place(&self, offset: u64, len: usize) -> Result<u64> {
        let (length, buffer) = (len as u64, self.length());
        match offset.checked_add(length) {
            Some(end) if end <= buffer => Ok(self.start + offset),
            _ => Err(Error::RangeBeyondBuffer { offset, length, buffer }),
        }
    }

    /// Counts bytes that are in place for good, each once, and reports progress.
    pub fn count(&self, bytes: u64) {
        self.counted.fetch_add(bytes, Ordering::Relaxed);
        self.watch.add(bytes);
    }

    /// How many were counted.
    pub(crate) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Whether the load was cancelled: the reader is to end with what [`check`](Self::check) returns.
    pub fn is_cancelled(&self) -> bool {
        self.watch.is_cancelled()
    }

    /// Fails if the load was cancelled.
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`].
    pub fn check(&self) -> Result<()> {
        if !self.is_cancelled() {
            return Ok(());
        }
        Err(Error::Cancelled {
            path: self.name.to_owned(),
            direction: Direction::Load,
            done: self.counted(),
            length: self.length(),
        })
    }
}
