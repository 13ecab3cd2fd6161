// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of blocks: from a device or a file, and to one.
//!
//! A block is a [`Buffer`](crate::buffer::Buffer) of the stream's ring. It returns to the stream
//! once neither the object nor a view of it exists, so that its content does not change while it is
//! in use.

pub(crate) mod reader;
pub(crate) mod writer;

use std::sync::Arc;
use std::time::Duration;

use dmabuf_dio::{Buffer, DmaBuf};
use dmabuf_dio_stream::{BlockRing, Channel, Device, Error, Wait};
use pyo3::exceptions::{PyBufferError, PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::content::Content;
use crate::error::raise_stream;

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
    fn new(count: usize, size: u64, kind: &str) -> Result<Self, Problem> {
        let blocks = (0..count).map(|_| match kind {
            "memfd" => Buffer::memfd(size),
            _ => DmaBuf::alloc(size).map(Buffer::from),
        });
        let blocks = blocks.collect::<Result<Vec<_>, _>>().map_err(Error::from)?;
        let lent = (0..count).map(|_| None).collect();
        Ok(Self { ring: Arc::new(BlockRing::of(blocks, size)?), lent })
    }

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
            // Unlike the count of references, this is ordered after what other threads did with the block.
            if lent.as_mut().is_some_and(|content| Arc::get_mut(content).is_some()) {
                *lent = None;
                back.push(block);
            }
        }
        back
    }

    /// What Python holds, as text.
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
            let chosen: Vec<Channel> =
                all.into_iter().filter(|channel| names.contains(&channel.name)).collect();
            let order: Vec<&str> = chosen.iter().map(|channel| &*channel.name).collect();
            if order != names {
                return Err(PyValueError::new_err(format!(
                    "name the channels as they are in a frame, each once: {}",
                    order.join(", ")
                )));
            }
            chosen
        }
    };
    if let Some(rate) = rate {
        device.set_rate(buffer, rate).map_err(raised)?;
    }
    Ok((device, chosen))
}

/// The size of a block in whole frames; by default a multiple of `align`, which is that of frames.
fn block_size(wanted: Option<u64>, frame: u64, align: u64) -> PyResult<u64> {
    let (frame, align) = (frame.max(1), align.max(1));
    match wanted {
        None => Ok((BLOCK / align).max(1) * align),
        Some(size) if size % frame == 0 => Ok(size),
        Some(size) => Err(PyValueError::new_err(format!(
            "block_size {size} is not a multiple of the frame, {frame} bytes"
        ))),
    }
}
