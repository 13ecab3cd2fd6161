// SPDX-License-Identifier: MIT OR Apache-2.0
//! The quantised types of GGML.

use std::fmt;

use crate::block::Block;

/// A quantised type of GGML: its elements are stored in blocks with their scales.
///
/// This crate does not interpret the bytes of a block; ggml-common.h defines their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GgmlType {
    id: u32,
    name: &'static str,
    block: Block,
}

impl GgmlType {
    /// All types, by number (`enum ggml_type` in ggml.h). Numbers that are missing are plain types,
    /// which are variants of [`Dtype`](crate::Dtype), or were removed from GGML.
    ///
    /// Lengths are the sizes of the structures in ggml-common.h. (The Python package `gguf` 0.19 has
    /// 40 bytes for `Q8_1`, which the structure had until 2024; it is not used in files.)
    pub const ALL: &'static [Self] = &[
        new(2, "Q4_0", 32, 18),
        new(3, "Q4_1", 32, 20),
        new(6, "Q5_0", 32, 22),
        new(7, "Q5_1", 32, 24),
        new(8, "Q8_0", 32, 34),
        new(9, "Q8_1", 32, 36),
        new(10, "Q2_K", 256, 84),
        new(11, "Q3_K", 256, 110),
        new(12, "Q4_K", 256, 144),
        new(13, "Q5_K", 256, 176),
        new(14, "Q6_K", 256, 210),
        new(15, "Q8_K", 256, 292),
        new(16, "IQ2_XXS", 256, 66),
        new(17, "IQ2_XS", 256, 74),
        new(18, "IQ3_XXS", 256, 98),
        new(19, "IQ1_S", 256, 50),
        new(20, "IQ4_NL", 32, 18),
        new(21, "IQ3_S", 256, 110),
        new(22, "IQ2_S", 256, 82),
        new(23, "IQ4_XS", 256, 136),
        new(29, "IQ1_M", 256, 56),
        new(34, "TQ1_0", 256, 54),
        new(35, "TQ2_0", 256, 66),
        new(39, "MXFP4", 32, 17),
        new(40, "NVFP4", 64, 36),
        new(41, "Q1_0", 128, 18),
        new(42, "Q2_0", 64, 18),
    ];

    /// The type with this number in GGUF headers.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.id == id)
    }

    /// The number in GGUF headers.
    pub fn id(self) -> u32 {
        self.id
    }

    /// The name without `GGML_TYPE_`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Elements and bytes of a block. Blocks lie in rows: the last dimension is whole blocks.
    pub fn block(self) -> Block {
        self.block
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

const fn new(id: u32, name: &'static str, elements: u64, bytes: u64) -> GgmlType {
    GgmlType { id, name, block: Block { elements, bytes } }
}
