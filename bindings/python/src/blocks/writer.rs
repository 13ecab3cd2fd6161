// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that go to a device or a file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dmabuf_dio_stream::{FileSink, Filled, IioSink, Sink, frame_bytes};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::{Blocks, Problem, pause};
use crate::buffer::Buffer;
use crate::content::Content;
use crate::source::path;

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
    writing: Mutex<Option<Writing>>,
    process: u32,
    frame: u64,
    block_size: u64,
}

impl BlockWriter {
    fn new(
        py: Python<'_>,
        frame: u64,
        block_size: u64,
        make: impl FnOnce() -> Result<(Box<dyn Sink + Send>, Blocks), Problem> + Send,
    ) -> PyResult<Self> {
        let made = py.detach(|| {
            let (mut sink, blocks) = make()?;
            sink.attach(&Arc::clone(&blocks.ring), None)?;
            let free = (0..blocks.ring.len()).collect();
            Ok(Writing { sink, blocks, free, done: 0 })
        });
        let writing = made.map_err(|error: Problem| error.raise(py))?;
        let (writing, process) = (Mutex::new(Some(writing)), std::process::id());
        Ok(Self { writing, process, frame, block_size })
    }

    /// Must be locked without holding the GIL: its holder may wait for the GIL.
    fn writing(&self) -> MutexGuard<'_, Option<Writing>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A child of fork(2) has no part in the stream: a thread of its parent may have it locked.
    fn is_ours(&self) -> bool {
        std::process::id() == self.process
    }

    fn check_process(&self) -> PyResult<()> {
        if self.is_ours() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "a stream belongs to the process that created it: create another after fork()",
        ))
    }
}

/// Outputs samples on an IIO device.
#[pyfunction]
#[pyo3(signature = (
    device, *, channels = None, rate = None, block_size = None, blocks = 8, buffer = 0,
    kind = "dmabuf",
))]
pub(crate) fn replay(
    py: Python<'_>,
    device: &str,
    channels: Option<Vec<String>>,
    rate: Option<f64>,
    block_size: Option<u64>,
    blocks: usize,
    buffer: u32,
    kind: &str,
) -> PyResult<BlockWriter> {
    let name = device;
    let (device, channels) = py.detach(|| super::device(name, buffer, channels, rate))?;
    let frame = frame_bytes(&channels);
    let size = super::block_size(block_size, frame, device.block_align(buffer, frame))?;
    let kind = kind.to_owned();
    BlockWriter::new(py, frame, size, move || {
        let sink = IioSink::open(device, buffer, &channels)?;
        Ok((Box::new(sink), Blocks::new(blocks, size, &kind)?))
    })
}

/// Writes a file of any length through a few blocks.
#[pyfunction]
#[pyo3(signature = (path, *, frame = 1, block_size = None, blocks = 4, kind = "memfd"))]
pub(crate) fn write_blocks(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    frame: u64,
    block_size: Option<u64>,
    blocks: usize,
    kind: &str,
) -> PyResult<BlockWriter> {
    let path: PathBuf = self::path(path)?;
    let size = super::block_size(block_size, frame, frame)?;
    let kind = kind.to_owned();
    BlockWriter::new(py, frame, size, move || {
        Ok((Box::new(FileSink::create(path)?), Blocks::new(blocks, size, &kind)?))
    })
}

#[pymethods]
impl BlockWriter {
    /// Bytes of a frame, a sample of each channel.
    #[getter]
    fn frame(&self) -> u64 {
        self.frame
    }

    #[getter]
    fn block_size(&self) -> u64 {
        self.block_size
    }

    /// How data gets out of a block, as text.
    #[getter]
    fn how(&self, py: Python<'_>) -> PyResult<String> {
        self.check_process()?;
        let how = py.detach(|| self.writing().as_ref().map(|writing| writing.sink.facts().how));
        how.ok_or_else(|| Problem::Closed.raise(py))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Buffer> {
        self.check_process()?;
        let next = py.detach(|| match self.writing().as_mut() {
            Some(writing) => writing.next(),
            None => Err(Problem::Closed),
        });
        Ok(Buffer::new(next.map_err(|error| error.raise(py))?, None))
    }

    /// Sends a block, or its first `length` bytes, in whole frames. No view of the block may exist.
    /// The block is closed.
    #[pyo3(signature = (block, length = None))]
    fn put(&self, py: Python<'_>, block: &Bound<'_, Buffer>, length: Option<u64>) -> PyResult<()> {
        self.check_process()?;
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
        let ours = py.detach(|| match self.writing().as_ref() {
            Some(writing) => writing.number(&content),
            None => Err(Problem::Closed),
        });
        ours.map_err(|error| error.raise(py))?;
        block.get().close(py)?;
        let put = py.detach(|| match self.writing().as_mut() {
            Some(writing) => writing.put(&content, length),
            None => Err(Problem::Closed),
        });
        put.map_err(|error| error.raise(py))
    }

    /// Waits until all blocks are delivered and, in a file, durable. Returns the number of bytes.
    fn close(&self, py: Python<'_>) -> PyResult<u64> {
        if !self.is_ours() {
            return Ok(0);
        }
        let finished = py.detach(|| match self.writing().take() {
            Some(writing) => writing.finish(),
            None => Ok(0),
        });
        finished.map_err(|error| error.raise(py))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Bound<'_, PyAny>,
        _exception: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py).map(|_| ())
    }
}
