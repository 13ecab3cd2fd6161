// SPDX-License-Identifier: MIT OR Apache-2.0
//! The formats.

use std::fmt;

/// The format of a model's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// safetensors
    Safetensors,
    /// GGUF, version 2 or 3
    Gguf,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Safetensors => "safetensors",
            Self::Gguf => "GGUF",
        })
    }
}
