// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a load.

use dmabuf_dio::Buffer;

use crate::byte_order::ByteOrder;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Loaded tensors: buffers, and where in them each tensor is.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Loaded {
    /// The buffers, each with ranges of one file. Their bytes outside the views are undefined. In the
    /// reports, counters of the process include concurrent loads of other files.
    pub buffers: Vec<Buffer>,
    /// For each buffer, the file: an index into [`Model::files`](crate::Model::files).
    pub files: Vec<usize>,
    /// The requested tensors, in the order of [`Model::tensors`](crate::Model::tensors).
    pub views: Vec<View>,
    /// Elapsed time in seconds.
    pub seconds: f64,
}

/// A tensor in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// The name.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// Elements in each dimension, the outermost first: [`Tensor::shape`](crate::Tensor::shape).
    pub shape: Vec<u64>,
    /// The buffer: an index into [`Loaded::buffers`]. `None` for a tensor without bytes.
    pub buffer: Option<usize>,
    /// Offset of the first byte in the buffer, in bytes; congruent to its offset in the file modulo
    /// the page size. The address is aligned to the type only if the tensor is aligned in the file,
    /// as it always is in GGUF files and usually in safetensors files.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The order of the bytes of a number, as in the file.
    pub byte_order: ByteOrder,
}

/// A tensor that is not in a buffer yet: `buffer` is `None`, and `offset` 0.
impl From<&Tensor> for View {
    fn from(tensor: &Tensor) -> Self {
        Self {
            name: tensor.name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            buffer: None,
            offset: 0,
            len: tensor.len(),
            byte_order: tensor.byte_order,
        }
    }
}

impl Loaded {
    /// The view of this name. Takes time proportional to the number of views.
    pub fn view(&self, name: &str) -> Option<&View> {
        self.views.iter().find(|view| view.name == name)
    }

    /// A copy of a tensor's bytes.
    ///
    /// # Errors
    ///
    /// [`Error::NoTensor`]: no such tensor was loaded; [`Error::Buffer`].
    pub fn to_vec(&self, name: &str) -> Result<Vec<u8>> {
        let view = self.view(name).ok_or_else(|| Error::NoTensor { name: name.to_owned() })?;
        // Only in 32-bit programs are there tensors that no memory can hold.
        let too_long =
            |_| dmabuf_dio::Error::NoMemory { wanted: view.len, available: None, reserve: None };
        let len = isize::try_from(view.len).map_err(too_long).map_err(Error::Buffer)?;
        let mut bytes = vec![0; len.unsigned_abs()];
        if let Some(buffer) = view.buffer {
            self.buffers[buffer].read_at(view.offset, &mut bytes).map_err(Error::Buffer)?;
        }
        Ok(bytes)
    }

    /// Bytes read from the files, including those between tensors that were read together:
    /// [`TensorLoader::gap`](crate::TensorLoader::gap).
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().filter_map(Buffer::report).map(|report| report.bytes).sum()
    }
}
