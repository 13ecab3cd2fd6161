// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that a device or a file fills.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dmabuf_dio_stream::{FileSource, Filled, IioSource, Source, frame_bytes};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::{Blocks, Problem, pause};
use crate::buffer::Buffer;
use crate::content::Content;
use crate::error::raise_stream;
use crate::source::path;

struct Reading {
    source: Box<dyn Source + Send>,
    blocks: Blocks,
    /// Bytes that were not requested yet; `None` if there is no end.
    left: Option<u64>,
    /// What the device had lost when it got its last block: later losses do not matter.
    lost: Option<u64>,
    ended: bool,
    started: bool,
}

impl Reading {
    fn queue(&mut self, block: usize) -> Result<(), Problem> {
        let size = self.blocks.ring.size();
        let bytes = self.left.map_or(size, |left| size.min(left));
        if bytes > 0 {
            self.source.queue(&[Filled { block, bytes }])?;
            self.left = self.left.map(|left| left - bytes);
            if self.left == Some(0) {
                self.lost = self.lost()?;
                self.ended = true;
            }
        }
        Ok(())
    }

    /// A file loses nothing.
    fn lost(&mut self) -> Result<Option<u64>, Problem> {
        self.source.live().map_or(Ok(Some(0)), |device| Ok(device.lost()?.count()))
    }

    fn next(&mut self) -> Result<Option<Arc<Content>>, Problem> {
        if !self.started {
            self.source.attach(&Arc::clone(&self.blocks.ring))?;
            for block in 0..self.blocks.ring.len() {
                self.queue(block)?;
            }
            if let Some(device) = self.source.live() {
                device.start()?;
            }
            self.started = true;
        }
        loop {
            for block in self.blocks.returned() {
                self.queue(block)?;
            }
            if let Some(Filled { block, bytes }) = self.source.take()? {
                return self.blocks.lend(block, bytes, false).map(Some);
            }
            let pending = self.source.pending();
            if pending.blocks == 0 {
                return if self.left == Some(0) { Ok(None) } else { Err(self.blocks.in_use()) };
            }
            pause(pending.ready)?;
        }
    }
}

/// An iterator over blocks that a device or a file fills.
#[pyclass(module = "dmabuf_dio", frozen)]
pub(crate) struct BlockReader {
    reading: Mutex<Option<Reading>>,
    process: u32,
    frame: u64,
    block_size: u64,
    channels: Vec<String>,
    rate: Option<f64>,
}

impl BlockReader {
    /// Must be locked without holding the GIL: its holder may wait for the GIL.
    fn reading(&self) -> MutexGuard<'_, Option<Reading>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Captures samples of an IIO device.
#[pyfunction]
#[pyo3(signature = (
    device, *, channels = None, rate = None, length = None, block_size = None, blocks = 8,
    buffer = 0, kind = "dmabuf",
))]
pub(crate) fn capture(
    py: Python<'_>,
    device: &str,
    channels: Option<Vec<String>>,
    rate: Option<f64>,
    length: Option<u64>,
    block_size: Option<u64>,
    blocks: usize,
    buffer: u32,
    kind: &str,
) -> PyResult<BlockReader> {
    let name = device;
    py.detach(|| {
        let (device, channels) = super::device(name, buffer, channels, rate)?;
        let frame = frame_bytes(&channels);
        let size = super::block_size(block_size, frame, device.block_align(buffer, frame))?;
        let made = IioSource::open(device.clone(), buffer, &channels)
            .map_err(Problem::from)
            .and_then(|source| Ok((source, Blocks::new(blocks, size, kind)?)));
        let (source, blocks) = made.map_err(|error| Python::attach(|py| error.raise(py)))?;
        let left = length.map(|length| length / frame.max(1) * frame.max(1));
        let reading = Reading {
            source: Box::new(source),
            blocks,
            left,
            lost: None,
            ended: false,
            started: false,
        };
        Ok(BlockReader {
            reading: Mutex::new(Some(reading)),
            process: std::process::id(),
            frame,
            block_size: size,
            channels: channels.into_iter().map(|channel| channel.name).collect(),
            rate: device.rate(buffer),
        })
    })
}

/// Reads a file of any length through a few blocks.
#[pyfunction]
#[pyo3(signature = (path, *, frame = 1, block_size = None, blocks = 4, kind = "memfd"))]
pub(crate) fn read_blocks(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    frame: u64,
    block_size: Option<u64>,
    blocks: usize,
    kind: &str,
) -> PyResult<BlockReader> {
    let path: PathBuf = self::path(path)?;
    let size = super::block_size(block_size, frame, frame)?;
    let made = py.detach(|| {
        let source = FileSource::open(path, frame)?;
        Ok((source, Blocks::new(blocks, size, kind)?))
    });
    let (source, blocks) = made.map_err(|error: Problem| error.raise(py))?;
    let left = source.facts().len;
    let reading = Reading {
        source: Box::new(source),
        blocks,
        left,
        lost: None,
        ended: false,
        started: false,
    };
    let reading = Mutex::new(Some(reading));
    let process = std::process::id();
    Ok(BlockReader { reading, process, frame, block_size: size, channels: Vec::new(), rate: None })
}

#[pymethods]
impl BlockReader {
    /// Bytes of a frame, a sample of each channel.
    #[getter]
    fn frame(&self) -> u64 {
        self.frame
    }

    #[getter]
    fn block_size(&self) -> u64 {
        self.block_size
    }

    /// The names of the channels in a frame.
    #[getter]
    fn channels(&self) -> Vec<String> {
        self.channels.clone()
    }

    /// Frames per second; `None` if the device does not report them.
    #[getter]
    fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// How data gets into a block, as text.
    #[getter]
    fn how(&self, py: Python<'_>) -> PyResult<String> {
        self.check_process()?;
        let how = py.detach(|| self.reading().as_ref().map(|reading| reading.source.facts().how));
        how.ok_or_else(|| Problem::Closed.raise(py))
    }

    /// Number of frames that the device reports as lost; `None` if it does not report them.
    #[getter]
    fn lost_frames(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.check_process()?;
        let lost = py.detach(|| match self.reading().as_mut() {
            Some(Reading { lost, ended: true, .. }) => Ok(*lost),
            Some(reading) => reading.lost(),
            None => Err(Problem::Closed),
        });
        lost.map_err(|error| error.raise(py))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        self.check_process()?;
        let next = py.detach(|| match self.reading().as_mut() {
            Some(reading) => reading.next(),
            None => Err(Problem::Closed),
        });
        let next = next.map_err(|error| error.raise(py))?;
        Ok(next.map(|content| Buffer::new(content, None)))
    }

    /// Stops the device. Blocks that the program holds stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_ours() {
            return Ok(());
        }
        let stopped = py.detach(|| match self.reading().take() {
            Some(mut reading) if reading.started => reading.source.stop(),
            _ => Ok(()),
        });
        stopped.map_err(|error| raise_stream(py, &error))
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
        self.close(py)
    }
}
