// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that blocks are written to and read from.
//!
//! With the module's slots it is one `io_uring` to whose requests the blocks' pages are lent once.
//! Without them a thread makes a transfer of each block, by the best way that works for those.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio_sys::dmabuf::Access;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno as Os;

use super::calls::Calls;
use super::lent::{Lent, Part};
use super::ring::{Claim, Ring};
use super::slots::Slots;
use super::wait::Wait;
use super::worker::Worker;
use super::{Filled, Sink, Source, attached, failed};
use crate::error::{Attempt, Direction, Error, Result};
use crate::file::{File, Spec, check_size};

/// Room that is made at a time ahead of what is written, at least.
const ROOM: u64 = 64 << 20;

/// Blocks on their way to a file or from it.
#[derive(Debug)]
struct Blocks {
    file: Arc<File>,
    direction: Direction,
    ring: Option<Arc<Ring>>,
    way: Option<Way>,
    queue: VecDeque<Part>,
    /// Bytes that were queued.
    queued: u64,
    /// Bytes that were taken.
    taken: u64,
}

#[derive(Debug)]
enum Way {
    Lent(Box<Lent>),
    Calls(Worker, Arc<Calls>),
}

impl Blocks {
    fn new(file: File, direction: Direction) -> Self {
        let (file, queue) = (Arc::new(file), VecDeque::new());
        Self { file, direction, ring: None, way: None, queue, queued: 0, taken: 0 }
    }

    fn name(&self) -> String {
        self.file.path.display().to_string()
    }

    /// What the CPU would do to a block, were it the one that moves it. What was in one that is
    /// filled is of no use: it need not be brought back.
    fn access(&self) -> Access {
        match self.direction {
            Direction::Load => Access::Write,
            Direction::Save => Access::Read,
        }
    }

    fn how(&self) -> String {
        match &self.way {
            None => "a file".into(),
            Some(Way::Lent(lent)) => lent.how(),
            Some(Way::Calls(_, calls)) => calls.how(),
        }
    }

    fn attach(&mut self, ring: &Arc<Ring>) -> Result<()> {
        self.queue.clear();
        self.way = Some(match Slots::new(ring, self.direction, &self.file) {
            Ok(slots) => Way::Lent(Box::new(Lent::new(slots, &self.file, self.direction))),
            Err(Attempt::Failed(error)) => return Err(error),
            Err(Attempt::Refused(refusal)) => {
                let calls = Arc::new(Calls::new(&self.file, ring, self.direction, refusal));
                let by_thread = Arc::clone(&calls);
                let mut offset = 0;
                let work = move |claim: Claim| {
                    by_thread.transfer(claim, offset)?;
                    offset += claim.bytes();
                    Ok(())
                };
                let worker = Worker::start(work)
                    .map_err(|errno| failed(&self.name(), "start a thread", errno))?;
                Way::Calls(worker, calls)
            }
        });
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    fn queue(&mut self, filled: Filled) -> Result<()> {
        let access = self.access();
        let ring = attached(self.ring.as_ref(), &self.name())?;
        let claim = ring.claim(filled)?;
        let part = Part { claim, offset: self.queued, done: 0 };
        match &mut self.way {
            None => {}
            Some(Way::Calls(worker, _)) => worker.queue(claim),
            Some(Way::Lent(lent)) => {
                ring.block(claim.block()).begin(access)?;
                if self.direction == Direction::Load {
                    lent.read(&part)?;
                }
            }
        }
        self.queued += filled.bytes;
        self.queue.push_back(part);
        self.write()
    }

    /// Writes what is queued, if nothing is on its way.
    fn write(&mut self) -> Result<()> {
        match (&mut self.way, self.direction) {
            (Some(Way::Lent(lent)), Direction::Save) => lent.write(&mut self.queue.iter_mut()),
            _ => Ok(()),
        }
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        let access = self.access();
        match &mut self.way {
            None => return Ok(None),
            Some(Way::Calls(worker, _)) => match worker.take() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) => {
                    // Of those behind it none is written or read any more.
                    self.queue.clear();
                    return Err(error);
                }
            },
            Some(Way::Lent(lent)) => {
                while let Some(completion) = lent.slots.complete() {
                    let offset = completion.user_data;
                    let part = self.queue.iter_mut().find(|part| part.offset == offset);
                    match self.direction {
                        Direction::Save => {
                            lent.completed(completion, part, ("write", Os::NOSPC))?;
                        }
                        Direction::Load => {
                            let Some(part) = part else { continue };
                            lent.completed(completion, Some(&mut *part), ("read all", Os::NODATA))?;
                            if !part.is_done() {
                                lent.read(part)?;
                            }
                        }
                    }
                }
                self.write()?;
                if !self.queue.front().is_some_and(Part::is_done) {
                    return Ok(None);
                }
            }
        }
        let Some(Part { claim, .. }) = self.queue.pop_front() else { return Ok(None) };
        let filled = claim.filled();
        if let Some(Way::Lent(lent)) = &self.way {
            lent.slots.blocks.block(filled.block).end(access)?;
        }
        self.taken += filled.bytes;
        Ok(Some(filled))
    }

    fn ready(&self) -> Option<Wait<'_>> {
        match self.way.as_ref()? {
            Way::Lent(lent) => lent.ready(),
            Way::Calls(worker, _) => worker.ready(),
        }
    }

    /// Waits for what is on its way and forgets what is queued.
    fn stop(&mut self) {
        match &mut self.way {
            None => {}
            Some(Way::Lent(lent)) => lent.settle(),
            Some(Way::Calls(worker, _)) => worker.stop(),
        }
        self.queue.clear();
    }
}

/// Writes blocks one behind the other.
///
/// At every moment, even if the process is killed, the file has the first part of what was
/// captured and nothing else: a block is begun when the one before is written, and the file grows
/// with that. Room on the disk is made ahead of it, so that the file lies in few pieces.
#[derive(Debug)]
pub struct FileSink(Blocks);

impl FileSink {
    /// Creates the file; one that is there is emptied. Block devices are written from their start.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; [`Error::NotAFile`].
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let direction = Direction::Save;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        // A FIFO would wait for its other end.
        let fd = rustix::fs::open(&path, flags | OFlags::NONBLOCK, Mode::from(0o666));
        let fd =
            fd.map_err(|errno| Error::Open { path: path.clone(), direction, errno: errno.into() })?;
        Ok(Self(Blocks::new(File::from_owned(path, fd, direction, true)?, direction)))
    }

    /// Makes room for all that is known to come.
    fn reserve(&self, bytes: u64) -> Result<()> {
        let reserved = check_size(bytes).and_then(|()| {
            rustix::fs::fallocate(self.0.file.fd(), FallocateFlags::KEEP_SIZE, 0, bytes)
        });
        match reserved {
            Err(errno @ (Os::NOSPC | Os::DQUOT | Os::FBIG)) => {
                Err(failed(&self.0.name(), format!("make room for {bytes} bytes"), errno))
            }
            // Not every file system can.
            _ => Ok(()),
        }
    }
}

impl Sink for FileSink {
    fn how(&self) -> String {
        self.0.how()
    }

    fn attach(&mut self, ring: &Arc<Ring>, expected: Option<u64>) -> Result<()> {
        let expected = expected.unwrap_or(0);
        self.0.attach(ring)?;
        if self.0.file.is_device {
            return Ok(());
        }
        if expected > 0 {
            self.reserve(expected)?;
        }
        if let Some(Way::Lent(lent)) = &mut self.0.way
            && expected == 0
        {
            lent.make_room(0, ROOM.max(4 * ring.size()));
        }
        Ok(())
    }

    fn queue(&mut self, filled: Filled) -> Result<()> {
        self.0.queue(filled)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.0.take()
    }

    fn ready(&self) -> Option<Wait<'_>> {
        self.0.ready()
    }

    fn queued(&self) -> usize {
        self.0.queue.len()
    }

    fn finish(&mut self) -> Result<()> {
        self.0.stop();
        let file = &self.0.file;
        let call = |what, errno| failed(&self.0.name(), what, errno);
        if !file.is_device {
            // Of a block that failed there may be a part, and behind the end there is room.
            rustix::fs::ftruncate(file.fd(), self.0.taken)
                .map_err(|errno| call("cut it to its length", errno))?;
        }
        rustix::fs::fsync(file.fd()).map_err(|errno| call("make it durable", errno))?;
        if !file.is_device {
            sync_folder(&file.path);
        }
        Ok(())
    }
}

/// Makes the name of a new file durable, where that can be done.
fn sync_folder(path: &Path) {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if let Ok(folder) = std::fs::File::open(folder) {
        let _ = folder.sync_all();
    }
}

/// Reads blocks one behind the other, as many at once as there are.
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
    /// [`Error::Open`]; [`Error::NotAFile`]; [`Error::CutFrame`].
    pub fn open(path: impl Into<PathBuf>, frame: u64) -> Result<Self> {
        let file = File::open(&Spec::Path(path.into()), Direction::Load, true)?;
        let (len, frame) = (file.end()?, frame.max(1));
        if !len.is_multiple_of(frame) {
            return Err(Error::CutFrame { path: file.path, length: len, frame });
        }
        Ok(Self { blocks: Blocks::new(file, Direction::Load), frame, len })
    }
}

impl Source for FileSource {
    fn frame(&self) -> u64 {
        self.frame
    }

    fn how(&self) -> String {
        self.blocks.how()
    }

    fn attach(&mut self, ring: &Arc<Ring>) -> Result<()> {
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
