// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of elements.

/// The smallest unit of a type that has a whole number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Elements in a block: 1, unless they are packed or quantised together.
    pub elements: u64,
    /// Length of a block in bytes.
    pub bytes: u64,
}
