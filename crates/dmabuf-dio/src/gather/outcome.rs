// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of the pieces of a call.

use crate::errno::Errno;

/// The result of a piece that is not whole at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exception {
    EndOfFile { end: u64 },
    Failed { offset: u64, errno: Errno },
    NoRoom { needed: u64 },
}

impl Exception {
    /// Offset in the file at which it occurred.
    pub(super) fn offset(self) -> u64 {
        match self {
            Self::EndOfFile { end } => end,
            Self::Failed { offset, .. } => offset,
            Self::NoRoom { .. } => 0,
        }
    }
}

/// Counters of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Completed requests.
    pub(super) requests: u64,
    /// Pieces that shared another piece's request.
    pub(super) shared: u64,
    /// Bytes moved by requests.
    pub(super) moved: u64,
    /// How many of them were requested with `O_DIRECT`.
    pub(super) direct: u64,
}

/// The results of all pieces. Pieces that are not listed are whole and at their places.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Offsets of the unaligned pieces, by number.
    pub(super) starts: Vec<(u32, u64)>,
    /// By number.
    pub(super) exceptions: Vec<(u32, Exception)>,
    pub(super) counts: Counts,
}
