// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts a recording into files.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use dmabuf_dio::Errno;

use super::blocks::FileSink;
use crate::ends::{Facts, Pending, Sink};
use crate::error::{Result, failed};
use crate::ring::{BlockRing, Filled, attached};

type Open<'s> = dyn FnMut(u64, u64) -> Result<FileSink> + 's;

/// Writes blocks to a series of files of limited length. No sample is lost or duplicated between
/// them.
///
/// A block belongs to one file, so the source must end a block where a file ends: see
/// [`Stream::cut`](crate::Stream::cut). A file also ends after a block that is shorter than the
/// ring's blocks, because the position of the next one would not be aligned for `O_DIRECT`.
///
/// The next file is opened when its first block arrives. A separate thread truncates a finished
/// file to its length and makes it durable, so that the stream continues meanwhile.
pub struct RotatingSink<'s> {
    open: Box<Open<'s>>,
    limit: u64,
    ring: Option<Arc<BlockRing>>,
    /// Bytes that are still to come, if known.
    expected: Option<u64>,
    /// The last file is being written. The files before it wait for their last blocks.
    files: VecDeque<Part>,
    /// Files opened, and bytes queued to all of them.
    opened: u64,
    queued: u64,
    how: String,
    closing: Vec<JoinHandle<Result<()>>>,
}

struct Part {
    sink: FileSink,
    bytes: u64,
    ended: bool,
}

impl<'s> RotatingSink<'s> {
    /// Files of at most `limit` bytes. `open` opens each: it gets the file's number, from 0, and the
    /// number of bytes in the files before.
    pub fn new(limit: u64, open: impl FnMut(u64, u64) -> Result<FileSink> + 's) -> Self {
        Self {
            open: Box::new(open),
            limit,
            ring: None,
            expected: None,
            files: VecDeque::new(),
            opened: 0,
            queued: 0,
            how: "files".into(),
            closing: Vec::new(),
        }
    }

    fn open_next(&mut self) -> Result<()> {
        let ring = attached(self.ring.as_ref(), "the files")?;
        let mut sink = (self.open)(self.opened, self.queued)?;
        let left = self.expected.map(|bytes| bytes.saturating_sub(self.queued));
        sink.attach(ring, left.map(|left| left.min(self.limit)))?;
        // Blocks added to the ring since.
        for block in ring.blocks().len()..ring.len() {
            if !sink.attach_more(block)? {
                return Err(failed("the files", "use a block of the ring", Errno::NOMEM));
            }
        }
        self.how = sink.facts().how;
        self.opened += 1;
        self.files.push_back(Part { sink, bytes: 0, ended: false });
        Ok(())
    }

    /// Finishes the files that have all their blocks, except for the last one.
    fn close(&mut self) -> Result<()> {
        while self.files.len() > 1
            && self.files.front().is_some_and(|file| file.sink.pending().blocks == 0)
        {
            let Some(file) = self.files.pop_front() else { break };
            let named = std::thread::Builder::new().name("dmabuf-dio close".into());
            let thread = named.spawn(file.sink.end());
            let thread = thread
                .map_err(|error| failed("the files", "start a thread", Errno::from(&error)))?;
            self.closing.push(thread);
        }
        // Errors of files that are finished by now.
        let (done, busy) = self.closing.drain(..).partition(JoinHandle::is_finished);
        self.closing = busy;
        join(done)
    }
}

/// Waits for all threads, and returns their first error.
fn join(threads: Vec<JoinHandle<Result<()>>>) -> Result<()> {
    let gone = || Err(failed("the files", "finish one", Errno::CANCELED));
    let mut first = Ok(());
    for thread in threads {
        let result = thread.join().unwrap_or_else(|_| gone());
        first = first.and(result);
    }
    first
}

impl Sink for RotatingSink<'_> {
    fn facts(&self) -> Facts {
        Facts::new(match self.opened {
            0 | 1 => self.how.clone(),
            files => format!("{}, {files} files", self.how),
        })
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, expected: Option<u64>) -> Result<()> {
        self.ring = Some(Arc::clone(ring));
        self.expected = expected;
        self.open_next()
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        let mut all = true;
        for file in &mut self.files {
            all &= file.sink.attach_more(block)?;
        }
        Ok(all)
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        let ring = attached(self.ring.as_ref(), "the files")?;
        let size = ring.size();
        ring.claim(filled)?;
        let full =
            |file: &Part| file.ended || file.bytes > 0 && file.bytes + filled.bytes > self.limit;
        if self.files.back().is_none_or(full) {
            // No more blocks come for the files before.
            self.flush()?;
            self.open_next()?;
        }
        let Some(file) = self.files.back_mut() else { return Ok(false) };
        let was_dry = file.sink.queue(filled)?;
        file.bytes += filled.bytes;
        file.ended = filled.bytes < size || file.bytes >= self.limit;
        self.queued += filled.bytes;
        Ok(was_dry)
    }

    fn flush(&mut self) -> Result<()> {
        self.files.iter_mut().try_for_each(|file| file.sink.flush())
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.close()?;
        match self.files.front_mut() {
            None => Ok(None),
            Some(file) => file.sink.take(),
        }
    }

    fn pending(&self) -> Pending<'_> {
        let files = self.files.iter().map(|file| file.sink.pending());
        files.fold(Pending::default(), |all, file| Pending {
            blocks: all.blocks + file.blocks,
            ready: all.ready.or(file.ready),
        })
    }

    fn finish(&mut self) -> Result<()> {
        let mut result = Ok(());
        for mut file in self.files.drain(..) {
            let finished = file.sink.finish();
            result = result.and(finished);
        }
        result.and(join(std::mem::take(&mut self.closing)))
    }
}
