// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of blocks: from a device or a file, and to one.
//!
//! A block is a [`Buffer`] of the stream's ring. It goes back to the stream when neither the object nor
//! a view of it lives, so that nothing changes under who still looks at it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dmabuf_dio::DmaBuf;
use dmabuf_dio_stream::{
    Channel, Device, Error, FileSink, FileSource, Filled, IioSink, IioSource, Ring, Sink, Source,
    Wait, frame_bytes,
};
use pyo3::exceptions::{PyBufferError, PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::content::Content;
use crate::error::raise_stream;
use crate::source::path;

/// How often signal handlers run during a wait.
const TICK: Duration = Duration::from_millis(50);
/// The default of `block_size`, rounded down to whole frames.
const BLOCK: u64 = 1 << 20;

/// The blocks of a ring, and what Python still has of them.
struct Blocks {
    ring: Arc<Ring>,
    lent: Vec<Option<Arc<Content>>>,
}

impl Blocks {
    fn new(count: usize, size: u64, kind: &str) -> Result<Self, Problem> {
        let blocks = (0..count).map(|_| match kind {
            "memfd" => DmaBuf::memfd(size),
            _ => DmaBuf::alloc(size),
        });
        let blocks = blocks.collect::<Result<Vec<_>, _>>().map_err(Error::from)?;
        let lent = (0..count).map(|_| None).collect();
        Ok(Self { ring: Arc::new(Ring::of(blocks, size)?), lent })
    }

    /// A block for Python.
    fn lend(&mut self, block: usize, bytes: u64, writable: bool) -> Result<Arc<Content>, Problem> {
        let buf = self.ring.block(block).try_clone().map_err(Error::from)?;
        let content = Content::shared(buf, 0, bytes, writable);
        self.lent[block] = Some(Arc::clone(&content));
        Ok(content)
    }

    /// The blocks that Python has let go of. They count as not lent any more.
    fn returned(&mut self) -> Vec<usize> {
        let gone = |content: &Arc<Content>| Arc::strong_count(content) == 1;
        let all = 0..self.lent.len();
        let back: Vec<usize> =
            all.filter(|block| self.lent[*block].as_ref().is_some_and(gone)).collect();
        for block in &back {
            self.lent[*block] = None;
        }
        back
    }

    /// What Python has, in words.
    fn in_use(&self) -> Problem {
        let views = self.lent.iter().flatten().find_map(|content| content.views());
        let views = views.unwrap_or_else(|| "the program refers to them".into());
        Problem::InUse(format!("all {} blocks are in use: {views}", self.lent.len()))
    }
}

/// Why there is no block.
#[derive(Debug)]
enum Problem {
    Failed(Error),
    InUse(String),
    Closed,
    /// A signal handler raised.
    Raised(PyErr),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Problem {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Failed(error) => raise_stream(py, &error),
            Self::InUse(text) => PyBufferError::new_err(text),
            Self::Closed => PyValueError::new_err("the stream is closed"),
            Self::Raised(error) => error,
        }
    }
}

/// Waits a moment, then runs signal handlers.
fn pause(wait: Option<Wait<'_>>) -> Result<(), Problem> {
    match wait {
        Some(wait) => wait.wait(TICK)?,
        None => std::thread::sleep(Duration::from_millis(1)),
    }
    Python::attach(|py| py.check_signals().map_err(Problem::Raised))
}

/// A device and the channels that take part.
fn device(
    name: &str,
    buffer: u32,
    channels: Option<Vec<String>>,
    rate: Option<f64>,
) -> Result<(Device, Vec<Channel>), PyErr> {
    let device = Device::find(name).ok_or_else(|| {
        PyOSError::new_err((libc::ENODEV, "there is no IIO device of this name", name.to_owned()))
    })?;
    let raised = |error: Error| Python::attach(|py| raise_stream(py, &error));
    let all = device.channels(buffer).map_err(raised)?;
    let chosen = match channels {
        None => all.into_iter().filter(|channel| !channel.name.ends_with("timestamp")).collect(),
        Some(names) => {
            let known: Vec<&str> = all.iter().map(|channel| &*channel.name).collect();
            let unknown = names.iter().find(|name| !known.contains(&name.as_str()));
            if let Some(unknown) = unknown {
                return Err(PyValueError::new_err(format!(
                    "there is no channel {unknown:?}: the channels are {}",
                    known.join(", ")
                )));
            }
            all.into_iter().filter(|channel| names.contains(&channel.name)).collect()
        }
    };
    if let Some(rate) = rate {
        device.set_rate(buffer, rate).map_err(raised)?;
    }
    Ok((device, chosen))
}

/// The size of a block in whole frames.
fn block_size(wanted: Option<u64>, frame: u64) -> PyResult<u64> {
    let frame = frame.max(1);
    match wanted {
        None => Ok((BLOCK / frame).max(1) * frame),
        Some(size) if size % frame == 0 => Ok(size),
        Some(size) => Err(PyValueError::new_err(format!(
            "block_size {size} is not a multiple of the frame, {frame} bytes"
        ))),
    }
}

struct Reading {
    source: Box<dyn Source + Send>,
    blocks: Blocks,
    /// Bytes that were not asked for yet; `None` if there is no end.
    left: Option<u64>,
    /// What the device had lost when it got its last block: later it loses what nobody asked for.
    lost: Option<u64>,
    ended: bool,
    started: bool,
}

impl Reading {
    fn queue(&mut self, block: usize) -> Result<(), Problem> {
        let size = self.blocks.ring.size();
        let bytes = self.left.map_or(size, |left| size.min(left));
        if bytes > 0 {
            self.source.queue(block, bytes)?;
            self.left = self.left.map(|left| left - bytes);
            if self.left == Some(0) {
                self.lost = self.source.lost()?;
                self.ended = true;
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Arc<Content>>, Problem> {
        if !self.started {
            self.source.attach(&Arc::clone(&self.blocks.ring))?;
            for block in 0..self.blocks.ring.len() {
                self.queue(block)?;
            }
            self.source.start()?;
            self.started = true;
        }
        loop {
            for block in self.blocks.returned() {
                self.queue(block)?;
            }
            if let Some(Filled { block, bytes }) = self.source.take()? {
                return self.blocks.lend(block, bytes, false).map(Some);
            }
            if self.source.queued() == 0 {
                return if self.left == Some(0) { Ok(None) } else { Err(self.blocks.in_use()) };
            }
            pause(self.source.ready())?;
        }
    }
}

/// An iterator over blocks that a device or a file fills.
#[pyclass(module = "dmabuf_dio", frozen)]
pub(crate) struct BlockReader {
    reading: Mutex<Option<Reading>>,
    frame: u64,
    block_size: u64,
    channels: Vec<String>,
    rate: Option<f64>,
}

impl BlockReader {
    /// To be taken without holding the interpreter: who has it may wait for the interpreter.
    fn reading(&self) -> MutexGuard<'_, Option<Reading>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (device, channels) = self::device(name, buffer, channels, rate)?;
        let frame = frame_bytes(&channels);
        let size = self::block_size(block_size, frame)?;
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
    let size = self::block_size(block_size, frame)?;
    let made = py.detach(|| {
        let source = FileSource::open(path, frame)?;
        Ok((source, Blocks::new(blocks, size, kind)?))
    });
    let (source, blocks) = made.map_err(|error: Problem| error.raise(py))?;
    let left = source.len();
    let reading = Reading {
        source: Box::new(source),
        blocks,
        left,
        lost: None,
        ended: false,
        started: false,
    };
    let reading = Mutex::new(Some(reading));
    Ok(BlockReader { reading, frame, block_size: size, channels: Vec::new(), rate: None })
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

    /// Frames per second; `None` if the device does not tell.
    #[getter]
    fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// How data gets into a block, for people.
    #[getter]
    fn how(&self, py: Python<'_>) -> PyResult<String> {
        let how = py.detach(|| self.reading().as_ref().map(|reading| reading.source.how()));
        how.ok_or_else(|| Problem::Closed.raise(py))
    }

    /// Frames that the device says it lost; `None` if it does not say.
    #[getter]
    fn lost_frames(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let lost = py.detach(|| match self.reading().as_mut() {
            Some(Reading { lost, ended: true, .. }) => Ok(*lost),
            Some(reading) => Ok(reading.source.lost()?),
            None => Err(Problem::Closed),
        });
        lost.map_err(|error| error.raise(py))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Buffer>> {
        let next = py.detach(|| match self.reading().as_mut() {
            Some(reading) => reading.next(),
            None => Err(Problem::Closed),
        });
        let next = next.map_err(|error| error.raise(py))?;
        next.map(|content| Buffer::new(py, content, None)).transpose()
    }

    /// Stops the device. Blocks that the program has stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
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
            if self.sink.queued() == 0 {
                return Err(self.blocks.in_use());
            }
            pause(self.sink.ready())?;
        }
    }

    /// The number of a block that was lent.
    fn number(&self, content: &Arc<Content>) -> Result<usize, Problem> {
        let is_it = |lent: &Option<Arc<Content>>| {
            lent.as_ref().is_some_and(|lent| Arc::ptr_eq(lent, content))
        };
        let block = self.blocks.lent.iter().position(is_it);
        block.ok_or_else(|| Problem::InUse("this is no block of the stream".into()))
    }

    /// Queues a block that was lent.
    fn put(&mut self, block: usize, bytes: u64) -> Result<(), Problem> {
        self.sink.queue(Filled { block, bytes })?;
        self.blocks.lent[block] = None;
        Ok(())
    }

    fn finish(mut self) -> Result<u64, Problem> {
        while self.sink.queued() > 0 {
            self.take_back()?;
            if self.sink.queued() > 0 {
                pause(self.sink.ready())?;
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
        Ok(Self { writing: Mutex::new(Some(writing)), frame, block_size })
    }

    /// As [`BlockReader::reading`].
    fn writing(&self) -> MutexGuard<'_, Option<Writing>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts out samples on an IIO device.
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
    let (device, channels) = py.detach(|| self::device(name, buffer, channels, rate))?;
    let frame = frame_bytes(&channels);
    let size = self::block_size(block_size, frame)?;
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
    let size = self::block_size(block_size, frame)?;
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

    /// How data gets out of a block, for people.
    #[getter]
    fn how(&self, py: Python<'_>) -> PyResult<String> {
        let how = py.detach(|| self.writing().as_ref().map(|writing| writing.sink.how()));
        how.ok_or_else(|| Problem::Closed.raise(py))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Buffer> {
        let next = py.detach(|| match self.writing().as_mut() {
            Some(writing) => writing.next(),
            None => Err(Problem::Closed),
        });
        Buffer::new(py, next.map_err(|error| error.raise(py))?, None)
    }

    /// Sends a block, or its first `length` bytes, in whole frames. No view of it may live; it is
    /// closed.
    #[pyo3(signature = (block, length = None))]
    fn put(&self, py: Python<'_>, block: &Bound<'_, Buffer>, length: Option<u64>) -> PyResult<()> {
        let content = block.get().content(py)?;
        let length = length.unwrap_or(content.len());
        if length == 0 || length > content.len() || length % self.frame.max(1) != 0 {
            return Err(PyValueError::new_err(format!(
                "a length of {length} is not from 1 to {} bytes in frames of {}",
                content.len(),
                self.frame
            )));
        }
        let number = py.detach(|| match self.writing().as_ref() {
            Some(writing) => writing.number(&content),
            None => Err(Problem::Closed),
        });
        let number = number.map_err(|error| error.raise(py))?;
        block.get().close(py)?;
        let put = py.detach(|| match self.writing().as_mut() {
            Some(writing) => writing.put(number, length),
            None => Err(Problem::Closed),
        });
        put.map_err(|error| error.raise(py))
    }

    /// Waits until all blocks are delivered, and durable in a file. Returns the number of bytes.
    fn close(&self, py: Python<'_>) -> PyResult<u64> {
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
