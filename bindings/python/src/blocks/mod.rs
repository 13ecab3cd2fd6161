// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of blocks: from a device or a file, and to one.
//!
//! A block is a [`Buffer`](crate::buffer::Buffer) of the stream's ring. It returns to the stream
//! once neither the object nor a view of it exists, so that its content does not change while it is
//! in use.

pub(crate) mod reader;
pub(crate) mod writer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dmabuf_dio::{Buffer, Kind};
use dmabuf_dio_stream::{BlockRing, Channel, Device, Error, Wait, frame_bytes};
use pyo3::exceptions::{PyBufferError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::content::Content;
use crate::error::raise_stream;
use crate::options::Given;

/// How often signal handlers run during a wait.
const TICK: Duration = Duration::from_millis(50);
/// The default of `block_size`, rounded down to whole frames and what the device transfers.
const BLOCK: u64 = 1 << 20;

/// The blocks of a ring, and which of them Python still holds.
struct Blocks {
    ring: Arc<BlockRing>,
    lent: Vec<Option<Arc<Content>>>,
}

impl Blocks {
    /// A block for Python.
    fn lend(&mut self, block: usize, bytes: u64, writable: bool) -> Result<Arc<Content>, Problem> {
        let buf = self.ring.block(block).try_clone().map_err(Error::from)?;
        let content = Content::part(buf, 0, bytes, writable);
        self.lent[block] = Some(Arc::clone(&content));
        Ok(content)
    }

    /// The blocks that Python has released. They no longer count as lent.
    fn returned(&mut self) -> Vec<usize> {
        let mut back = Vec::new();
        for (block, lent) in self.lent.iter_mut().enumerate() {
            // Unlike the count of references, this is ordered after other threads' accesses to the
            // block.
            if lent.as_mut().is_some_and(|content| Arc::get_mut(content).is_some()) {
                *lent = None;
                back.push(block);
            }
        }
        back
    }

    /// The objects that Python holds, as text.
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

/// The settings of a stream.
struct Settings {
    channels: Option<Vec<String>>,
    rate: Option<f64>,
    buffer: u32,
    /// Bytes of a frame.
    frame: u64,
    /// The smallest transfer of the device. Blocks are a multiple of it by default.
    align: u64,
    block_size: Option<u64>,
    blocks: usize,
    kind: Kind,
}

impl Settings {
    fn of_file(given: &Given<'_>) -> PyResult<Self> {
        let frame = given.take_or("frame", 1)?;
        Self::with(given, frame, 4, Kind::Memfd)
    }

    fn of_device(given: &Given<'_>) -> PyResult<Self> {
        let settings = Self::with(given, 1, 8, Kind::DmaBuf)?;
        let (channels, rate) = (given.take("channels")?, given.take("rate")?);
        Ok(Self { channels, rate, buffer: given.take_or("buffer", 0)?, ..settings })
    }

    fn with(given: &Given<'_>, frame: u64, blocks: usize, kind: Kind) -> PyResult<Self> {
        let block_size = given.take("block_size")?;
        let (blocks, kind) = (given.take_or("blocks", blocks)?, given.made_kind(kind)?);
        let (channels, rate, buffer, align) = (None, None, 0, frame);
        Ok(Self { channels, rate, buffer, frame, align, block_size, blocks, kind })
    }

    /// The size of a block in whole frames; by default a multiple of `align`, which is a multiple of
    /// frames.
    fn size(&self) -> PyResult<u64> {
        let (frame, align) = (self.frame.max(1), self.align.max(1));
        match self.block_size {
            None => Ok((BLOCK / align).max(1) * align),
            Some(size) if size % frame == 0 => Ok(size),
            Some(size) => Err(PyValueError::new_err(format!(
                "block_size {size} is not a multiple of the frame, {frame} bytes"
            ))),
        }
    }

    fn blocks(&self, size: u64) -> Result<Blocks, Problem> {
        let blocks = (0..self.blocks).map(|_| Buffer::alloc_kind(self.kind, "system", size));
        let blocks = blocks.collect::<Result<Vec<_>, _>>().map_err(Error::from)?;
        let lent = (0..self.blocks).map(|_| None).collect();
        Ok(Blocks { ring: Arc::new(BlockRing::of(blocks, size)?), lent })
    }
}

/// One end of a stream, until it is closed. A child of fork(2) has no part in it: a thread of its parent
/// may have it locked.
struct End<T> {
    end: Mutex<Option<T>>,
    process: u32,
}

impl<T: Send> End<T> {
    fn new(end: T) -> Self {
        Self { end: Mutex::new(Some(end)), process: std::process::id() }
    }

    /// Without the GIL: another thread that has it locked may wait for the GIL.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        use_it: impl FnOnce(&mut T) -> Result<R, Problem> + Send,
    ) -> PyResult<R> {
        if std::process::id() != self.process {
            return Err(PyRuntimeError::new_err(
                "a stream belongs to the process that created it: create another after fork()",
            ));
        }
        let used = py.detach(|| self.locked().as_mut().map_or(Err(Problem::Closed), use_it));
        used.map_err(|problem| problem.raise(py))
    }

    /// Closes it; nothing if it is closed, or is the parent's.
    fn close<R: Send + Default>(
        &self,
        py: Python<'_>,
        finish: impl FnOnce(T) -> Result<R, Problem> + Send,
    ) -> PyResult<R> {
        if std::process::id() != self.process {
            return Ok(R::default());
        }
        let finished = py.detach(|| {
            let end = self.locked().take();
            end.map_or_else(|| Ok(R::default()), finish)
        });
        finished.map_err(|problem| problem.raise(py))
    }

    fn locked(&self) -> MutexGuard<'_, Option<T>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device and the channels that take part.
fn device(name: &str, settings: &mut Settings) -> Result<(Device, Vec<Channel>), PyErr> {
    let buffer = settings.buffer;
    let mut found = Device::matching(name);
    if found.len() > 1 {
        let ids: Vec<_> = found.iter().map(Device::id).collect();
        return Err(PyValueError::new_err(format!(
            "{} devices are called {name:?}: choose one of {}",
            ids.len(),
            ids.join(", ")
        )));
    }
    let device = found.pop().ok_or_else(|| {
        PyOSError::new_err((libc::ENODEV, "there is no IIO device of this name", name.to_owned()))
    })?;
    let raised = |error: Error| Python::attach(|py| raise_stream(py, &error));
    let chosen = chosen(device.channels(buffer).map_err(raised)?, settings.channels.take())?;
    if let Some(rate) = settings.rate {
        device.set_rate(buffer, rate).map_err(raised)?;
    }
    settings.frame = frame_bytes(&chosen);
    settings.align = device.block_align(buffer, settings.frame);
    Ok((device, chosen))
}

/// The channels that were named; without names all but timestamps.
fn chosen(all: Vec<Channel>, names: Option<Vec<String>>) -> PyResult<Vec<Channel>> {
    let Some(names) = names else {
        return Ok(all
            .into_iter()
            .filter(|channel| !channel.name.ends_with("timestamp"))
            .collect());
    };
    let known: Vec<&str> = all.iter().map(|channel| &*channel.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(PyValueError::new_err(format!(
            "there is no channel {unknown:?}: the channels are {}",
            known.join(", ")
        )));
    }
    let chosen: Vec<Channel> =
        all.into_iter().filter(|channel| names.contains(&channel.name)).collect();
    let order: Vec<&str> = chosen.iter().map(|channel| &*channel.name).collect();
    if order != names {
        return Err(PyValueError::new_err(format!(
            "name the channels as they are in a frame, each once: {}",
            order.join(", ")
        )));
    }
    Ok(chosen)
}
