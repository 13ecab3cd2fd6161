// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a header says of a tensor that is to be saved.

use crate::dtype::Dtype;

/// Name, type and shape of a tensor that is to be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the format has these three")]
pub struct Outline {
    /// The name.
    pub name: String,
    /// The type of its elements: one of [`Dtype::SAFETENSORS`].
    pub dtype: Dtype,
    /// The number of elements along each dimension, the outermost first; empty for a scalar. Elements
    /// of packed types count, not their bytes.
    pub shape: Vec<u64>,
}

impl Outline {
    /// Name, type and shape.
    pub fn new(name: impl Into<String>, dtype: Dtype, shape: impl Into<Vec<u64>>) -> Self {
        Self { name: name.into(), dtype, shape: shape.into() }
    }
}
