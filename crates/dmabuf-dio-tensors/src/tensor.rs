// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entry of a tensor in a header.

use std::ops::Range;

use crate::byte_order::ByteOrder;
use crate::dtype::Dtype;
use crate::error::Error;
use crate::no_part::NoPart;

/// A tensor, as its header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tensor {
    /// The name, unique in the model.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// Elements in each dimension, the outermost first (row-major, as in safetensors and `NumPy`).
    /// GGUF stores dimensions the other way round; here they are reversed. A scalar has none.
    pub shape: Vec<u64>,
    /// The file: an index into [`Model::files`](crate::Model::files).
    pub file: usize,
    /// The bytes in the file. The start need not be aligned to the type. Of a [`Part`](crate::Part) that is
    /// not contiguous: from the first to the last.
    pub range: Range<u64>,
    /// The order of the bytes of a number. It is loaded as it is: nothing converts it.
    pub byte_order: ByteOrder,
}

impl Tensor {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.dtype.byte_len(&self.shape).unwrap_or(self.range.end - self.range.start)
    }

    /// Whether all bytes of `range` belong to it: only of a [`Part`](crate::Part) there may be others.
    pub fn is_contiguous(&self) -> bool {
        self.len() == self.range.end - self.range.start
    }

    pub(crate) fn no_part(&self, reason: NoPart) -> Error {
        Error::NoPart { name: self.name.clone(), shape: self.shape.clone(), reason }
    }

    /// Whether it has no bytes: a dimension is 0.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The shape in bytes for types with blocks: as [`shape`](Self::shape), but the last dimension
    /// counts bytes. `None` if the last dimension is not whole blocks (possible with `F4` and `F6`).
    pub fn byte_shape(&self) -> Option<Vec<u64>> {
        let block = self.dtype.block();
        let mut shape = self.shape.clone();
        match shape.last_mut() {
            Some(last) if *last % block.elements == 0 => {
                *last = *last / block.elements * block.bytes;
            }
            Some(_) => return None,
            None => shape.push(block.bytes),
        }
        Some(shape)
    }
}
