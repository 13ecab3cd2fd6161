// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks on their way to or from a file.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::lend::{Access, File};
use dmabuf_dio::{Backend, Direction, Errno, OneByOne, Refusal};
use rustix::fs::FallocateFlags;

use super::lent::{Lent, Queued, lend};
use super::worker::Worker;
use crate::ends::{Facts, Pending, Sink, Source};
use crate::error::{Error, Result, failed, from_os};
use crate::ring::{BlockRing, Claim, Filled, attached};

/// Minimum space to allocate at a time ahead of the written data.
const ROOM: u64 = 64 << 20;

/// Blocks ahead for which the limit on a file's length is checked.
const AHEAD: u64 = 64;

/// Blocks in transfer to or from a file.
#[derive(Debug)]
struct Blocks {
    file: Arc<File>,
    direction: Direction,
    ring: Option<Arc<BlockRing>>,
    how: Option<Method>,
    queue: VecDeque<Queued>,
    /// Offset of the data in the file.
    start: u64,
    /// End of the queued data in the file.
    queued: u64,
    /// End of the taken data in the file.
    taken: u64,
    /// The file may get as long as this, in bytes.
    allowed: u64,
}

#[derive(Debug)]
enum Method {
    Lent(Box<Lent>),
    /// With the reason why nothing could be lent.
    OneByOne(Worker, Arc<OneByOne>, Refusal),
}

impl Blocks {
    fn new(file: File, direction: Direction, start: u64) -> Self {
        let (file, queue) = (Arc::new(file), VecDeque::new());
        let (ring, how, queued, taken) = (None, None, start, start);
        Self { file, direction, ring, how, queue, start, queued, taken, allowed: 0 }
    }

    fn name(&self) -> String {
        self.file.path().display().to_string()
    }

    /// The CPU access that matches the transfer. The old content of a block being filled is not
    /// needed, so it need not be brought back.
    fn access(&self) -> Access {
        match self.direction {
            Direction::Load => Access::Write,
            Direction::Save => Access::Read,
        }
    }

    fn how(&self) -> String {
        match &self.how {
            None => "a file".into(),
            Some(Method::Lent(lent)) => lent.how(),
            Some(Method::OneByOne(_, one_by_one, why)) => how(one_by_one.backend(), why),
        }
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        self.queue.clear();
        self.how = Some(match lend(ring, self.direction, self.file.fd()) {
            Ok(lent) => {
                let lent = Lent::new(lent, ring, &self.file, self.direction, self.start)?;
                Method::Lent(Box::new(lent))
            }
            Err(error) => {
                let one_by_one = Arc::new(OneByOne::new(Arc::clone(&self.file), self.direction));
                let (by_thread, blocks) = (Arc::clone(&one_by_one), Arc::clone(ring));
                let mut offset = self.start;
                let work = move |claim: Claim| {
                    by_thread.transfer(blocks.block(claim.block()), claim.bytes(), offset)?;
                    offset += claim.bytes();
                    Ok(())
                };
                let worker = Worker::start(work)
                    .map_err(|errno| failed(&self.name(), "start a thread", errno))?;
                Method::OneByOne(worker, one_by_one, error.into())
            }
        });
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    /// Lends a block that was added to the ring since.
    fn attach_more(&mut self, block: usize) -> bool {
        let Some(ring) = &self.ring else { return false };
        match &mut self.how {
            None => false,
            Some(Method::Lent(lent)) => lent.ring.lend(ring.block(block), self.direction).is_ok(),
            Some(Method::OneByOne(..)) => true,
        }
    }

    fn queue(&mut self, filled: Filled) -> Result<()> {
        let access = self.access();
        let ring = attached(self.ring.as_ref(), &self.name())?;
        let claim = ring.claim(filled)?;
        let end = self.queued + filled.bytes;
        if self.direction == Direction::Save && end > self.allowed {
            let ahead = end + AHEAD * filled.bytes;
            self.allowed = if self.file.check_size(ahead).is_ok() { ahead } else { end };
            let fits = self.file.check_size(self.allowed);
            fits.map_err(|errno| failed(&self.name(), "write", errno))?;
        }
        let part = Queued { claim, offset: self.queued, done: 0 };
        match &mut self.how {
            None => {}
            Some(Method::OneByOne(worker, ..)) => worker.queue(claim),
            Some(Method::Lent(lent)) => {
                ring.block(claim.block()).begin_cpu_access(access)?;
                if self.direction == Direction::Load {
                    lent.read(&part)?;
                }
            }
        }
        self.queued += filled.bytes;
        self.queue.push_back(part);
        self.write()
    }

    /// Writes the queued blocks if no write is in flight.
    fn write(&mut self) -> Result<()> {
        match (&mut self.how, self.direction) {
            (Some(Method::Lent(lent)), Direction::Save) => lent.write(&mut self.queue),
            _ => Ok(()),
        }
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        let access = self.access();
        match &mut self.how {
            None => return Ok(None),
            Some(Method::OneByOne(worker, ..)) => match worker.take() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) => {
                    // The blocks behind the failed one are neither written nor read.
                    self.queue.clear();
                    return Err(error);
                }
            },
            Some(Method::Lent(lent)) => {
                lent.collect(&mut self.queue, self.direction)?;
                self.write()?;
                if !self.queue.front().is_some_and(Queued::is_done) {
                    return Ok(None);
                }
            }
        }
        let Some(Queued { claim, .. }) = self.queue.pop_front() else { return Ok(None) };
        let filled = claim.filled();
        if let Some(Method::Lent(lent)) = &self.how {
            lent.blocks.block(filled.block).end_cpu_access(access)?;
        }
        self.taken += filled.bytes;
        Ok(Some(filled))
    }

    /// Writes the blocks that were held back.
    fn flush(&mut self) -> Result<()> {
        if let Some(Method::Lent(lent)) = &mut self.how {
            lent.hurries = true;
        }
        self.write()
    }

    fn pending(&self) -> Pending<'_> {
        let ready = self.how.as_ref().and_then(|how| match how {
            Method::Lent(lent) => lent.ready(),
            Method::OneByOne(worker, ..) => worker.ready(),
        });
        Pending { blocks: self.queue.len(), ready }
    }

    /// Waits for the requests in flight and drops the queued blocks.
    fn stop(&mut self) {
        match &mut self.how {
            None => {}
            Some(Method::Lent(lent)) => lent.settle(),
            Some(Method::OneByOne(worker, ..)) => worker.stop(),
        }
        self.queue.clear();
    }
}

/// How blocks are transferred one by one.
fn how(backend: Option<Backend>, why: &Refusal) -> String {
    match backend {
        Some(Backend::Buffered) => format!("copied by the CPU: {}", why.reason),
        Some(backend) => format!("{backend}, a block at a time: {}", why.reason),
        None => "a file".into(),
    }
}

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

    /// Ends the transfers. Returns the remaining work of [`finish`](Sink::finish), which may take
    /// long.
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
    fn facts(&self) -> Facts {
        Facts::new(self.0.how())
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

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.0.take()
    }

    fn pending(&self) -> Pending<'_> {
        self.0.pending()
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
        let len = file.end()?;
        Self::new(file, frame, 0, len)
    }

    /// Opens the `len` bytes from byte `start` of a file, with frames of `frame` bytes. They are read
    /// with `O_DIRECT` only if `start` is a multiple of what the file system needs for that.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), and [`Error::Stream`] with `ENODATA` if the file is shorter.
    pub fn open_part(path: impl Into<PathBuf>, frame: u64, start: u64, len: u64) -> Result<Self> {
        let file = File::open_path(path, Direction::Load)?;
        if start.checked_add(len).is_none_or(|end| file.end().is_ok_and(|has| end > has)) {
            let name = file.path().display().to_string();
            return Err(failed(&name, format!("read {len} bytes at {start}"), Errno::NODATA));
        }
        Self::new(file, frame, start, len)
    }

    fn new(file: File, frame: u64, start: u64, len: u64) -> Result<Self> {
        let frame = frame.max(1);
        if len % frame != 0 {
            return Err(Error::CutFrame { path: file.path().to_owned(), length: len, frame });
        }
        Ok(Self { blocks: Blocks::new(file, Direction::Load, start), frame, len })
    }
}

impl Source for FileSource {
    fn facts(&self) -> Facts {
        Facts { frame: self.frame, len: Some(self.len), ..Facts::new(self.blocks.how()) }
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        self.blocks.attach(ring)
    }

    fn queue(&mut self, blocks: &[Filled]) -> Result<(usize, bool)> {
        blocks.iter().try_for_each(|&filled| self.blocks.queue(filled))?;
        Ok((blocks.len(), false))
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.blocks.take()
    }

    fn pending(&self) -> Pending<'_> {
        self.blocks.pending()
    }

    fn stop(&mut self) -> Result<()> {
        self.blocks.stop();
        Ok(())
    }
}
