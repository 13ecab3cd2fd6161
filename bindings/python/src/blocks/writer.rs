// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that go to a device or a file.

use std::sync::Arc;

use dmabuf_dio_stream::{Error, FileSink, Filled, IioSink, Sink};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{Blocks, End, Problem, Settings, pause};
use crate::buffer::Buffer;
use crate::content::Content;
use crate::options::{Given, Keywords};
use crate::source::file_path;

struct Writing {
    sink: Box<dyn Sink + Send>,
    blocks: Blocks,
    free: Vec<usize>,
    /// Bytes that were delivered.
    done: u64,
}

impl Writing {
    fn take_back(&mut self) -> Result<(), Problem> {
        while let Some(filled) = self.sink.take()? {
            self.done += filled.bytes;
            self.free.push(filled.block);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Arc<Content>, Problem> {
        loop {
            let returned = self.blocks.returned();
            self.free.extend(returned);
            self.take_back()?;
            if !self.free.is_empty() {
                let block = self.free.remove(0);
                let size = self.blocks.ring.size();
                return self.blocks.lend(block, size, true);
            }
            let pending = self.sink.pending();
            if pending.blocks == 0 {
                return Err(self.blocks.in_use());
            }
            pause(pending.ready)?;
        }
    }

    /// The number of a block that was lent.
    fn number(&self, content: &Arc<Content>) -> Result<usize, Problem> {
        let is_it = |lent: &Option<Arc<Content>>| {
            lent.as_ref().is_some_and(|lent| Arc::ptr_eq(lent, content))
        };
        let block = self.blocks.lent.iter().position(is_it);
        block.ok_or_else(|| Problem::InUse("this is not a block of the stream".into()))
    }

    /// Queues a block that was lent, once: another thread may put it at the same time.
    fn put(&mut self, content: &Arc<Content>, bytes: u64) -> Result<(), Problem> {
        let block = self.number(content)?;
        self.sink.queue(Filled { block, bytes })?;
        self.blocks.lent[block] = None;
        Ok(())
    }

    fn finish(mut self) -> Result<u64, Problem> {
        while self.sink.pending().blocks > 0 {
            self.take_back()?;
            let pending = self.sink.pending();
            if pending.blocks > 0 {
                pause(pending.ready)?;
            }
        }
        self.sink.finish()?;
        Ok(self.done)
    }
}

/// An iterator over empty blocks, which `put()` sends to a device or a file.
#[pyclass(module = "dmabuf_dio", frozen)]
pub(crate) struct BlockWriter {
    end: End<Writing>,
    /// Bytes of a frame, a sample of each channel.
    #[pyo3(get)]
    frame: u64,
    #[pyo3(get)]
    block_size: u64,
}

impl BlockWriter {
    fn new<S: Sink + Send + 'static>(
        py: Python<'_>,
        settings: &Settings,
        open: impl FnOnce() -> Result<S, Error> + Send,
    ) -> PyResult<Self> {
        let (frame, block_size) = (settings.frame, settings.size()?);
        let made = py.detach(|| {
            let mut sink = Box::new(open()?);
            let blocks = settings.blocks(block_size)?;
            sink.attach(&Arc::clone(&blocks.ring), None)?;
            let free = (0..blocks.ring.len()).collect();
            Ok(Writing { sink, blocks, free, done: 0 })
        });
        let writing = made.map_err(|problem: Problem| problem.raise(py))?;
        Ok(Self { end: End::new(writing), frame, block_size })
    }
}

/// Outputs samples on an IIO device. Options: `types.DeviceOptions`.
#[pyfunction]
#[pyo3(signature = (device, **options))]
pub(crate) fn replay(
    py: Python<'_>,
    device: &str,
    options: Option<Keywords<'_>>,
) -> PyResult<BlockWriter> {
    let given = Given::new("replay", options);
    let mut settings = Settings::of_device(&given)?;
    given.end()?;
    let (device, channels) = py.detach(|| super::device(device, &mut settings))?;
    BlockWriter::new(py, &settings, || IioSink::open(device, settings.buffer, &channels))
}

/// Writes a file of any length through a few blocks. Options: `types.BlockOptions`.
#[pyfunction]
#[pyo3(signature = (path, **options))]
pub(crate) fn write_blocks(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    options: Option<Keywords<'_>>,
) -> PyResult<BlockWriter> {
    let given = Given::new("write_blocks", options);
    let (path, settings) = (file_path(path)?, Settings::of_file(&given)?);
    given.end()?;
    BlockWriter::new(py, &settings, || FileSink::create(path))
}

#[pymethods]
impl BlockWriter {
    /// How data gets out of a block, as text.
    #[getter]
    fn how(&self, py: Python<'_>) -> PyResult<String> {
        self.end.with(py, |writing| Ok(writing.sink.facts().how))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Buffer> {
        Ok(Buffer::new(self.end.with(py, Writing::next)?, None))
    }

    /// Sends a block, or its first `length` bytes, in whole frames. No view of the block may exist.
    /// The block is closed.
    #[pyo3(signature = (block, length = None))]
    fn put(&self, py: Python<'_>, block: &Bound<'_, Buffer>, length: Option<u64>) -> PyResult<()> {
        let content = block.get().content()?;
        let length = length.unwrap_or(content.len());
        if length == 0 || length > content.len() || length % self.frame.max(1) != 0 {
            return Err(PyValueError::new_err(format!(
                "a length of {length} is not from 1 to {} bytes in frames of {}",
                content.len(),
                self.frame
            )));
        }
        // A block of somebody else is not closed.
        self.end.with(py, |writing| writing.number(&content))?;
        block.get().close(py)?;
        self.end.with(py, |writing| writing.put(&content, length))
    }

    /// Waits until all blocks are delivered and, in a file, durable. Returns the number of bytes.
    fn close(&self, py: Python<'_>) -> PyResult<u64> {
        self.end.close(py, Writing::finish)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py).map(|_| ())
    }
}
