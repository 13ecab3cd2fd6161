// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a range is moved: by requests of one size, of which several are in flight on a
//! [`Ring`](crate::lend::Ring), or one after the other.

pub(crate) mod edge;
pub(crate) mod layout;
pub(crate) mod mapped;
pub(crate) mod plain;
pub(crate) mod ring;
pub(crate) mod staged;
pub(crate) mod task;

mod supply;

use std::os::fd::BorrowedFd;

use crate::control::Watch;
use crate::direction::Direction;
use crate::errno::Errno;
use crate::error::Error;
use crate::file::extent::Extent;

/// How far a transfer is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Up to where in the buffer everything has been moved.
    pub(crate) done: u64,
    /// Whether nothing is in flight.
    pub(crate) idle: bool,
}

/// Why a transfer ended early. `done` counts from the start of the extent, without a gap.
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
    /// The kernel does not wait for what is in flight any more. It may use the memory at any time,
    /// which therefore is kept.
    Stuck(Errno),
}

/// One transfer.
pub(crate) struct Job<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) direction: Direction,
    pub(crate) extent: Extent,
    /// Up to where in the file the bytes have to be there: a read may go beyond the file's end.
    pub(crate) needed_end: u64,
    /// What offsets may have to be multiples of; 1 when buffered.
    pub(crate) block: u64,
    pub(crate) chunk: u64,
    pub(crate) depth: u32,
    pub(crate) watch: &'a Watch<'a>,
}

impl Job<'_> {
    /// Whether a read that is refused at `offset` in the file, where another ended within a block,
    /// was at the file's end. Only reading nothing says that it was; but who takes whole blocks
    /// only, and so does not read on from there, ends within one nowhere else.
    pub(crate) fn ends_within_block(&self, offset: u64) -> bool {
        self.direction == Direction::Load && offset % self.block != 0
    }
}
