// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that an IIO device fills with samples, or outputs.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use dmabuf_dio::Errno;
use dmabuf_dio_sys::iio;

use super::buffer::Opened;
use super::device::{Channel, Device};
use super::fileio::Fileio;
use super::status::Losses;
use crate::ends::{Facts, Live, Pending, Sink, Source};
use crate::error::{Result, failed};
use crate::fenced::{Fenced, Port};
use crate::gaps::Reading;
use crate::ring::{BlockRing, Filled};

impl Port for Opened {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn attach(&self, dmabuf: BorrowedFd<'_>) -> dmabuf_dio_sys::Result<()> {
        iio::attach(self.fd.as_fd(), dmabuf)
    }

    fn enqueue(&self, dmabuf: BorrowedFd<'_>, bytes: u64) -> dmabuf_dio_sys::Result<()> {
        iio::enqueue(self.fd.as_fd(), dmabuf, bytes, 0)?;
        self.kept.set(true);
        Ok(())
    }

    fn is_running(&self) -> bool {
        !self.running || self.enabled.read() == Some(1)
    }
}

/// How samples get from the device into a block, or back.
#[derive(Debug)]
struct Blocks {
    fenced: Fenced<Opened>,
    /// For a device that does not support dma-bufs.
    fileio: Option<Fileio>,
    /// Bytes that the kernel may hold then.
    held: u64,
    /// A block's size must be a multiple of this, in bytes: of the frame and the device's DMA
    /// alignment.
    align: u64,
    losses: Losses,
    output: bool,
}

impl Blocks {
    fn open(device: Device, number: u32, channels: &[Channel], output: bool) -> Result<Self> {
        let losses = Losses::of(&device, output);
        let port = Opened::open(device, number, channels, output)?;
        let fenced = if output { Fenced::emptying(port) } else { Fenced::filling(port) };
        Ok(Self { fenced, fileio: None, held: 0, align: 1, losses, output })
    }

    /// Attaches the blocks, or prepares to copy.
    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        match self.fenced.attach(ring) {
            Ok(()) => self.check_align(ring),
            // This buffer or this kernel does not support dma-bufs.
            Err(errno @ (Errno::PERM | Errno::NOTTY)) => {
                let buffer = &self.fenced.port;
                buffer.set_length(ring.size());
                let (name, fd) = (buffer.device.name(), buffer.fd.as_fd());
                self.held = buffer.kernel_bytes();
                let whole = if self.output { Some(buffer.whole_write()?) } else { None };
                self.fileio = Some(Fileio::new(name, fd, ring, errno, whole)?);
                Ok(())
            }
            Err(errno) => Err(failed(self.fenced.port.name(), "attach a block", errno)),
        }
    }

    /// Attaches a block that was added to the ring since.
    fn attach_more(&mut self, block: usize) -> Result<bool> {
        match &mut self.fileio {
            None => self.fenced.attach_more(block),
            Some(fileio) => fileio.attach_more(block),
        }
    }

    fn check_align(&mut self, ring: &BlockRing) -> Result<()> {
        let buffer = &self.fenced.port;
        self.align = buffer.align();
        if ring.size() % self.align != 0 {
            let need = "a multiple of the frame size and of the alignment of the device's DMA";
            let value = ring.size();
            return Err(dmabuf_dio::Error::Setting { name: "block", value, need }.into());
        }
        Ok(())
    }

    fn facts(&self) -> Facts {
        let buffer = &self.fenced.port;
        let (how, behind) = match &self.fileio {
            None => ("IIO, dma-buf".into(), 0),
            Some(fileio) => (fileio.how(), self.held),
        };
        // A queued block does not prove that no frames are lost: a device may lose frames inside.
        let tells_losses = self.losses.are_told();
        Facts { frame: buffer.frame, align: self.align, behind, tells_losses, ..Facts::new(how) }
    }

    fn queue(&mut self, blocks: &[Filled]) -> Result<(usize, bool)> {
        match &mut self.fileio {
            None => self.fenced.queue_and_look(blocks, self.align),
            Some(fileio) => {
                blocks.iter().try_for_each(|&filled| fileio.queue(filled))?;
                Ok((blocks.len(), false))
            }
        }
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        let taken = match &mut self.fileio {
            None => self.fenced.take()?,
            Some(fileio) => fileio.take()?,
        };
        if taken.is_none() && (self.output || self.fileio.is_none()) {
            self.fenced.port.check()?;
        }
        Ok(taken)
    }

    fn pending(&self) -> Pending<'_> {
        self.fileio.as_ref().map_or_else(|| self.fenced.pending(), Fileio::pending)
    }

    /// With `read()` and `write()` the kernel has its own buffers, and whether they are full or empty
    /// is not visible.
    fn is_dry(&self) -> Result<bool> {
        if self.fileio.is_some() { Ok(false) } else { self.fenced.is_idle() }
    }
}

/// Samples of an ADC.
///
/// The device writes them into the blocks by DMA. A device that does not support dma-bufs, or a
/// kernel before 6.11, is read with `read()` instead; [`Facts::how`] says so.
#[derive(Debug)]
pub struct IioSource(Blocks);

impl IioSource {
    /// Opens buffer `number` of a device, for samples of these channels.
    ///
    /// A device may report the frames lost since its start in an attribute `lost_frames`. Cores of
    /// Analog Devices note that there were any; only root can read that.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream): `EACCES`, `EBUSY` if the buffer is in use for more than 300 ms,
    /// `EOPNOTSUPP` if it is an output, `EINVAL` if there is no channel.
    pub fn open(device: Device, number: u32, channels: &[Channel]) -> Result<Self> {
        Ok(Self(Blocks::open(device, number, channels, false)?))
    }
}

impl Source for IioSource {
    fn facts(&self) -> Facts {
        self.0.facts()
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        self.0.attach(ring)
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        self.0.attach_more(block)
    }

    fn queue(&mut self, blocks: &[Filled]) -> Result<(usize, bool)> {
        self.0.queue(blocks)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.0.take()
    }

    fn pending(&self) -> Pending<'_> {
        self.0.pending()
    }

    fn stop(&mut self) -> Result<()> {
        let Blocks { fenced, fileio, .. } = &mut self.0;
        let looked = match fileio {
            None if fenced.port.running => fenced.look_closely(),
            _ => Ok(()),
        };
        let stopped = looked.and(fenced.port.disable());
        fenced.keep_done();
        match fileio {
            None => stopped,
            Some(fileio) => stopped.and(fileio.keep_read(fenced.port.frame)),
        }
    }

    fn live(&mut self) -> Option<&mut dyn Live> {
        Some(self)
    }
}

impl Live for IioSource {
    fn start(&mut self) -> Result<()> {
        self.0.fenced.port.enable(true)?;
        // Until now it had no block.
        self.0.losses.clear();
        Ok(())
    }

    fn is_dry(&self) -> Result<bool> {
        self.0.is_dry()
    }

    fn lost(&mut self) -> Result<Reading> {
        Ok(self.0.losses.read())
    }
}

/// Outputs samples on a DAC.
#[derive(Debug)]
pub struct IioSink {
    blocks: Blocks,
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
        Ok(Self { blocks: Blocks::open(device, number, channels, true)?, padding: 0 })
    }

    /// Fills a block up to a length that the device's DMA can move, with copies of the last frame:
    /// other values would be steps in the output.
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
    fn facts(&self) -> Facts {
        let facts = self.blocks.facts();
        let end = match (&self.blocks.fileio, self.padding) {
            (Some(_), _) => "; samples in its last two buffers at the end are not output".into(),
            (None, 0) => String::new(),
            (None, frames) => format!(
                "; its last frame is output {frames} times more, as its DMA moves multiples of {} bytes",
                self.blocks.align
            ),
        };
        Facts { how: facts.how + &end, ..facts }
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, _: Option<u64>) -> Result<()> {
        self.blocks.attach(ring)
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        self.blocks.attach_more(block)
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        if self.blocks.fileio.is_none() {
            self.pad(filled)?;
        }
        let runs = self.blocks.fenced.port.running;
        let (_, was_idle) = self.blocks.queue(&[filled])?;
        // With the first block queued there is something to output.
        self.blocks.fenced.port.enable(true)?;
        if !runs {
            self.blocks.losses.clear();
        }
        Ok(runs && was_idle)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.blocks.take()
    }

    fn pending(&self) -> Pending<'_> {
        self.blocks.pending()
    }

    fn finish(&mut self) -> Result<()> {
        self.blocks.fenced.port.disable()
    }

    fn live(&mut self) -> Option<&mut dyn Live> {
        Some(self)
    }
}

impl Live for IioSink {
    fn is_dry(&self) -> Result<bool> {
        if self.blocks.fenced.port.running { self.blocks.is_dry() } else { Ok(false) }
    }

    fn lost(&mut self) -> Result<Reading> {
        Ok(match self.blocks.losses.read() {
            reading if self.blocks.fenced.port.running => reading,
            // The device keeps the previous run's count until it runs.
            Reading::Count(_) => Reading::Count(0),
            Reading::Noted(_) => Reading::Noted(false),
            Reading::Nothing => Reading::Nothing,
        })
    }
}
