// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of registered memory, through which files go to a device.

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use dmabuf_dio::CancelToken;

use crate::block::Block;
use crate::device::Device;
use crate::error::{Error, OUT_OF_MEMORY, Result};
use crate::plan::{self, Place, Read};
use crate::stream::{ForeignStream, Stream};

/// Blocks of a ring. The disk fills two, the device empties others.
const BLOCKS: u64 = 8;
/// Threads that fill blocks: while one waits for its last bytes, pins a block or begins a copy, the disk reads for the other.
const THREADS: usize = 2;
/// A block that is at least as long consists of huge pages.
const HUGE: u64 = 2 << 20;
/// The least length of a block.
const LEAST: u64 = 64 << 10;
/// At most so much of a block is for the ends of a range that are not whole blocks of the disk.
const ENDS: u64 = 128 << 10;

/// Memory of the host that is registered with a device, and a stream that copies from it.
///
/// `Send`. A child of `fork(2)` must not use or drop it.
#[derive(Debug)]
pub struct StagingRing {
    device: Device,
    blocks: Mutex<Blocks>,
    /// The length of a block.
    len: u64,
    stream: Stream,
    /// The device does not tell any more what is over.
    is_lost: bool,
}

/// The blocks that there are, and those that may be made when they are needed.
#[derive(Debug)]
struct Blocks {
    /// The one that is emptied for the longest time comes first.
    idle: VecDeque<Block>,
    made: usize,
    most: usize,
}

/// What a load did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DeviceReport {
    /// Bytes that were read, including those between places.
    pub read: u64,
    /// Bytes that were copied to the device.
    pub copied: u64,
    /// Reads, one for each block that was filled.
    pub reads: u64,
    /// Seconds in which the disk was waited for, of two threads together.
    pub read_seconds: f64,
    /// Seconds in which the device was waited for, of two threads together: no block was free, or at the end.
    pub device_seconds: f64,
}

impl StagingRing {
    /// The length that suits most disks and devices: 256 MiB.
    pub const DEFAULT: u64 = 256 << 20;
    /// The length of the smallest ring.
    pub const LEAST: u64 = BLOCKS * LEAST;

    /// A ring of at most `bytes` of memory, which is pinned when it is needed and as long as the ring exists: less if the
    /// driver pins no more, as on WSL. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::SmallRing`], [`Error::Host`], [`Error::Driver`], as when nothing can be pinned.
    pub fn new(device: &Device, bytes: u64) -> Result<Self> {
        let each = bytes / BLOCKS;
        let mut len = if each >= HUGE { each / HUGE * HUGE } else { each / LEAST * LEAST };
        if len == 0 {
            return Err(Error::SmallRing { bytes, least: Self::LEAST });
        }
        let stream = Stream::new(device)?;
        loop {
            let block = |_| Block::new(device, len);
            match (0..THREADS).map(block).collect::<Result<VecDeque<_>>>() {
                Err(Error::Driver { status: OUT_OF_MEMORY, .. }) if len >= 2 * LEAST => {
                    len = len / 2 / LEAST * LEAST;
                }
                idle => {
                    let blocks = Blocks { idle: idle?, made: THREADS, most: BLOCKS as usize };
                    let (device, blocks) = (device.clone(), Mutex::new(blocks));
                    break Ok(Self { device, blocks, len, stream, is_lost: false });
                }
            }
        }
    }

    /// Reads ranges of files, and copies them to their places in the device's memory. Blocks until all are there.
    ///
    /// Ranges that follow each other in a file are read together, with at most 256 KiB between them; their order is
    /// that of the reads. `after`: the copies begin once what is in this stream now is over, such as work with what
    /// was in the memory before.
    ///
    /// # Errors
    ///
    /// [`Error::Host`], [`Error::Driver`]. The places are undefined then. No copy is in flight any more, unless the
    /// device is lost: then every later load fails, and the memory of the ring is never freed.
    pub fn load(
        &mut self,
        places: &[Place<'_>],
        after: Option<ForeignStream>,
        cancel: &CancelToken,
    ) -> Result<DeviceReport> {
        if self.is_lost {
            self.stream.wait()?;
        }
        let begun = after.map_or(Ok(()), |other| self.stream.begin_after(other));
        // Copies are in flight also if a content panics.
        let run = AssertUnwindSafe(|| begun.and_then(|()| self.run(places, cancel)));
        let run = catch_unwind(run);
        let began = Instant::now();
        let over = self.stream.wait();
        let waited = began.elapsed().as_secs_f64();
        self.is_lost = over.is_err();
        let mut report = run.unwrap_or_else(|panic| resume_unwind(panic))?;
        over?;
        report.device_seconds += waited;
        Ok(report)
    }

    fn run(&self, places: &[Place<'_>], cancel: &CancelToken) -> Result<DeviceReport> {
        let reads = plan::reads(places, self.len - ENDS.min(self.len / 4));
        let threads = THREADS.min(reads.len());
        let reads = Mutex::new(reads.iter());
        let work = || {
            let mut report = DeviceReport::default();
            loop {
                let Some(read) = lock(&reads).next() else { return Ok(report) };
                let pass = AssertUnwindSafe(|| self.pass(read, cancel, &mut report));
                let passed = catch_unwind(pass);
                if !matches!(passed, Ok(Ok(()))) {
                    // The other thread has nothing left to do.
                    lock(&reads).by_ref().for_each(drop);
                }
                passed.unwrap_or_else(|panic| resume_unwind(panic))?;
            }
        };
        thread::scope(|scope| {
            let start =
                |_| thread::Builder::new().name("dmabuf-dio".into()).spawn_scoped(scope, work);
            // Without another one, this one does it all.
            let others: Vec<_> = (1..threads).filter_map(|thread| start(thread).ok()).collect();
            let mut all = work();
            for other in others {
                let other = other.join().unwrap_or_else(|panic| resume_unwind(panic));
                all = all.and_then(|mut all| {
                    all += other?;
                    Ok(all)
                });
            }
            all
        })
    }

    /// Reads into a block, and begins to copy from it.
    fn pass(&self, read: &Read<'_>, cancel: &CancelToken, report: &mut DeviceReport) -> Result<()> {
        let mut taken = Taken { blocks: &self.blocks, block: Some(self.idle()?) };
        let Some(block) = &mut taken.block else { unreachable!("it is there until it is dropped") };
        let began = Instant::now();
        block.wait()?;
        let waited = Instant::now();
        block.fill(read, cancel)?;
        report.device_seconds += (waited - began).as_secs_f64();
        report.read_seconds += waited.elapsed().as_secs_f64();
        report.copied += block.empty(read, &self.stream)?;
        report.read += read.range.end - read.range.start;
        report.reads += 1;
        Ok(())
    }

    /// A block, which may still be copied from. There is one for each thread.
    fn idle(&self) -> Result<Block> {
        let mut blocks = lock(&self.blocks);
        if blocks.made < blocks.most {
            blocks.made += 1;
            drop(blocks);
            let made = Block::new(&self.device, self.len);
            blocks = lock(&self.blocks);
            match made {
                Err(error) => {
                    blocks.made -= 1;
                    match error {
                        Error::Driver { status: OUT_OF_MEMORY, .. } => blocks.most = blocks.made,
                        error => return Err(error),
                    }
                }
                made => return made,
            }
        }
        Ok(blocks.idle.pop_front().unwrap_or_else(|| unreachable!("each thread has at most one")))
    }
}

/// A block that is used, and given back however that ends.
struct Taken<'r> {
    blocks: &'r Mutex<Blocks>,
    block: Option<Block>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        lock(self.blocks).idle.extend(self.block.take());
    }
}

impl AddAssign for DeviceReport {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.copied += other.copied;
        self.reads += other.reads;
        self.read_seconds += other.read_seconds;
        self.device_seconds += other.device_seconds;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for StagingRing {
    fn drop(&mut self) {
        // Each load has waited for its copies, if the device told when they were over.
        if self.is_lost {
            lock(&self.blocks).idle.iter_mut().for_each(Block::lose);
        }
    }
}
