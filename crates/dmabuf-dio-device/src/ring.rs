// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of registered memory, through which files go to a device.

use std::time::Instant;

use dmabuf_dio::CancelToken;

use crate::block::Block;
use crate::device::Device;
use crate::error::{Error, OUT_OF_MEMORY, Result};
use crate::plan::{self, Place};
use crate::stream::{ForeignStream, Stream};

/// Blocks of a ring. The disk fills one, the device empties others.
const BLOCKS: u64 = 8;
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
    blocks: Vec<Block>,
    /// The length of a block.
    len: u64,
    stream: Stream,
    /// The block that is filled next.
    next: usize,
    /// The device does not tell any more what is over.
    is_lost: bool,
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
    /// Seconds of them in which the disk was waited for.
    pub read_seconds: f64,
    /// Seconds in which the device was waited for: no block was free, or at the end.
    pub device_seconds: f64,
}

impl StagingRing {
    /// The length that suits most disks and devices: 256 MiB.
    pub const DEFAULT: u64 = 256 << 20;
    /// The length of the smallest ring.
    pub const LEAST: u64 = BLOCKS * LEAST;

    /// Allocates a ring of at most `bytes` of memory, which is pinned as long as the ring exists: a half, a quarter or less if
    /// the driver pins no more, as on WSL. Blocks.
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
            match (0..BLOCKS).map(block).collect::<Result<Vec<_>>>() {
                Err(Error::Driver { status: OUT_OF_MEMORY, .. }) if len >= 2 * LEAST => {
                    len = len / 2 / LEAST * LEAST;
                }
                blocks => break Ok(Self { blocks: blocks?, len, stream, next: 0, is_lost: false }),
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
        let mut report = DeviceReport::default();
        let run = match after.map_or(Ok(()), |other| self.stream.begin_after(other)) {
            Ok(()) => self.run(places, cancel, &mut report),
            Err(error) => Err(error),
        };
        let began = Instant::now();
        let over = self.stream.wait();
        report.device_seconds += began.elapsed().as_secs_f64();
        self.is_lost = over.is_err();
        run?;
        over?;
        Ok(report)
    }

    fn run(
        &mut self,
        places: &[Place<'_>],
        cancel: &CancelToken,
        report: &mut DeviceReport,
    ) -> Result<()> {
        for read in plan::reads(places, self.len - ENDS.min(self.len / 4)) {
            let block = &mut self.blocks[self.next];
            let began = Instant::now();
            block.wait()?;
            let waited = Instant::now();
            block.fill(&read, cancel)?;
            report.device_seconds += (waited - began).as_secs_f64();
            report.read_seconds += waited.elapsed().as_secs_f64();
            report.copied += block.empty(&read, &self.stream)?;
            report.read += read.range.end - read.range.start;
            report.reads += 1;
            self.next = (self.next + 1) % self.blocks.len();
        }
        Ok(())
    }
}

impl Drop for StagingRing {
    fn drop(&mut self) {
        // Each load has waited for its copies, if the device told when they were over.
        if self.is_lost {
            self.blocks.iter_mut().for_each(Block::lose);
        }
    }
}
