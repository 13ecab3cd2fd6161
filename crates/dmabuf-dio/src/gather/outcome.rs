// SPDX-License-Identifier: MIT OR Apache-2.0
//! What became of the pieces of a call.

use crate::errno::Errno;

/// What became of a piece that is not whole at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exception {
    EndOfFile { end: u64 },
    Failed { offset: u64, errno: Errno },
    NoRoom { needed: u64 },
}

impl Exception {
    /// Where in the file it was met.
    pub(super) fn offset(self) -> u64 {
        match self {
            Self::EndOfFile { end } => end,
            Self::Failed { offset, .. } => offset,
            Self::NoRoom { .. } => 0,
        }
    }
}

/// What a call did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Requests that came to an end.
    pub(super) requests: u64,
    /// Pieces that shared the request of another.
    pub(super) shared: u64,
    /// Bytes that requests moved.
    pub(super) moved: u64,
    /// How many of them with `O_DIRECT`.
    pub(super) direct: u64,
}

/// What became of all pieces: those that are not mentioned are whole and at their places.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Where pieces begin that are not aligned, by number.
    pub(super) starts: Vec<(u32, u64)>,
    /// By number.
    pub(super) exceptions: Vec<(u32, Exception)>,
    pub(super) counts: Counts,
}
