// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that a device or a file fills.

use std::sync::Arc;

use dmabuf_dio_stream::{FileSource, Filled, IioSource, Source};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{Blocks, End, Problem, Settings, pause};
use crate::buffer::Buffer;
use crate::content::Content;
use crate::options::{Given, Keywords};
use crate::source::file_path;

struct Reading {
    source: Box<dyn Source + Send>,
    blocks: Blocks,
    /// Bytes that were not requested yet; `None` if there is no end.
    left: Option<u64>,
    /// The losses up to the device's last block. Later losses do not matter.
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
    end: End<Reading>,
    /// Bytes of a frame, a sample of each channel.
    #[pyo3(get)]
    frame: u64,
    #[pyo3(get)]
    block_size: u64,
    /// The names of the channels in a frame.
    #[pyo3(get)]
    channels: Vec<String>,
    /// Frames per second; `None` if the device does not report them.
    #[pyo3(get)]
    rate: Option<f64>,
}

impl BlockReader {
    fn new(
        settings: &Settings,
        block_size: u64,
        source: Box<dyn Source + Send>,
        left: Option<u64>,
    ) -> Result<Self, Problem> {
        let blocks = settings.blocks(block_size)?;
        let reading = Reading { source, blocks, left, lost: None, ended: false, started: false };
        let (end, frame) = (End::new(reading), settings.frame);
        Ok(Self { end, frame, block_size, channels: Vec::new(), rate: None })
    }
}

/// Captures samples of an IIO device. Options: `types.CaptureOptions`.
#[pyfunction]
#[pyo3(signature = (device, **options))]
pub(crate) fn capture(
    py: Python<'_>,
    device: &str,
    options: Option<Keywords<'_>>,
) -> PyResult<BlockReader> {
    let given = Given::new("capture", options);
    let (mut settings, length) = (Settings::of_device(&given)?, given.take::<u64>("length")?);
    given.end()?;
    let (device, channels) = py.detach(|| super::device(device, &mut settings))?;
    let (size, frame) = (settings.size()?, settings.frame.max(1));
    let made = py.detach(|| {
        let source = IioSource::open(device.clone(), settings.buffer, &channels)?;
        let left = length.map(|length| length / frame * frame);
        BlockReader::new(&settings, size, Box::new(source), left)
    });
    let reader = made.map_err(|problem| problem.raise(py))?;
    let channels = channels.into_iter().map(|channel| channel.name).collect();
    Ok(BlockReader { channels, rate: py.detach(|| device.rate(settings.buffer)), ..reader })
}

/// Reads a file of any length through a few blocks. Options: `types.BlockOptions`.
#[pyfunction]
#[pyo3(signature = (path, **options))]
pub(crate) fn read_blocks(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    options: Option<Keywords<'_>>,
) -> PyResult<BlockReader> {
    let given = Given::new("read_blocks", options);
    let (path, settings) = (file_path(path)?, Settings::of_file(&given)?);
    given.end()?;
    let size = settings.size()?;
    let made = py.detach(|| {
        let source = FileSource::open(path, settings.frame)?;
        let left = source.facts().len;
        BlockReader::new(&settings, size, Box::new(source), left)
    });
    made.map_err(|problem| problem.raise(py))
}

#[pymethods]
impl BlockReader {
    /// How data gets into a block, as text.
    #[getter]
    fn how(&self, py: Python<'_>) -> PyResult<String> {
        self.end.with(py, |reading| Ok(reading.source.facts().how))
    }

    /// Number of frames that the device reports as lost; `None` if it does not report them.
    #[getter]
    fn lost_frames(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.end.with(py, |reading| match reading {
            Reading { lost, ended: true, .. } => Ok(*lost),
            reading => reading.lost(),
        })
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        let next = self.end.with(py, Reading::next)?;
        Ok(next.map(|content| Buffer::new(content, None)))
    }

    /// Stops the device. Blocks that the program holds stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.end.close(py, |mut reading| {
            if reading.started {
                reading.source.stop()?;
            }
            Ok(())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}
