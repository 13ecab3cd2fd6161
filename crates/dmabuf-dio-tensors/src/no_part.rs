// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that a tensor does not have.

/// Why a tensor does not have a part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPart {
    /// It has too few dimensions.
    #[error("it has no dimension {dim}")]
    Dimension {
        /// The dimension, from 0.
        dim: usize,
    },
    /// A range exceeds the tensor, is reversed, or precedes the one before it or overlaps it.
    #[error(
        "dimension {dim} has {size} elements: {start}..{end} exceeds it, or does not follow the range before it"
    )]
    Range {
        /// The dimension, from 0.
        dim: usize,
        /// Its elements.
        size: u64,
        /// The first element of the range.
        start: u64,
        /// The element after the last one.
        end: u64,
    },
    /// Elements share bytes, and the part has some of them.
    #[error("it does not consist of whole blocks of {elements} elements")]
    Blocks {
        /// Elements in a block.
        elements: u64,
    },
    /// A section cannot be divided evenly.
    #[error("{size} elements of dimension {dim} cannot be divided by {world} ranks")]
    Uneven {
        /// The dimension, from 0.
        dim: usize,
        /// Elements of the section.
        size: u64,
        /// The ranks.
        world: u32,
    },
    /// Sections do not add up to the dimension.
    #[error("dimension {dim} has {size} elements, its sections {sum}")]
    Sections {
        /// The dimension, from 0.
        dim: usize,
        /// Its elements.
        size: u64,
        /// Those of the sections together.
        sum: u64,
    },
}
