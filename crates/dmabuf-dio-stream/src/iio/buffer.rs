// SPDX-License-Identifier: MIT OR Apache-2.0
//! A buffer of an IIO device: opened, set up, started and stopped.

use std::cell::Cell;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use dmabuf_dio::Errno;
use dmabuf_dio_sys::iio;
use rustix::fs::{Mode, OFlags};

use super::device::{Channel, Counter, Device, frame_bytes};
use crate::error::{Error, Result, failed, from_os};
use crate::fenced::Port as _;

/// Maximum bytes copied at a time.
const COPIED: u64 = 256 << 10;
/// The capacity of a FIFO of the kernel: seconds, the least frames, and the most bytes.
const HELD: f64 = 4.0;
const FIFO: u64 = 4096;
const MOST_HELD: u64 = 4 << 20;
/// How often to check that a device is still running.
const LOOK: Duration = Duration::from_millis(100);
/// How long a device may be in use before opening it fails. Programs that list devices open each
/// free device for an instant.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often that is tried.
const AGAIN: Duration = Duration::from_millis(5);

/// A buffer of a device. Closing it releases every block.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) device: Device,
    pub(super) number: u32,
    pub(super) frame: u64,
    pub(super) fd: OwnedFd,
    pub(super) running: bool,
    /// The kernel keeps queued blocks unless the device is started and stopped.
    pub(super) kept: Cell<bool>,
    /// The kernel's state for `running`.
    pub(super) enabled: Counter,
    pub(super) looked: Cell<Instant>,
}

impl Opened {
    pub(super) fn open(
        device: Device,
        number: u32,
        channels: &[Channel],
        output: bool,
    ) -> Result<Self> {
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

    pub(super) fn open_fd(device: &Device, number: u32) -> Result<OwnedFd> {
        let failed = |call: &str, errno: Errno| failed(device.name(), call, errno);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let node = rustix::fs::open(device.node(), flags, Mode::empty())
            .map_err(|errno| failed("open", from_os(errno)))?;
        iio::get_fd(node.as_fd(), number as i32).map_err(|errno| failed("open the buffer", errno))
    }

    pub(super) fn enable(&mut self, on: bool) -> Result<()> {
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
    pub(super) fn check(&self) -> Result<()> {
        if self.looked.get().elapsed() >= LOOK {
            self.looked.set(Instant::now());
            if !self.is_running() {
                return Err(failed(self.device.name(), "go on", Errno::NODEV));
            }
        }
        Ok(())
    }

    /// Stops the device, unless it is gone.
    pub(super) fn disable(&mut self) -> Result<()> {
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
    /// `bytes`. With DMA they are in two buffers; a partly filled one is lost at the end. Otherwise
    /// they are in a FIFO, which drops frames silently if it is full.
    pub(super) fn set_length(&self, bytes: u64) {
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
    pub(super) fn align(&self) -> u64 {
        self.device.block_align(self.number, self.frame)
    }

    /// Size of the kernel's buffers for `read()` and `write()`, together, in bytes.
    pub(super) fn kernel_bytes(&self) -> u64 {
        let frames = self.device.read(&format!("buffer{}/length", self.number));
        let frames = frames.ok().and_then(|frames| frames.parse::<u64>().ok()).unwrap_or(0);
        // A FIFO has a power of two of them (`__kfifo_alloc()`, lib/kfifo.c), which the attribute does not say.
        let has_dma = self.device.has_dma(self.number);
        let frames = if has_dma { Some(frames) } else { frames.checked_next_power_of_two() };
        frames.unwrap_or(u64::MAX).saturating_mul(self.frame)
    }

    /// Writes that end at a multiple of this write everything or nothing: one of the two kernel
    /// buffers, or a frame if the device has a buffer of another kind.
    pub(super) fn whole_write(&self) -> Result<u64> {
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

impl Drop for Opened {
    fn drop(&mut self) {
        // Errors cannot be reported here; closing the descriptor does the rest.
        let _ = self.disable();
    }
}
