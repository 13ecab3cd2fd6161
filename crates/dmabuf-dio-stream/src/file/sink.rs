// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes blocks to a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::Direction;
use dmabuf_dio::lend::File;
use rustix::fs::FallocateFlags;

use super::blocks::{Blocks, Method};
use crate::ends::Sink;
use crate::error::{Result, failed, from_os};
use crate::ring::{BlockRing, Filled};
use crate::wait::Wait;

/// Minimum space to allocate at a time ahead of the written data.
const ROOM: u64 = 64 << 20;

/// Writes blocks to a file, one after the other.
///
/// At any time, even if the process is killed, the file holds the first part of the captured data
/// and nothing else: a block is written only after the one before it, and the file grows with it.
/// Disk space is allocated ahead, to keep the file in few extents.
#[derive(Debug)]
pub struct FileSink(Blocks);

impl FileSink {
    /// Creates the file, truncating an existing one. Block devices are written from their start.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`].
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        Ok(Self(Blocks::new(File::create(path)?, Direction::Save, 0)))
    }

    /// Ends the transfers. Returns what remains to be done, which may take long: the same as
    /// [`finish`](Sink::finish).
    pub(super) fn end(mut self) -> impl FnOnce() -> Result<()> + Send + 'static {
        self.0.stop();
        let (file, end) = (Arc::clone(&self.0.file), self.0.taken);
        move || complete(&file, end)
    }

    /// Allocates space for all expected data.
    fn reserve(&self, bytes: u64) -> Result<()> {
        let file = &self.0.file;
        let end = self.0.start.saturating_add(bytes);
        let reserved = file.check_size(end).and_then(|()| {
            let keep = FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file.fd(), keep, 0, end).map_err(from_os)
        });
        match reserved {
            Err(errno) if matches!(errno.raw(), libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                Err(failed(&self.0.name(), format!("make room for {bytes} bytes"), errno))
            }
            // Not every file system supports this.
            _ => Ok(()),
        }
    }
}

impl Sink for FileSink {
    fn how(&self) -> String {
        self.0.how()
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, expected: Option<u64>) -> Result<()> {
        let expected = expected.unwrap_or(0);
        self.0.attach(ring)?;
        if self.0.file.is_device() {
            return Ok(());
        }
        if expected > 0 {
            self.reserve(expected)?;
        } else if let Some(Method::Lent(lent)) = &mut self.0.how {
            lent.make_room(self.0.start, ROOM.max(4 * ring.size()));
        }
        Ok(())
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        Ok(self.0.attach_more(block))
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        self.0.queue(filled).map(|()| false)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.0.take()
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }

    fn ready(&self) -> Option<Wait<'_>> {
        self.0.ready()
    }

    fn queued(&self) -> usize {
        self.0.queue.len()
    }

    fn finish(&mut self) -> Result<()> {
        self.0.stop();
        complete(&self.0.file, self.0.taken)
    }
}

/// Cuts a file to its length and makes it durable.
fn complete(file: &File, end: u64) -> Result<()> {
    let name = file.path().display().to_string();
    let call = |what, errno| failed(&name, what, from_os(errno));
    if !file.is_device() {
        // Removes a partly written failed block, and the space allocated beyond the end.
        rustix::fs::ftruncate(file.fd(), end)
            .map_err(|errno| call("truncate it to its length", errno))?;
    }
    rustix::fs::fsync(file.fd()).map_err(|errno| call("make it durable", errno))?;
    if !file.is_device() {
        sync_folder(file.path());
    }
    Ok(())
}

/// Makes the name of a new file durable, where possible.
fn sync_folder(path: &Path) {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if let Ok(folder) = std::fs::File::open(folder) {
        let _ = folder.sync_all();
    }
}
