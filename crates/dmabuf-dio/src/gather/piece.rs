// SPDX-License-Identifier: MIT OR Apache-2.0
//! A piece and its result.

use crate::errno::Errno;
use crate::error::hint::Hint;
use crate::file::Alignment;

/// A range of a file and its destination in the buffer, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Offset in the file.
    pub offset: u64,
    /// Offset in the buffer.
    pub buf_offset: u64,
    /// Length.
    pub len: u64,
}

impl Piece {
    /// End in the file. Overflow is excluded only after [`check`](super::check::check).
    pub(super) fn file_end(&self) -> u64 {
        self.offset + self.len
    }

    /// End in the buffer; overflow as for [`file_end`](Self::file_end).
    pub(super) fn buf_end(&self) -> u64 {
        self.buf_offset + self.len
    }
}

/// The place of a piece's bytes in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Offset in the buffer, in bytes: the piece's place, or within the spare bytes if the piece is
    /// not aligned.
    pub start: u64,
    /// Number of bytes.
    pub len: u64,
}

/// Why a piece is not in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PieceError {
    /// The file ends before the piece does.
    #[error("the file ends at byte {end}: {} bytes of the piece were read", found.len)]
    EndOfFile {
        /// The part of the piece that is in the buffer.
        found: Found,
        /// End of the file, in bytes.
        end: u64,
    },

    /// The kernel or the device failed the read. The piece's bytes in the buffer are undefined.
    #[error("reading failed at byte {offset}: {errno}")]
    Failed {
        /// Offset in the file of the failed request, in bytes.
        offset: u64,
        /// `EIO`, ...
        errno: Errno,
    },

    /// The piece is not aligned, and its blocks do not fit into the remaining spare bytes.
    #[error("the piece is not aligned, and its blocks need {needed} more spare bytes")]
    NoRoom {
        /// Additional spare bytes needed.
        needed: u64,
    },
}

impl PieceError {
    /// A remedy for the error.
    pub fn hint(&self) -> Hint {
        match self {
            Self::EndOfFile { .. } => {
                "request less, and do not truncate the file during the read".into()
            }
            Self::Failed { errno, .. } if errno.raw() == libc::EIO => {
                "the storage device reports an error: see dmesg".into()
            }
            Self::Failed { .. } => "see dmesg for details".into(),
            Self::NoRoom { .. } => Hint::SpareBytes,
        }
    }
}

/// Alignment of requests: powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Alignment of file offsets and lengths.
    pub(super) block: u64,
    /// Alignment of buffer offsets.
    pub(super) memory: u64,
}

impl Rules {
    /// No alignment is needed.
    pub(super) const BUFFERED: Self = Self { block: 1, memory: 1 };

    pub(super) fn direct(align: Alignment) -> Self {
        Self { block: align.offset, memory: align.memory }
    }

    pub(super) fn are_direct(self) -> bool {
        self != Self::BUFFERED
    }

    /// Whether a piece cannot be read to its place.
    pub(super) fn is_aside(self, piece: &Piece) -> bool {
        (piece.offset | piece.len) & (self.block - 1) != 0
            || piece.buf_offset & (self.memory - 1) != 0
    }

    /// The blocks that enclose a piece: start and end in the file.
    pub(super) fn blocks(self, piece: &Piece) -> (u64, u64) {
        let mask = self.block - 1;
        (piece.offset & !mask, (piece.file_end() + mask) & !mask)
    }

    /// The maximum bytes per request, unless the device has larger blocks.
    pub(super) fn limit(self) -> u64 {
        LIMIT.max(self.block)
    }

    /// The alignment of blocks within the spare bytes.
    pub(super) fn unit(self) -> u64 {
        self.block.max(self.memory)
    }
}

/// Maximum bytes of a request shared by neighbours. More would not reduce the cost per byte, and
/// every slot is longer by that much.
pub(super) const LIMIT: u64 = 256 << 10;

/// Pieces that form one range in the file and in the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) file: u64,
    pub(super) buf: u64,
    pub(super) len: u64,
    /// The first of its entries, in the order or among those aside.
    pub(super) first: u32,
    pub(super) count: u32,
}
