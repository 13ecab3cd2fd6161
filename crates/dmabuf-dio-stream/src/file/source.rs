// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads blocks from a file.

use std::path::PathBuf;
use std::sync::Arc;

use dmabuf_dio::lend::File;
use dmabuf_dio::{Direction, Errno};

use super::blocks::Blocks;
use crate::ends::Source;
use crate::error::{Error, Result, failed};
use crate::ring::{BlockRing, Filled};
use crate::wait::Wait;

/// Reads blocks from a file in order, as many at once as are queued.
#[derive(Debug)]
pub struct FileSource {
    blocks: Blocks,
    frame: u64,
    len: u64,
}

impl FileSource {
    /// Opens a file with frames of `frame` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`]; [`Error::CutFrame`].
    pub fn open(path: impl Into<PathBuf>, frame: u64) -> Result<Self> {
        let file = File::open_path(path, Direction::Load)?;
        let (len, frame) = (file.end()?, frame.max(1));
        if len % frame != 0 {
            return Err(Error::CutFrame { path: file.path().to_owned(), length: len, frame });
        }
        Ok(Self { blocks: Blocks::new(file, Direction::Load, 0), frame, len })
    }

    /// Opens the `len` bytes from byte `start` of a file, with frames of `frame` bytes. They are read
    /// with `O_DIRECT` only if `start` is a multiple of what the file system needs for that.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), and [`Error::Stream`] with `ENODATA` if the file is shorter.
    pub fn open_part(path: impl Into<PathBuf>, frame: u64, start: u64, len: u64) -> Result<Self> {
        let file = File::open_path(path, Direction::Load)?;
        let frame = frame.max(1);
        if start.checked_add(len).is_none_or(|end| file.end().is_ok_and(|has| end > has)) {
            let name = file.path().display().to_string();
            return Err(failed(&name, format!("read {len} bytes at {start}"), Errno::NODATA));
        }
        if len % frame != 0 {
            return Err(Error::CutFrame { path: file.path().to_owned(), length: len, frame });
        }
        Ok(Self { blocks: Blocks::new(file, Direction::Load, start), frame, len })
    }
}

impl Source for FileSource {
    fn frame(&self) -> u64 {
        self.frame
    }

    fn how(&self) -> String {
        self.blocks.how()
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        self.blocks.attach(ring)
    }

    fn start(&mut self) -> Result<()> {
        Ok(())
    }

    fn queue(&mut self, block: usize, bytes: u64) -> Result<bool> {
        self.blocks.queue(Filled { block, bytes })?;
        Ok(false)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.blocks.take()
    }

    fn ready(&self) -> Option<Wait<'_>> {
        self.blocks.ready()
    }

    fn queued(&self) -> usize {
        self.blocks.queue.len()
    }

    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn stop(&mut self) -> Result<()> {
        self.blocks.stop();
        Ok(())
    }
}
