// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of an ADC.

use std::sync::Arc;

use super::buffer::{Blocks, Opened, clear};
use super::device::{Channel, Counter, Device};
use super::status::Status;
use crate::ends::Source;
use crate::error::Result;
use crate::fenced::Fenced;
use crate::ring::{BlockRing, Filled};
use crate::wait::Wait;

/// Samples of an ADC.
///
/// The device writes them into the blocks by DMA. A device that does not support dma-bufs, or a
/// kernel before 6.11, is read with `read()` instead; [`how`](Source::how) says so.
#[derive(Debug)]
pub struct IioSource {
    blocks: Blocks,
    counter: Counter,
    status: Option<Status>,
}

impl IioSource {
    /// Opens buffer `number` of a device, for samples of these channels.
    ///
    /// A device may report the frames lost since its start in an attribute `lost_frames`. Cores of
    /// Analog Devices note that there were any; only root can read that.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`]: `EACCES`, `EBUSY` if the buffer is in use for more than 300 ms,
    /// `EOPNOTSUPP` if it is an output, `EINVAL` if there is no channel.
    pub fn open(device: Device, number: u32, channels: &[Channel]) -> Result<Self> {
        let (counter, status) = (device.counter("lost_frames"), Status::of(&device, false));
        let fenced = Fenced::filling(Opened::open(device, number, channels, false)?);
        let blocks = Blocks { fenced, fileio: None, align: 1, output: false };
        Ok(Self { blocks, counter, status })
    }
}

impl Source for IioSource {
    fn frame(&self) -> u64 {
        self.blocks.fenced.port.frame
    }

    fn how(&self) -> String {
        self.blocks.how()
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        self.blocks.attach(ring)
    }

    fn align(&self) -> u64 {
        self.blocks.align
    }

    fn start(&mut self) -> Result<()> {
        self.blocks.fenced.port.enable(true)?;
        // Until now it had no block.
        clear(self.status.as_ref());
        Ok(())
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        self.blocks.attach_more(block)
    }

    fn queue(&mut self, block: usize, bytes: u64) -> Result<bool> {
        let filled = Filled { block, bytes };
        match &mut self.blocks.fileio {
            None => self.blocks.fenced.queue_and_look(&[filled], self.blocks.align),
            Some(fileio) => fileio.queue(filled).map(|()| false),
        }
    }

    fn batch(&self) -> usize {
        if self.blocks.fileio.is_some() { 1 } else { self.blocks.fenced.batch() }
    }

    fn queue_all(&mut self, batch: &[Filled]) -> Result<bool> {
        match &mut self.blocks.fileio {
            None => self.blocks.fenced.queue_and_look(batch, self.blocks.align),
            Some(fileio) => {
                batch.iter().try_for_each(|&filled| fileio.queue(filled))?;
                Ok(false)
            }
        }
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        let Some(fileio) = &mut self.blocks.fileio else {
            let taken = self.blocks.fenced.take()?;
            if taken.is_none() {
                self.blocks.fenced.port.check()?;
            }
            return Ok(taken);
        };
        fileio.read()
    }

    fn ready(&self) -> Option<Wait<'_>> {
        self.blocks.ready()
    }

    fn queued(&self) -> usize {
        self.blocks.len()
    }

    /// With `read()` the kernel has its own buffers, and whether they are full is not visible.
    fn is_dry(&self) -> Result<bool> {
        if self.blocks.fileio.is_some() { Ok(false) } else { self.blocks.fenced.is_idle() }
    }

    /// A queued block is no proof: a device may lose frames inside.
    fn tells_losses(&self) -> bool {
        self.counter.read().is_some() || self.status.is_some()
    }

    fn lost(&mut self) -> Result<Option<u64>> {
        Ok(self.counter.read())
    }

    fn has_lost(&mut self) -> Result<Option<bool>> {
        Ok(self.status.as_ref().and_then(Status::take))
    }

    fn stop(&mut self) -> Result<()> {
        let looked = match self.blocks.fileio {
            None if self.blocks.fenced.port.running => self.blocks.fenced.look_closely(),
            _ => Ok(()),
        };
        let stopped = looked.and(self.blocks.fenced.port.disable());
        self.blocks.fenced.keep_done();
        if let Some(fileio) = &mut self.blocks.fileio {
            fileio.keep_read(self.blocks.fenced.port.frame);
        }
        stopped
    }
}
