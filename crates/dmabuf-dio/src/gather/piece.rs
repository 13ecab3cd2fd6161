// SPDX-License-Identifier: MIT OR Apache-2.0
//! A piece, and what became of it.

use crate::errno::Errno;
use crate::file::Alignment;

/// A range of a file, and where in the buffer it is to go. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Where it begins in the file.
    pub file_offset: u64,
    /// Where its place in the buffer begins.
    pub buf_offset: u64,
    /// Its length.
    pub len: u64,
}

impl Piece {
    /// Where it ends in the file. Only after [`check`](super::check::check) it cannot overflow.
    pub(super) fn file_end(&self) -> u64 {
        self.file_offset + self.len
    }

    /// Where its place in the buffer ends; as for [`file_end`](Self::file_end).
    pub(super) fn buf_end(&self) -> u64 {
        self.buf_offset + self.len
    }
}

/// Where in the buffer the bytes of a piece are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Offset of the first one: the piece's place or, if the piece is not aligned, among the
    /// spare bytes.
    pub start: u64,
    /// How many there are.
    pub len: u64,
}

/// Why a piece is not in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PieceError {
    /// The file ends before the piece does.
    #[error("the file ends at byte {end}: {} bytes of the piece are there", found.len)]
    EndOfFile {
        /// What of the piece is in the buffer.
        found: Found,
        /// Where the file ends.
        end: u64,
    },

    /// The kernel or the device failed it. Its bytes in the buffer are undefined.
    #[error("reading failed at byte {offset}: {errno}")]
    Failed {
        /// Where in the file the request began that failed.
        offset: u64,
        /// `EIO`, ...
        errno: Errno,
    },

    /// It is not aligned, and its blocks do not fit into what is left of the spare bytes.
    #[error("the piece is not aligned, and its blocks need {needed} more spare bytes")]
    NoRoom {
        /// How many more spare bytes would have been needed.
        needed: u64,
    },
}

impl PieceError {
    /// One line that says what to do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::EndOfFile { .. } => "ask for less, and let no one truncate the file meanwhile",
            Self::Failed { errno, .. } if errno.raw() == libc::EIO => {
                "the storage device reports an error: see dmesg"
            }
            Self::Failed { .. } => "see dmesg for what the kernel says about it",
            Self::NoRoom { .. } => {
                "set more spare bytes, or align the piece: Gatherer::room says how many it needs"
            }
        }
    }
}

/// What requests have to be aligned to: powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Offsets and lengths in the file.
    pub(super) block: u64,
    /// Offsets in the buffer.
    pub(super) memory: u64,
}

impl Rules {
    /// Nothing needs aligning.
    pub(super) const BUFFERED: Self = Self { block: 1, memory: 1 };

    pub(super) fn direct(align: Alignment) -> Self {
        Self { block: align.offset, memory: align.memory }
    }

    pub(super) fn are_direct(self) -> bool {
        self != Self::BUFFERED
    }

    /// Whether a piece cannot be read to its place.
    pub(super) fn is_aside(self, piece: &Piece) -> bool {
        (piece.file_offset | piece.len) & (self.block - 1) != 0
            || piece.buf_offset & (self.memory - 1) != 0
    }

    /// The blocks that enclose a piece: their start and end in the file.
    pub(super) fn blocks(self, piece: &Piece) -> (u64, u64) {
        let mask = self.block - 1;
        (piece.file_offset & !mask, (piece.file_end() + mask) & !mask)
    }

    /// Bytes in a request: no more, but for a device with larger blocks.
    pub(super) fn limit(self) -> u64 {
        LIMIT.max(self.block)
    }

    /// What blocks in the spare bytes begin at.
    pub(super) fn unit(self) -> u64 {
        self.block.max(self.memory)
    }
}

/// Bytes that neighbours share a request for. More would not make a byte cheaper, and every slot
/// is longer by that much.
pub(super) const LIMIT: u64 = 256 << 10;

/// Pieces that are one range in the file and in the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) file: u64,
    pub(super) buf: u64,
    pub(super) len: u64,
    /// Which entries these are, of the order or of those aside.
    pub(super) first: u32,
    pub(super) count: u32,
}
