// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples for a DAC.

use std::sync::Arc;

use super::buffer::{Blocks, Opened, clear};
use super::device::{Channel, Counter, Device};
use super::status::Status;
use crate::ends::Sink;
use crate::error::Result;
use crate::fenced::Fenced;
use crate::ring::{BlockRing, Filled};
use crate::wait::Wait;

/// Outputs samples on a DAC.
#[derive(Debug)]
pub struct IioSink {
    blocks: Blocks,
    counter: Counter,
    status: Option<Status>,
    /// Frames that were added to what it got.
    padding: u64,
}

impl IioSink {
    /// Opens buffer `number` of a device, for samples of these channels.
    ///
    /// A device may report for how many frames since its start it had nothing to output, in an
    /// attribute `lost_frames`.
    ///
    /// # Errors
    ///
    /// As for [`IioSource::open`], with `EOPNOTSUPP` if the buffer is an input.
    pub fn open(device: Device, number: u32, channels: &[Channel]) -> Result<Self> {
        let (counter, status) = (device.counter("lost_frames"), Status::of(&device, true));
        let fenced = Fenced::emptying(Opened::open(device, number, channels, true)?);
        let blocks = Blocks { fenced, fileio: None, align: 1, output: true };
        Ok(Self { blocks, counter, status, padding: 0 })
    }

    /// Fills a block up to a length that the device's DMA can move, with the frame before: others
    /// would be steps in the output.
    fn pad(&mut self, filled: Filled) -> Result<()> {
        let (frame, end) = (self.blocks.fenced.port.frame, filled.bytes);
        let padded = Filled { bytes: end.next_multiple_of(self.blocks.align), ..filled };
        if end % frame != 0 || padded.bytes == end {
            return Ok(());
        }
        let mut block = self.blocks.fenced.block(padded)?.try_clone()?;
        let mut last = vec![0; frame as usize];
        let view = block.map()?;
        view.read_at(end - frame, &mut last)?;
        view.finish()?;
        let mut view = block.map_mut()?;
        for at in (end..padded.bytes).step_by(frame as usize) {
            view.write_at(at, &last)?;
            self.padding += 1;
        }
        view.finish()?;
        Ok(())
    }
}

impl Sink for IioSink {
    fn how(&self) -> String {
        let end = match (&self.blocks.fileio, self.padding) {
            (Some(_), _) => "; samples in its last two buffers at the end are not output".into(),
            (None, 0) => String::new(),
            (None, frames) => format!(
                "; its last frame is output {frames} times more, as its DMA moves multiples of {} bytes",
                self.blocks.align
            ),
        };
        self.blocks.how() + &end
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, _: Option<u64>) -> Result<()> {
        self.blocks.attach(ring)
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        self.blocks.attach_more(block)
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        let runs = self.blocks.fenced.port.running;
        let was_idle = match &mut self.blocks.fileio {
            None => {
                self.pad(filled)?;
                self.blocks.fenced.queue_and_look(&[filled], self.blocks.align)?
            }
            Some(fileio) => {
                fileio.queue(filled)?;
                false
            }
        };
        // With the first block queued there is something to output.
        self.blocks.fenced.port.enable(true)?;
        if !runs {
            clear(self.status.as_ref());
        }
        Ok(runs && was_idle)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        let taken = match &mut self.blocks.fileio {
            None => self.blocks.fenced.take()?,
            Some(fileio) => fileio.write()?,
        };
        if taken.is_none() {
            self.blocks.fenced.port.check()?;
        }
        Ok(taken)
    }

    fn ready(&self) -> Option<Wait<'_>> {
        self.blocks.ready()
    }

    fn queued(&self) -> usize {
        self.blocks.len()
    }

    /// With `write()` the kernel has its own buffers, and whether they are empty is not visible.
    fn is_dry(&self) -> Result<bool> {
        let fenced = &self.blocks.fenced;
        if self.blocks.fileio.is_some() || !fenced.port.running {
            return Ok(false);
        }
        fenced.is_idle()
    }

    /// A queued block is no proof: a device may lose frames inside.
    fn tells_losses(&self) -> bool {
        self.counter.read().is_some() || self.status.is_some()
    }

    fn lost(&mut self) -> Result<Option<u64>> {
        let lost = self.counter.read();
        // Until it runs the device has the count of the time before.
        Ok(if self.blocks.fenced.port.running { lost } else { lost.map(|_| 0) })
    }

    fn has_lost(&mut self) -> Result<Option<bool>> {
        let lost = self.status.as_ref().and_then(Status::take);
        Ok(lost.map(|lost| lost && self.blocks.fenced.port.running))
    }

    fn behind(&self) -> u64 {
        let buffer = &self.blocks.fenced.port;
        if self.blocks.fileio.is_some() { buffer.kernel_bytes() } else { 0 }
    }

    fn finish(&mut self) -> Result<()> {
        self.blocks.fenced.port.disable()
    }
}
