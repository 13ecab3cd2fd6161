// SPDX-License-Identifier: MIT OR Apache-2.0
//! The usual method: `read()` of a block, then `write()`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use dmabuf_dio_sys::iio;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Os;

use super::device::Adc;
use crate::buffer::mapping::{Mapping, Pages};
use crate::measure::outcome::{Trouble, failed, repeat, stream_errno as errno};

/// A device read by `read()`.
pub(crate) struct DeviceReader<'a> {
    adc: &'a Adc,
    buffer: OwnedFd,
    memory: Mapping,
    block: u64,
}

impl<'a> DeviceReader<'a> {
    /// Opens the device's buffer and starts it.
    pub(crate) fn start(adc: &'a Adc, block: u64) -> Result<Self, Trouble> {
        let device = &adc.device;
        let node = rustix::fs::open(device.node(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed("opening the device"))?;
        let buffer = iio::get_fd(node.as_fd(), 0).map_err(failed("IIO_GET_FD"))?;
        let attribute = |what: &str, name: &str, value: &str| {
            device.write(name, value).map_err(|error| {
                Trouble::unavailable(what, errno(&error), "the device has no such buffer")
            })
        };
        device
            .choose(0, &adc.channels)
            .map_err(|error| Trouble::failed("choosing channels", errno(&error)))?;
        // The kernel has two buffers of half this length.
        attribute("length", "buffer0/length", &(2 * block / adc.frame()).to_string())?;
        // Dma-bufs of the row before are let go of in the background, and as long as the kernel has
        // one it gives read() no buffers, without a word.
        std::thread::sleep(Duration::from_millis(200));
        let memory = Mapping::anonymous(block, Pages::Huge).map_err(failed("mmap"))?;
        attribute("blocks of that size for read()", "buffer0/enable", "1")?;
        Ok(Self { adc, buffer, memory, block })
    }

    /// Reads a block and passes its bytes to `write`.
    pub(crate) fn pass_on(
        &mut self,
        length: u64,
        mut write: impl FnMut(&[u8]) -> Result<usize, Os>,
    ) -> Result<(), Trouble> {
        let length = length.min(self.block);
        // SAFETY: the memory is this process's alone and as long as a block.
        let bytes = &mut unsafe { self.memory.bytes() }[..length as usize];
        repeat(length, |done| rustix::io::read(&self.buffer, &mut bytes[done as usize..]))
            .map_err(|stop| stop.of("read()", length))?;
        repeat(length, |done| write(&bytes[done as usize..]))
            .map_err(|stop| stop.of("write()", length))
    }
}

impl Drop for DeviceReader<'_> {
    fn drop(&mut self) {
        let _ = self.adc.device.write("buffer0/enable", "0");
    }
}

/// The destination of the samples.
pub(crate) enum SinkWriter {
    Nothing,
    To(OwnedFd),
}

impl SinkWriter {
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<usize, Os> {
        match self {
            Self::Nothing => Ok(bytes.len()),
            Self::To(fd) => rustix::io::write(fd, bytes),
        }
    }

    /// Waits until all of it is on the disk or at the host.
    pub(crate) fn finish(&self) -> Result<(), Trouble> {
        match self {
            Self::Nothing => Ok(()),
            Self::To(fd) => match rustix::fs::fsync(fd) {
                // An endpoint has nothing to make durable.
                Ok(()) | Err(Os::INVAL) => Ok(()),
                Err(errno) => Err(Trouble::failed("fsync()", errno)),
            },
        }
    }
}

/// Opens a file or an endpoint.
pub(crate) fn open(path: &std::path::Path, flags: OFlags) -> Result<OwnedFd, Trouble> {
    rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC | flags, Mode::from(0o600))
        .map_err(|errno| Trouble::failed("opening the sink", errno))
}

/// Compares a file with the device's samples. Returns the first wrong frame.
pub(crate) fn first_wrong_frame(fd: BorrowedFd<'_>, bytes: u64) -> io::Result<Option<u64>> {
    const PIECE: u64 = 1 << 20;
    let mut piece = vec![0; PIECE as usize];
    let mut at = 0;
    while at < bytes {
        let length = PIECE.min(bytes - at) as usize;
        let got = rustix::io::pread(fd, &mut piece[..length], at)?;
        for (number, frame) in (at / 8..).zip(piece[..got].chunks_exact(8)) {
            if u64::from_le_bytes(frame.try_into().unwrap_or_default()) != number {
                return Ok(Some(number));
            }
        }
        if got == 0 || got % 8 != 0 {
            return Ok(Some((at + got as u64) / 8));
        }
        at += got as u64;
    }
    Ok(None)
}
