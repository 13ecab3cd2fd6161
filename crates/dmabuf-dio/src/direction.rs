// SPDX-License-Identifier: MIT OR Apache-2.0
//! The direction of a transfer.

use std::fmt;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Direction {
    /// From a file to a buffer.
    Load,
    /// From a buffer to a file.
    Save,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "reading",
            Self::Save => "writing",
        })
    }
}
