// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of headers and indexes, and of tensors that are to be saved.

use crate::mistaken::Mistaken;

/// A fault of a header or an index, or of tensors that are to be saved. Names in it are shortened to
/// 100 bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The file is something else, which is known.
    #[error("not a model but {found}")]
    NotAModel {
        /// What it is.
        found: Mistaken,
    },
    /// The file ends before the header does.
    #[error("the file ends before its header: it has {len} bytes and {needed} are needed")]
    Truncated {
        /// Length of the file.
        len: u64,
        /// Length that the header needs at least.
        needed: u64,
    },
    /// Something is larger than this crate accepts.
    #[error("too large: {what} {value}, and the limit is {limit}")]
    TooLarge {
        /// `"a header of bytes:"`, `"tensors:"`, ...
        what: &'static str,
        /// The value; for counts found while reading, the first that is too large.
        value: u64,
        /// The largest value that is accepted.
        limit: u64,
    },
    /// Text is not UTF-8.
    #[error("the text at byte {at} is not UTF-8")]
    Utf8 {
        /// Offset of the first wrong byte in the file.
        at: u64,
    },
    /// The JSON of a header or an index does not have the form that the format requires.
    #[error("JSON: {message}")]
    Json {
        /// The message of the parser, with line and column.
        message: String,
    },
    /// A name occurs twice.
    #[error("{what} {name:?} occurs twice")]
    Duplicate {
        /// `"tensor"` or `"key"`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A tensor that is to be saved has a name that the format uses for something else.
    #[error("a tensor cannot have the name {name:?}, which safetensors uses for the metadata")]
    Reserved {
        /// The name: `__metadata__`.
        name: String,
    },
    /// The length of a tensor's range does not match its type and shape.
    #[error("tensor {name:?} has {found} bytes, which does not match its type and shape")]
    Length {
        /// The tensor.
        name: String,
        /// Length of its range.
        found: u64,
    },
    /// The length of a tensor is not a whole number of blocks, or overflows.
    #[error("tensor {name:?} has a shape that its type cannot have, or that overflows")]
    Shape {
        /// The tensor.
        name: String,
    },
    /// A tensor is not in the file.
    #[error("tensor {name:?} ends at byte {end}, and the file has {len}")]
    OutOfFile {
        /// The tensor.
        name: String,
        /// End of its range in the file; `u64::MAX` if it overflows.
        end: u64,
        /// Length of the file.
        len: u64,
    },
    /// A tensor does not begin where the one before it ends: they overlap, or there is a hole.
    #[error("tensor {name:?} begins at byte {found} of the data and not at {expected}: {}", gap(*found, *expected))]
    Place {
        /// The tensor.
        name: String,
        /// Start of its range, from the start of the data.
        found: u64,
        /// End of the tensor before it, aligned as the format says.
        expected: u64,
    },
    /// A safetensors file continues after its last tensor.
    #[error("the tensors end at byte {end}, and the file has {len}")]
    Rest {
        /// End of the last tensor in the file.
        end: u64,
        /// Length of the file.
        len: u64,
    },
    /// The `safetensors` crate refuses the header.
    #[error("{0}")]
    Safetensors(#[source] safetensors::SafeTensorError),
    /// The version of a GGUF file.
    #[error("GGUF version {version}; 2 and 3 are known")]
    Version {
        /// The version as read.
        version: u32,
    },
    /// A number that has no meaning in GGUF.
    #[error("{what} {value} of {name:?} is unknown or not allowed")]
    Unknown {
        /// `"tensor type"`, `"value type"`, `"bool"`, ...
        what: &'static str,
        /// The number.
        value: u64,
        /// The tensor or key.
        name: String,
    },
    /// An array of arrays.
    #[error("{name:?} is an array of arrays")]
    Nested {
        /// The key.
        name: String,
    },
    /// `general.alignment` is not a power of two, or not a `u32`.
    #[error("general.alignment is not a power of two of type u32")]
    Alignment,
    /// A file of a split GGUF model does not match its name.
    #[error("part of a split model: {0}")]
    Split(&'static str),
    /// An index names a file outside its folder.
    #[error("the index names {name:?}: only files below its own folder may be named")]
    Outside {
        /// The path in the index.
        name: String,
    },
    /// An index has no `weight_map`.
    #[error("the index has no weight_map")]
    NoWeightMap,
    /// An index says that a tensor is in a file that does not have it.
    #[error("the index places tensor {name:?} in {file:?}, which does not have it")]
    NotThere {
        /// The tensor.
        name: String,
        /// The file.
        file: String,
    },
}

fn gap(found: u64, expected: u64) -> &'static str {
    if found < expected { "it overlaps another" } else { "there is a hole" }
}

/// A name for an error: hostile ones have megabytes.
pub(crate) fn short(name: &str) -> String {
    const MAX: usize = 100;
    if name.len() <= MAX {
        return name.to_owned();
    }
    let end = (0..=MAX).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(short("abc"), "abc");
        let long = "ß".repeat(1000);
        assert_eq!(short(&format!("a{long}")), format!("a{}...", "ß".repeat(49)));
    }
}
