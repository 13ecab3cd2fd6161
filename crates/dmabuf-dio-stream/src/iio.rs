// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that an IIO device fills with samples, or outputs.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dmabuf_dio::Errno;
use dmabuf_dio_sys::dmabuf::{self, Access};
use dmabuf_dio_sys::{iio, sync_file};
use rustix::fs::{Mode, OFlags};

use crate::device::{Channel, Counter, Device, frame_bytes};
use crate::error::{Error, Result};
use crate::fenced::{Fenced, Port};
use crate::fileio::Fileio;
use crate::ring::BlockRing;
use crate::status::Status;
use crate::wait::Wait;
use crate::{Filled, Sink, Source, failed};
use dmabuf_dio::Buffer;

/// Maximum bytes copied at a time.
const COPIED: u64 = 256 << 10;
/// What a FIFO of the kernel holds: seconds, frames at least, and bytes at most.
const HELD: f64 = 4.0;
const FIFO: u64 = 4096;
const MOST_HELD: u64 = 4 << 20;
/// How often to check that a device is still running.
const LOOK: Duration = Duration::from_millis(100);
/// How long a device may be in use before opening it fails. Whoever lists devices opens each free
/// one for an instant.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often that is tried.
const AGAIN: Duration = Duration::from_millis(5);

/// A buffer of a device. Closing it releases every block.
#[derive(Debug)]
struct Opened {
    device: Device,
    number: u32,
    frame: u64,
    fd: OwnedFd,
    running: bool,
    /// Something was queued that the kernel keeps unless the device is started and stopped.
    kept: Cell<bool>,
    /// The kernel's state for `running`.
    enabled: Counter,
    looked: Cell<Instant>,
}

impl Opened {
    fn open(device: Device, number: u32, channels: &[Channel], output: bool) -> Result<Self> {
        let failed = |call: &str, errno: Errno| failed(device.name(), call, errno);
        if device.is_output(number) != output {
            let call = if output { "output samples" } else { "capture samples" };
            return Err(failed(call, Errno::OPNOTSUPP));
        }
        let patience = Instant::now() + PATIENCE;
        let fd = loop {
            match Self::open_fd(&device, number) {
                Err(error) if error.errno() == Some(Errno::BUSY) && Instant::now() < patience => {
                    std::thread::sleep(AGAIN);
                }
                result => break result?,
            }
        };
        // The buffer is ours now, but its last owner may have been killed: then it still runs.
        let enable = format!("buffer{number}/enable");
        if device.read(&enable)? == "1" {
            device.write(&enable, "0")?;
        }
        device.choose(number, channels)?;
        let frame = frame_bytes(channels);
        if frame == 0 {
            return Err(failed("stream without a channel", Errno::INVAL));
        }
        let enabled = device.counter(&enable);
        let (kept, looked) = (Cell::new(false), Cell::new(Instant::now()));
        Ok(Self { device, number, frame, fd, running: false, kept, enabled, looked })
    }

    fn open_fd(device: &Device, number: u32) -> Result<OwnedFd> {
        let failed = |call: &str, errno: Errno| failed(device.name(), call, errno);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let node = rustix::fs::open(device.node(), flags, Mode::empty())
            .map_err(|errno| failed("open", crate::from_os(errno)))?;
        iio::get_fd(node.as_fd(), number as i32).map_err(|errno| failed("open the buffer", errno))
    }

    fn enable(&mut self, on: bool) -> Result<()> {
        if on != self.running {
            let value = if on { "1" } else { "0" };
            let result = self.device.write(&format!("buffer{}/enable", self.number), value);
            if matches!(&result, Err(error) if on && error.errno() == Some(Errno::INVAL)) {
                result.map_err(|error| self.device.lacks_trigger().unwrap_or(error))?;
            } else {
                result?;
            }
            self.running = on;
            self.kept.set(false);
        }
        Ok(())
    }

    /// Fails if the device is gone or was stopped: a block queued after that never comes back. Not
    /// every call checks.
    fn check(&self) -> Result<()> {
        if self.looked.get().elapsed() >= LOOK {
            self.looked.set(Instant::now());
            if !self.is_running() {
                return Err(failed(self.device.name(), "go on", Errno::NODEV));
            }
        }
        Ok(())
    }

    /// Stops the device, unless it is gone.
    fn disable(&mut self) -> Result<()> {
        if self.kept.take() && !self.running {
            // Otherwise the next user would get our blocks.
            self.enable(true)?;
        }
        match self.enable(false) {
            Err(Error::Stream { errno, .. })
                if matches!(errno.raw(), libc::ENOENT | libc::ENODEV) =>
            {
                self.running = false;
                Ok(())
            }
            result => result,
        }
    }

    /// Sets the number of frames that the kernel holds for `read()` and `write()`, for blocks of
    /// `bytes`: with DMA in two buffers together, of which a partly filled one is lost at the end, and
    /// otherwise in a FIFO, which drops frames without a word if it is full.
    fn set_length(&self, bytes: u64) {
        let two = 2 * (bytes.min(COPIED) / self.frame).max(1);
        let frames = if self.device.has_dma(self.number) {
            two
        } else {
            let rate = self.device.rate(self.number);
            let held =
                rate.map_or(FIFO, |rate| (HELD * rate) as u64).clamp(FIFO, MOST_HELD / self.frame);
            two.max(held)
        };
        // A device that rejects the length keeps its own.
        let _ = self.device.write(&format!("buffer{}/length", self.number), &frames.to_string());
    }

    /// A block's size must be a multiple of this, in bytes: of the frame and the device's DMA
    /// alignment.
    fn align(&self) -> u64 {
        self.device.block_align(self.number, self.frame)
    }

    /// Size of the kernel's buffers for `read()` and `write()`, together.
    fn kernel_bytes(&self) -> u64 {
        let frames = self.device.read(&format!("buffer{}/length", self.number));
        frames.ok().and_then(|frames| frames.parse::<u64>().ok()).unwrap_or(0) * self.frame
    }

    /// Writes that end at a multiple of this write everything or nothing: one of the two kernel
    /// buffers, or a frame if the device has a buffer of another kind.
    fn whole_write(&self) -> Result<u64> {
        if !self.device.has_dma(self.number) {
            return Ok(self.frame);
        }
        let bytes = self.kernel_bytes() / 2;
        if bytes == 0 || bytes % self.frame != 0 {
            let call =
                "write to kernel buffers that do not hold a whole number of frames (an odd length)";
            return Err(failed(self.device.name(), call, Errno::INVAL));
        }
        Ok(bytes)
    }
}

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

impl Drop for Opened {
    fn drop(&mut self) {
        // Errors cannot be reported here; closing the descriptor does the rest.
        let _ = self.disable();
    }
}

/// How samples get from the device into a block, or back.
#[derive(Debug)]
struct Blocks {
    fenced: Fenced<Opened>,
    /// For a device that does not support dma-bufs.
    fileio: Option<Fileio>,
    /// A block's size must be a multiple of this, in bytes: of the frame and the device's DMA
    /// alignment.
    align: u64,
    output: bool,
}

impl Blocks {
    /// Attaches the blocks, or prepares to copy.
    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        match self.fenced.attach(ring) {
            Ok(()) => self.check_align(ring),
            // Not supported by this buffer, or by this kernel.
            Err(errno @ (Errno::PERM | Errno::NOTTY)) => {
                let buffer = &self.fenced.port;
                buffer.set_length(ring.size());
                let (name, fd) = (buffer.device.name(), buffer.fd.as_fd());
                let whole = if self.output { buffer.whole_write()? } else { u64::MAX };
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

    fn how(&self) -> String {
        self.fileio.as_ref().map_or_else(|| "IIO, dma-buf".into(), Fileio::how)
    }

    fn ready(&self) -> Option<Wait<'_>> {
        self.fileio.as_ref().map_or_else(|| self.fenced.first(), Fileio::ready)
    }

    fn len(&self) -> usize {
        self.fileio.as_ref().map_or_else(|| self.fenced.len(), Fileio::len)
    }
}

/// What a device noted before it had a block is no loss.
fn clear(status: Option<&Status>) {
    if let Some(status) = status {
        status.clear();
    }
}

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

/// A DAC that outputs the same samples repeatedly, without CPU involvement, until this is dropped
/// or stopped.
#[derive(Debug)]
pub struct Repeat {
    buffer: Opened,
    counter: Counter,
    status: Option<Status>,
    block: Buffer,
    /// The device's fence, which is not signalled before the device is stopped. It fails if the
    /// driver has refused the block, which neither queueing nor enabling does.
    fence: OwnedFd,
}

impl Repeat {
    /// Starts with the first `bytes` bytes of a dma-buf, a multiple of the frame and of what
    /// the device's DMA needs ([`Device::block_align`]).
    ///
    /// # Errors
    ///
    /// As for [`IioSink::open`]; [`Error::Stream`] with `EPERM` or `ENOTTY` if the device does not
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
        let (counter, status) = (device.counter("lost_frames"), Status::of(&device, true));
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
        clear(status.as_ref());
        let repeat = Self { buffer, counter, status, block, fence };
        repeat.check()?;
        Ok(repeat)
    }

    /// Fails if the device does not output the block: the driver has refused it, or the device was
    /// stopped or is gone.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`] with the driver's error, or `ENODEV`.
    pub fn check(&self) -> Result<()> {
        let name = self.buffer.device.name();
        match sync_file::status(self.fence.as_fd()) {
            Err(Errno::INTR) => Err(failed(name, "go on", Errno::NODEV)),
            Err(errno) => Err(failed(name, "output the block", errno)),
            Ok(_) if !self.buffer.is_running() => Err(failed(name, "go on", Errno::NODEV)),
            Ok(_) => Ok(()),
        }
    }

    /// The number of frames that the device could not output since its start; `None` if it does
    /// not report them.
    pub fn lost(&self) -> Option<u64> {
        self.counter.read()
    }

    /// Whether the device could not output frames since the last call, if it notes that, but not how
    /// many.
    pub fn has_lost(&self) -> Option<bool> {
        self.status.as_ref().and_then(Status::take)
    }

    /// Stops the output and returns the buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`].
    pub fn stop(mut self) -> Result<Buffer> {
        self.buffer.disable()?;
        Ok(self.block)
    }
}
