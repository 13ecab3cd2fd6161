// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated device, the usual way of reading it, the frames that it numbers, and the USB host that receives them.

use std::fs::{self, File};
use std::io::{self, BufReader, Read as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::{Channel, Device, Function, frame_bytes};
use dmabuf_dio_sys::iio;
use rustix::io::Errno as Os;

use crate::buffer::mapping::{Mapping, Pages};
use crate::outcome::{Result, Status, Trouble, failed};

/// Bytes of a frame: its number.
pub(crate) const FRAME: u64 = 8;
const PIECE: usize = 1 << 20;
/// Attributes of the host of `kernel/sim/usb_sink`.
const HOST: &str = "/sys/bus/platform/devices/usb_sink";
/// The time limit for a host.
const PATIENCE: Duration = Duration::from_secs(10);

/// An ADC with all its channels.
#[derive(Debug)]
pub(crate) struct Adc {
    pub(crate) device: Device,
    pub(crate) channels: Vec<Channel>,
}

impl Adc {
    /// That of `kernel/sim/iio_stream`.
    pub(crate) const NAME: &str = "stream-adc";

    pub(crate) fn find() -> Result<Self> {
        let what =
            "there is no IIO device stream-adc; run it in a guest: vm/run --kernel 7.3-series";
        let device = Device::find(Self::NAME).ok_or(Trouble::broken(what))?;
        let channels = device.channels(0)?;
        // It then gives samples as fast as blocks come.
        let _ = device.set_rate(0, 0.0);
        Ok(Self { device, channels })
    }

    pub(crate) fn frame(&self) -> u64 {
        frame_bytes(&self.channels)
    }

    /// The simulated device uses CPU time for work that real hardware does itself; this is disabled
    /// during measurements.
    pub(crate) fn set_sparse(&self, sparse: bool) {
        let _ = self.device.write("sparse", if sparse { "1" } else { "0" });
    }
}

impl Drop for Adc {
    fn drop(&mut self) {
        // As it was found.
        self.set_sparse(false);
        set_sparse_host(false);
    }
}

/// The usual way: `read()` of a block, then `write()`.
pub(crate) struct DeviceReader<'a> {
    adc: &'a Adc,
    buffer: File,
    memory: Mapping,
}

impl<'a> DeviceReader<'a> {
    /// Opens the device's buffer and starts it.
    pub(crate) fn start(adc: &'a Adc, block: u64) -> Result<Self> {
        let device = &adc.device;
        let node = File::options().read(true).write(true).open(device.node());
        let node = node.map_err(failed("opening the device"))?;
        let buffer = iio::get_fd(node.as_fd(), 0).map_err(failed("IIO_GET_FD"))?.into();
        let attribute = |what: &str, name: &str, value: &str| {
            let why = |error| format!("{what}: {error}, the device has no such buffer");
            let written = device.write(name, value);
            written.map_err(|error| Trouble::new(Status::Unavailable, why(error)))
        };
        device.choose(0, &adc.channels)?;
        // The kernel has two buffers of half this length.
        attribute("length", "buffer0/length", &(2 * block / adc.frame()).to_string())?;
        // Dma-bufs of the row before are let go of in the background, and as long as the kernel has
        // one it gives read() no buffers, without a word.
        std::thread::sleep(Duration::from_millis(200));
        let memory = Mapping::anonymous(block, Pages::Huge)?;
        attribute("blocks of that size for read()", "buffer0/enable", "1")?;
        Ok(Self { adc, buffer, memory })
    }

    /// Reads a block and passes its bytes to `write`.
    pub(crate) fn pass_on(&mut self, write: impl FnOnce(&[u8]) -> io::Result<()>) -> Result<()> {
        // SAFETY: the memory is this process's alone and as long as a block.
        let bytes = unsafe { self.memory.bytes() };
        self.buffer.read_exact(bytes).map_err(failed("read()"))?;
        write(bytes).map_err(failed("write()"))
    }
}

impl Drop for DeviceReader<'_> {
    fn drop(&mut self) {
        let _ = self.adc.device.write("buffer0/enable", "0");
    }
}

/// The numbers of the frames in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frames {
    pub(crate) count: u64,
    /// Frames that the device has numbered and that are not in the file, up to the last one in it.
    pub(crate) lost: u64,
    /// The number that would be next.
    next: u64,
}

impl Frames {
    /// Looks at every frame.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let failed = failed("reading the file");
        let file = File::open(path).map_err(&failed)?;
        let len = file.metadata().map_err(&failed)?.len();
        let (mut file, mut frame) = (BufReader::with_capacity(PIECE, file), [0; FRAME as usize]);
        let mut found = Self::default();
        for _ in 0..len / FRAME {
            file.read_exact(&mut frame).map_err(&failed)?;
            let (number, next) = (u64::from_le_bytes(frame), found.next);
            if number < next {
                return Err(Trouble::different(format!(
                    "frame {number} comes where {next} should"
                )));
            }
            let (count, lost) = (found.count + 1, found.lost + number - next);
            found = Self { count, lost, next: number + 1 };
        }
        if len % FRAME > 0 {
            let what = format!("the file ends within frame {}", found.next);
            return Err(Trouble::different(what));
        }
        Ok(found)
    }
}

/// A function that a host has enabled.
pub(super) fn open_usb(folder: Option<&Path>) -> Result<Function> {
    let unavailable = |why| Trouble::unavailable("a USB function", Os::NODEV, why);
    let mut function = Function::new(folder.ok_or_else(|| unavailable("no --usb FOLDER"))?)?;
    let token = CancelToken::new();
    let over = token.clone();
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        over.cancel();
    });
    let enabled = function.wait(&token)?;
    enabled.then_some(function).ok_or_else(|| unavailable("no host enables it"))
}

/// Whether the simulated host checks what it receives.
pub(super) fn set_sparse_host(sparse: bool) {
    let _ = fs::write(format!("{HOST}/sparse"), if sparse { "1" } else { "0" });
}

/// Wrong frames counted by that host.
pub(super) fn wrong_frames() -> Option<u64> {
    fs::read_to_string(format!("{HOST}/wrong_frames")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_frame_numbers_are_counted_and_repeated_ones_are_errors() {
        let numbers = |numbers: &[u64]| numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
        for (bytes, wanted) in [
            (Vec::new(), Ok((0, 0))),
            (numbers(&[0, 1, 2]), Ok((3, 0))),
            (numbers(&[2, 3, 9]), Ok((3, 7))),
            (numbers(&[0, 1, 1]), Err(Status::Different)),
            (numbers(&[5, 4]), Err(Status::Different)),
            (vec![0; 12], Err(Status::Different)),
        ] {
            let file = tempfile::NamedTempFile::new().expect("a file");
            fs::write(file.path(), bytes).expect("written");
            let found = Frames::of(file.path()).map(|it| (it.count, it.lost));
            assert_eq!(found.map_err(|trouble| trouble.status), wanted);
        }
    }
}
