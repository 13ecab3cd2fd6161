// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers a range with requests of one size, several of them in flight on a
//! [`Ring`](crate::lend::Ring), or one after the other.

pub(crate) mod edge;
pub(crate) mod layout;
pub(crate) mod mapped;
pub(crate) mod plain;
pub(crate) mod poured;
pub(crate) mod private;
pub(crate) mod ring;
pub(crate) mod staged;
#[cfg(any(test, fuzzed))]
pub(crate) mod staging;
pub(crate) mod system_heap;
pub(crate) mod task;

pub(crate) mod plan;
#[cfg(any(test, fuzzed))]
pub(crate) mod properties;
pub(crate) mod supply;
mod window;

use std::os::fd::BorrowedFd;

use crate::control::Watch;
use crate::direction::Direction;
use crate::errno::Errno;
use crate::error::Error;
use crate::file::extent::Extent;

/// The progress of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Everything before this offset in the buffer has been moved.
    pub(crate) done: u64,
    /// Whether nothing is in flight.
    pub(crate) idle: bool,
}

/// Why a transfer ended early. `done` counts contiguous bytes from the start of the extent.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The kernel failed a request at this offset in the file.
    Failed { offset: u64, errno: Errno, done: u64 },
    /// The kernel, or the ring, takes no more requests.
    Refused { errno: Errno, done: u64 },
    /// The file ends here.
    Short { end: u64 },
    /// The watch was cancelled.
    Cancelled { done: u64 },
    /// The memory could not be prepared.
    Memory(Error),
    /// The kernel refuses to wait for the requests in flight. It may access the memory at any time,
    /// so the memory is kept.
    Stuck(Errno),
}

/// One transfer.
pub(crate) struct Job<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) direction: Direction,
    pub(crate) extent: Extent,
    /// The range is needed up to this offset in the file; a read may go beyond the end of the file.
    pub(crate) needed_end: u64,
    /// Required alignment of offsets; 1 when buffered.
    pub(crate) block: u64,
    pub(crate) chunk: u64,
    pub(crate) depth: u32,
    pub(crate) watch: &'a Watch<'a>,
}

impl Job<'_> {
    /// Whether a read that was refused at `offset` in the file, where another ended within a block,
    /// was at the end of the file. Only a read of 0 bytes proves that. But a file system that
    /// accepts only whole blocks refuses to read on from there, and ends a read within a block
    /// nowhere else.
    pub(crate) fn ends_within_block(&self, offset: u64) -> bool {
        self.direction == Direction::Load && offset % self.block != 0
    }
}

#[cfg(any(test, fuzzed))]
impl<'a> Job<'a> {
    /// A load of a whole extent with blocks of 512 bytes, one request of at most 8192 bytes at a time.
    pub(crate) fn of(file: BorrowedFd<'a>, extent: Extent, watch: &'a Watch<'a>) -> Self {
        let needed_end = extent.file + extent.len;
        let (block, chunk, depth) = (512, 8192, 1);
        Self { file, direction: Direction::Load, extent, needed_end, block, chunk, depth, watch }
    }
}
