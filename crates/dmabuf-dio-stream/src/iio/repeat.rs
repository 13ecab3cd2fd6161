// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples that a DAC outputs again and again.

use std::os::fd::{AsFd as _, OwnedFd};

use dmabuf_dio::{Buffer, Errno};
use dmabuf_dio_sys::dmabuf::{self, Access};
use dmabuf_dio_sys::{iio, sync_file};

use super::buffer::Opened;
use super::device::{Channel, Device};
use super::status::Losses;
use crate::error::{Result, failed};
use crate::fenced::Port as _;
use crate::gaps::Reading;

/// A DAC that outputs the same samples repeatedly, without CPU involvement, until this is dropped
/// or stopped.
#[derive(Debug)]
pub struct Repeat {
    buffer: Opened,
    losses: Losses,
    block: Buffer,
    /// The device's fence, which is not signalled before the device is stopped. It fails if the
    /// driver has refused the block; queueing and enabling do not fail then.
    fence: OwnedFd,
}

impl Repeat {
    /// Starts with the first `bytes` bytes of a dma-buf, a multiple of the frame and of what
    /// the device's DMA needs ([`Device::block_align`]).
    ///
    /// # Errors
    ///
    /// As for [`IioSink::open`](crate::IioSink::open); [`Error::Stream`](crate::Error::Stream) with `EPERM` or `ENOTTY` if the device does not
    /// support dma-bufs, and with the driver's error if it refuses the block;
    /// [`Setting`](dmabuf_dio::Error::Setting) for a length that is 0 or not such a multiple;
    /// [`RangeBeyondBuffer`](dmabuf_dio::Error::RangeBeyondBuffer) if the buffer is shorter.
    pub fn start(
        device: Device,
        number: u32,
        channels: &[Channel],
        block: Buffer,
        bytes: u64,
    ) -> Result<Self> {
        let losses = Losses::of(&device, true);
        let mut buffer = Opened::open(device, number, channels, true)?;
        if bytes == 0 || bytes % buffer.align() != 0 {
            let need = "a multiple of the frame size and of the alignment of the device's DMA";
            return Err(dmabuf_dio::Error::Setting { name: "bytes", value: bytes, need }.into());
        }
        block.check_range(0, bytes)?;
        let call = |what, result: dmabuf_dio_sys::Result<()>| {
            result.map_err(|errno| failed(buffer.device.name(), what, errno))
        };
        let dmabuf = block.fd()?;
        call("attach a block", buffer.attach(dmabuf))?;
        let queued = iio::enqueue(buffer.fd.as_fd(), dmabuf, bytes, iio::CYCLIC);
        call("queue a block", queued)?;
        buffer.kept.set(true);
        // Before the driver gets the block: later the fence would not tell that it was refused.
        let fence = dmabuf::export_sync_file(dmabuf, Access::Write);
        let fence = fence.map_err(|errno| failed(buffer.device.name(), "get a fence", errno))?;
        buffer.enable(true)?;
        losses.clear();
        let repeat = Self { buffer, losses, block, fence };
        repeat.check()?;
        Ok(repeat)
    }

    /// Fails if the device does not output the block: the driver has refused it, or the device was
    /// stopped or is gone.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream) with the driver's error, or `ENODEV`.
    pub fn check(&self) -> Result<()> {
        let name = self.buffer.device.name();
        match sync_file::status(self.fence.as_fd()) {
            Err(Errno::INTR) => Err(failed(name, "go on", Errno::NODEV)),
            Err(errno) => Err(failed(name, "output the block", errno)),
            Ok(_) if !self.buffer.is_running() => Err(failed(name, "go on", Errno::NODEV)),
            Ok(_) => Ok(()),
        }
    }

    /// The number of frames that the device could not output since its start, as it reports it.
    pub fn lost(&self) -> Reading {
        self.losses.read()
    }

    /// Stops the output and returns the buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream).
    pub fn stop(mut self) -> Result<Buffer> {
        self.buffer.disable()?;
        Ok(self.block)
    }
}
