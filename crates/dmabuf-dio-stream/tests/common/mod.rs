// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of streams without a device, and checks of their samples.

#![allow(dead_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dmabuf_dio::{Buffer, Errno};
use dmabuf_dio_stream::{BlockRing, Error, Facts, Filled, Pending, Result, Sink, Source, Summary};

/// Bytes of a frame, which is its number.
pub(crate) const FRAME: u64 = 8;

/// A ring of memfds.
pub(crate) fn ring(count: usize, size: u64) -> BlockRing {
    let blocks = (0..count).map(|_| Buffer::memfd(size).expect("a memfd")).collect();
    BlockRing::of(blocks, size).expect("a ring")
}

/// Writes to the start of a block.
pub(crate) fn put(block: &Buffer, content: &[u8]) {
    let mut block = block.try_clone().expect("a descriptor");
    block.map_mut().expect("a view").write_at(0, content).expect("it has room");
}

/// A source that fills its blocks at once. `fill` writes the data, and returns its length. `None`:
/// there is no more.
pub(crate) struct Made<F> {
    pub(crate) facts: Facts,
    ring: Option<Arc<BlockRing>>,
    queued: VecDeque<Filled>,
    has_ended: bool,
    fill: F,
}

impl<F: FnMut(&Buffer, Filled) -> Option<u64>> Made<F> {
    pub(crate) fn new(frame: u64, fill: F) -> Self {
        let facts = Facts { frame, ..Facts::new("made") };
        Self { facts, ring: None, queued: VecDeque::new(), has_ended: false, fill }
    }
}

impl<F: FnMut(&Buffer, Filled) -> Option<u64>> Source for Made<F> {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    fn queue(&mut self, blocks: &[Filled]) -> Result<(usize, bool)> {
        self.queued.extend(blocks);
        Ok((blocks.len(), false))
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        let Some(&first) = self.queued.front() else { return Ok(None) };
        let ring = self.ring.as_ref().expect("attached");
        let filled = (self.fill)(ring.block(first.block), first);
        self.has_ended = filled.is_none();
        Ok(filled.map(|bytes| {
            self.queued.pop_front();
            Filled { bytes, ..first }
        }))
    }

    fn pending(&self) -> Pending<'_> {
        Pending { blocks: self.queued.len(), ready: None }
    }

    fn stop(&mut self) -> Result<()> {
        self.queued.clear();
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// Reads the bytes of a block.
type Read = Box<dyn FnMut(&Buffer, Filled) -> Vec<u8>>;

/// Takes a block every few calls, and keeps its content.
pub(crate) struct Keeper {
    ring: Option<Arc<BlockRing>>,
    queued: VecDeque<Filled>,
    every: u32,
    calls: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) finished: bool,
    /// Takes no more blocks after this number.
    pub(crate) fails_after: Option<u32>,
    taken: u32,
    /// Holds this number of blocks back, until it is told that no more come.
    pub(crate) holds: usize,
    /// How long it takes for a block, and until when for the first one.
    per_block: Duration,
    busy_until: Instant,
    /// Called whenever a block comes.
    pub(crate) notice: Box<dyn FnMut()>,
    pub(crate) read: Read,
}

impl Keeper {
    pub(crate) fn new(every: u32) -> Self {
        Self {
            ring: None,
            queued: VecDeque::new(),
            every,
            calls: 0,
            bytes: Vec::new(),
            finished: false,
            fails_after: None,
            taken: 0,
            holds: 0,
            per_block: Duration::ZERO,
            busy_until: Instant::now(),
            notice: Box::new(|| ()),
            read: Box::new(|block, Filled { bytes, .. }| {
                let mut content = vec![0; bytes as usize];
                block.map().expect("a view").read_at(0, &mut content).expect("read");
                content
            }),
        }
    }

    /// One that takes its time for each block.
    pub(crate) fn slow(per_block: Duration) -> Self {
        Self { per_block, ..Self::new(1) }
    }

    /// Positions of missing frames: the bytes before them, and their number.
    pub(crate) fn missing(&self) -> Vec<(u64, u64)> {
        missing(&self.bytes)
    }
}

/// Positions of missing frames: the bytes before them, and their number.
pub(crate) fn missing(bytes: &[u8]) -> Vec<(u64, u64)> {
    let (mut next, mut gaps) = (0, Vec::new());
    for (number, frame) in bytes.chunks_exact(FRAME as usize).enumerate() {
        let found = u64::from_le_bytes(frame.try_into().expect("a frame"));
        assert!(found >= next, "frame {found} again, at {next}");
        if found != next {
            gaps.push((number as u64 * FRAME, found - next));
        }
        next = found + 1;
    }
    gaps
}

/// The number of frames. None is missing.
#[track_caller]
pub(crate) fn whole(bytes: &[u8]) -> u64 {
    assert_eq!(missing(bytes), []);
    bytes.len() as u64 / FRAME
}

/// Every gap that was found lies in one that was told, which counts as many frames. Frames after the
/// last block may have been lost without a gap in the data.
#[track_caller]
pub(crate) fn check_gaps(summary: &Summary, found: &[(u64, u64)]) {
    let mut left = found.iter().peekable();
    for gap in &summary.gaps {
        let mut frames = 0;
        while let Some((_, lost)) = left.next_if(|(at, _)| (gap.at..=gap.to).contains(at)) {
            frames += lost;
        }
        let told = gap.frames.expect("counted");
        let right = told == frames || gap.to >= summary.bytes && told > frames;
        assert!(right, "{gap:?}, found {frames}, of {:?}", summary.gaps);
    }
    assert_eq!(left.next(), None, "found and not told, of {:?}", summary.gaps);
}

impl Sink for Keeper {
    fn facts(&self) -> Facts {
        Facts::new("kept")
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, _: Option<u64>) -> Result<()> {
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        (self.notice)();
        if self.queued.is_empty() {
            self.busy_until = Instant::now() + self.per_block;
        }
        self.queued.push_back(filled);
        Ok(false)
    }

    fn flush(&mut self) -> Result<()> {
        self.holds = 0;
        Ok(())
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.calls += 1;
        let is_busy = self.calls % self.every != 0 || Instant::now() < self.busy_until;
        if is_busy || self.queued.len() < self.holds {
            return Ok(None);
        }
        if self.fails_after == Some(self.taken) && !self.queued.is_empty() {
            self.queued.clear();
            let (device, call) = ("the sink".into(), "write".into());
            return Err(Error::Stream { device, call, errno: Errno::from_raw(libc::ENOSPC) });
        }
        let Some(filled) = self.queued.pop_front() else { return Ok(None) };
        let block = self.ring.as_ref().expect("attached").block(filled.block);
        self.bytes.extend((self.read)(block, filled));
        self.taken += 1;
        self.busy_until = Instant::now() + self.per_block;
        Ok(Some(filled))
    }

    fn pending(&self) -> Pending<'_> {
        Pending { blocks: self.queued.len(), ready: None }
    }

    fn finish(&mut self) -> Result<()> {
        assert!(!std::mem::replace(&mut self.finished, true), "once");
        Ok(())
    }
}
