// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a load.

use dmabuf_dio::{DmaBuf, Private, Report};

use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// Loaded tensors: buffers, and where in them each tensor is.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The buffers. Their bytes outside the views are undefined.
    pub buffers: Vec<Buffer>,
    /// The requested tensors, in the order of [`Model::tensors`](crate::Model::tensors).
    pub views: Vec<View>,
    /// Elapsed time in seconds.
    pub seconds: f64,
}

/// A buffer with ranges of one file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Buffer {
    /// The memory.
    pub memory: Memory,
    /// The file: an index into [`Model::files`](crate::Model::files).
    pub file: usize,
    /// How the data was transferred. Counters of the process include concurrent loads of other files.
    pub report: Report,
}

/// The memory of a buffer.
#[derive(Debug)]
pub enum Memory {
    /// A dma-buf or a memfd, which devices and other processes can use.
    Shared(DmaBuf),
    /// Memory of this process: [`TensorLoader::private`](crate::TensorLoader::private).
    Private(Box<Private>),
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
}

impl Buffer {
    /// The dma-buf or memfd; `None` for private memory.
    pub fn shared(&self) -> Option<&DmaBuf> {
        match &self.memory {
            Memory::Shared(buf) => Some(buf),
            Memory::Private(_) => None,
        }
    }

    /// Copies bytes from `offset` into `out`. A dma-buf is mapped for each call: for many reads,
    /// map it once with [`DmaBuf::map`].
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: the range exceeds the buffer, or the buffer cannot be mapped.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match &self.memory {
            Memory::Shared(buf) => {
                buf.map().and_then(|map| map.read_at(offset, out)).map_err(Error::Buffer)
            }
            Memory::Private(bytes) => {
                let (length, buffer) = (out.len() as u64, bytes.len() as u64);
                let beyond = dmabuf_dio::Error::RangeBeyondBuffer { offset, length, buffer };
                let end = offset.checked_add(length).filter(|end| *end <= buffer);
                let end = end.ok_or(Error::Buffer(beyond))?;
                out.copy_from_slice(&bytes[offset as usize..end as usize]);
                Ok(())
            }
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
            self.buffers[buffer].read_at(view.offset, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Bytes read from the files, including those between tensors that were read together:
    /// [`TensorLoader::gap`](crate::TensorLoader::gap).
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.report.bytes).sum()
    }
}
