// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of bytes.

/// The order of the bytes of a number. Safetensors is little-endian; GGUF is, or rarely big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The lowest first.
    Little,
    /// The highest first.
    Big,
}

impl ByteOrder {
    /// `"little"` or `"big"`, as Python calls them.
    pub fn name(self) -> &'static str {
        match self {
            Self::Little => "little",
            Self::Big => "big",
        }
    }
}
