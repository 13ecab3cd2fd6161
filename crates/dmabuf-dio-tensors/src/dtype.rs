// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of elements.

use std::fmt;

use crate::block::Block;
use crate::ggml::GgmlType;

/// The type of a tensor's elements. `Display` prints [`name`](Self::name).
///
/// The plain types of both formats are the same variants: an `F32` of a GGUF file is
/// [`F32`](Self::F32). Their byte order is [`Tensor::byte_order`](crate::Tensor::byte_order).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// One byte: 0 or 1.
    Bool,
    /// 4-bit float E2M1 of the OCP Microscaling specification, two in a byte.
    F4,
    /// 6-bit float E2M3, four in three bytes.
    F6E2M3,
    /// 6-bit float E3M2, four in three bytes.
    F6E3M2,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// 8-bit float E5M2 (arXiv:2209.05433).
    F8E5M2,
    /// 8-bit float E4M3 without infinities (arXiv:2209.05433).
    F8E4M3,
    /// 8-bit exponent, the scale of the OCP Microscaling formats.
    F8E8M0,
    /// 8-bit float E4M3 without negative zero (arXiv:2206.02915).
    F8E4M3Fnuz,
    /// 8-bit float E5M2 without negative zero (arXiv:2206.02915).
    F8E5M2Fnuz,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// IEEE 754 single precision.
    F32,
    /// Complex number of two `F32`.
    C64,
    /// IEEE 754 double precision.
    F64,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// Quantised blocks of a GGUF file.
    Ggml(GgmlType),
}

impl Dtype {
    /// The types of safetensors 0.8, by increasing alignment: it writes tensors in the opposite order.
    pub const SAFETENSORS: [Self; 22] = [
        Self::Bool,
        Self::F4,
        Self::F6E2M3,
        Self::F6E3M2,
        Self::U8,
        Self::I8,
        Self::F8E5M2,
        Self::F8E4M3,
        Self::F8E8M0,
        Self::F8E4M3Fnuz,
        Self::F8E5M2Fnuz,
        Self::I16,
        Self::U16,
        Self::F16,
        Self::Bf16,
        Self::I32,
        Self::U32,
        Self::F32,
        Self::C64,
        Self::F64,
        Self::I64,
        Self::U64,
    ];

    /// The name in the format's own spelling: `"BF16"`, `"F8_E4M3"`, `"Q4_K"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::F4 => "F4",
            Self::F6E2M3 => "F6_E2M3",
            Self::F6E3M2 => "F6_E3M2",
            Self::U8 => "U8",
            Self::I8 => "I8",
            Self::F8E5M2 => "F8_E5M2",
            Self::F8E4M3 => "F8_E4M3",
            Self::F8E8M0 => "F8_E8M0",
            Self::F8E4M3Fnuz => "F8_E4M3FNUZ",
            Self::F8E5M2Fnuz => "F8_E5M2FNUZ",
            Self::I16 => "I16",
            Self::U16 => "U16",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::I32 => "I32",
            Self::U32 => "U32",
            Self::F32 => "F32",
            Self::C64 => "C64",
            Self::F64 => "F64",
            Self::I64 => "I64",
            Self::U64 => "U64",
            Self::Ggml(ggml) => ggml.name(),
        }
    }

    /// The block of this type.
    pub fn block(self) -> Block {
        let (elements, bytes) = match self {
            Self::F4 => (2, 1),
            Self::F6E2M3 | Self::F6E3M2 => (4, 3),
            Self::Bool
            | Self::U8
            | Self::I8
            | Self::F8E5M2
            | Self::F8E4M3
            | Self::F8E8M0
            | Self::F8E4M3Fnuz
            | Self::F8E5M2Fnuz => (1, 1),
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => (1, 2),
            Self::I32 | Self::U32 | Self::F32 => (1, 4),
            Self::C64 | Self::F64 | Self::I64 | Self::U64 => (1, 8),
            Self::Ggml(ggml) => return ggml.block(),
        };
        Block { elements, bytes }
    }

    /// Length in bytes of a tensor of this type; `None` if it is not whole blocks, or overflows.
    pub fn byte_len(self, shape: &[u64]) -> Option<u64> {
        let Block { elements, bytes } = self.block();
        // An empty dimension makes the length 0, whatever the others are.
        if shape.contains(&0) {
            return Some(0);
        }
        let count = shape.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim))?;
        if count % elements != 0 {
            return None;
        }
        (count / elements).checked_mul(bytes)
    }

    /// The type with this name in safetensors headers.
    pub(crate) fn of_safetensors(dtype: safetensors::Dtype) -> Option<Self> {
        use safetensors::Dtype as Theirs;
        Some(match dtype {
            Theirs::BOOL => Self::Bool,
            Theirs::F4 => Self::F4,
            Theirs::F6_E2M3 => Self::F6E2M3,
            Theirs::F6_E3M2 => Self::F6E3M2,
            Theirs::U8 => Self::U8,
            Theirs::I8 => Self::I8,
            Theirs::F8_E5M2 => Self::F8E5M2,
            Theirs::F8_E4M3 => Self::F8E4M3,
            Theirs::F8_E8M0 => Self::F8E8M0,
            Theirs::F8_E4M3FNUZ => Self::F8E4M3Fnuz,
            Theirs::F8_E5M2FNUZ => Self::F8E5M2Fnuz,
            Theirs::I16 => Self::I16,
            Theirs::U16 => Self::U16,
            Theirs::F16 => Self::F16,
            Theirs::BF16 => Self::Bf16,
            Theirs::I32 => Self::I32,
            Theirs::U32 => Self::U32,
            Theirs::F32 => Self::F32,
            Theirs::C64 => Self::C64,
            Theirs::F64 => Self::F64,
            Theirs::I64 => Self::I64,
            Theirs::U64 => Self::U64,
            _ => return None,
        })
    }

    /// The type with this number in GGUF headers (`enum ggml_type` in ggml.h).
    pub(crate) fn of_ggml(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::F32,
            1 => Self::F16,
            24 => Self::I8,
            25 => Self::I16,
            26 => Self::I32,
            27 => Self::I64,
            28 => Self::F64,
            30 => Self::Bf16,
            _ => Self::Ggml(GgmlType::from_id(id)?),
        })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_whole_blocks() {
        let q4 = Dtype::of_ggml(2).expect("Q4_0");
        assert_eq!(q4.byte_len(&[3, 64]), Some(3 * 2 * 18));
        assert_eq!(q4.byte_len(&[33]), None);
        assert_eq!(Dtype::F4.byte_len(&[3, 2]), Some(3));
        assert_eq!(Dtype::F4.byte_len(&[3]), None);
        assert_eq!(Dtype::F6E2M3.byte_len(&[4]), Some(3));
        assert_eq!(Dtype::F32.byte_len(&[]), Some(4));
        assert_eq!(Dtype::F32.byte_len(&[u64::MAX, u64::MAX, 0]), Some(0));
        assert_eq!(Dtype::F32.byte_len(&[u64::MAX, 2]), None);
        assert_eq!(Dtype::U64.byte_len(&[1 << 62]), None);
    }

    #[test]
    fn dtype_names_and_sizes_match_safetensors() {
        use safetensors::Dtype as Theirs;
        let all = [
            Theirs::BOOL,
            Theirs::F4,
            Theirs::F6_E2M3,
            Theirs::F6_E3M2,
            Theirs::U8,
            Theirs::I8,
            Theirs::F8_E5M2,
            Theirs::F8_E4M3,
            Theirs::F8_E8M0,
            Theirs::F8_E4M3FNUZ,
            Theirs::F8_E5M2FNUZ,
            Theirs::I16,
            Theirs::U16,
            Theirs::F16,
            Theirs::BF16,
            Theirs::I32,
            Theirs::U32,
            Theirs::F32,
            Theirs::C64,
            Theirs::F64,
            Theirs::I64,
            Theirs::U64,
        ];
        assert!(all.is_sorted());
        for (theirs, ours) in all.into_iter().zip(Dtype::SAFETENSORS) {
            assert_eq!(Dtype::of_safetensors(theirs), Some(ours));
            assert_eq!(ours.name(), theirs.to_string());
            let bits = theirs.bitsize() as u64;
            assert_eq!(ours.block().bytes * 8, ours.block().elements * bits, "{ours}");
        }
    }
}
