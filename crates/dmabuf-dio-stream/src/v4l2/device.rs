// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture devices of V4L2, and their formats.

use std::fmt;
use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use dmabuf_dio::Errno;
use dmabuf_dio_sys::v4l2::{self, Capability, Format, Fraction, PixFormat, PixFormatMplane};

use super::format::{PixelFormat, VideoFormat};
use crate::error::{Error, Result, failed};
use crate::iio::facts::DmaBufs;
use crate::numbered::numbered;

/// Maximum number of formats, and of sizes per format, that are listed.
const MOST: u32 = 256;
/// Accepted relative difference from the requested rate.
const TOLERANCE: f64 = 0.01;

/// An open capture device of V4L2: `/dev/video0`.
#[derive(Debug)]
pub struct VideoDevice {
    fd: OwnedFd,
    node: PathBuf,
    name: String,
    driver: String,
    bus: String,
    /// The type of its queue.
    pub(super) kind: u32,
}

/// A frame size, or a range of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FrameSizes {
    /// Smallest width and height in pixels.
    pub least: (u32, u32),
    /// Largest width and height in pixels: as `least`, if there is one size.
    pub most: (u32, u32),
}

impl fmt::Display for FrameSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((width, height), (most_width, most_height)) = (self.least, self.most);
        write!(f, "{width}x{height}")?;
        if self.least == self.most {
            return Ok(());
        }
        write!(f, " to {most_width}x{most_height}")
    }
}

/// A pixel format that a device offers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct OfferedFormat {
    /// The format.
    pub pixel_format: PixelFormat,
    /// For people.
    pub description: String,
    /// Whether frames are compressed.
    pub compressed: bool,
    /// The frame sizes, if the driver lists them.
    pub sizes: Vec<FrameSizes>,
}

/// The current state of a capture device.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct VideoFacts {
    /// Its node in `/dev`.
    pub node: PathBuf,
    /// Its name; empty if it could not be opened.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// The connection of the device, such as a USB port.
    pub bus: String,
    /// Whether its queue is multi-planar.
    pub multi_planar: bool,
    /// The current format; `None` if a frame has several buffers, or none is set.
    pub format: Option<VideoFormat>,
    /// Frames per second, if the device reports them.
    pub rate: Option<f64>,
    /// The formats that it offers.
    pub formats: Vec<OfferedFormat>,
    /// Whether the device can import dma-bufs for frames: not with `EINVAL`; unknown with `EBUSY`,
    /// because another program uses the device.
    pub dma_bufs: DmaBufs,
}

impl VideoFacts {
    /// All capture devices, by number. Devices that this user may not open have no name.
    pub fn all() -> Vec<Self> {
        nodes().into_iter().filter_map(|node| Self::of(&node)).collect()
    }

    /// `None` if it is no capture device.
    fn of(node: &Path) -> Option<Self> {
        let device = match VideoDevice::open(node) {
            Ok(device) => device,
            Err(Error::Stream { errno, .. }) if errno != Errno::NOTTY => {
                return Some(Self {
                    node: node.into(),
                    name: String::new(),
                    driver: String::new(),
                    bus: String::new(),
                    multi_planar: false,
                    format: None,
                    rate: None,
                    formats: Vec::new(),
                    dma_bufs: DmaBufs::Unknown(errno),
                });
            }
            Err(_) => return None,
        };
        Some(Self {
            node: node.into(),
            name: device.name.clone(),
            driver: device.driver.clone(),
            bus: device.bus.clone(),
            multi_planar: device.kind == v4l2::CAPTURE_MPLANE,
            format: device.format().ok(),
            rate: device.rate(),
            formats: device.formats(),
            dma_bufs: device.dma_bufs(),
        })
    }
}

/// The nodes of video devices, by number.
fn nodes() -> Vec<PathBuf> {
    let numbers = numbered(Path::new("/sys/class/video4linux"), "video");
    numbers.into_iter().map(|number| format!("/dev/video{number}").into()).collect()
}

/// Text with a 0 at its end.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn per_second(time: Fraction) -> Option<f64> {
    let known = time.numerator > 0 && time.denominator > 0;
    known.then(|| f64::from(time.denominator) / f64::from(time.numerator))
}

/// The time per frame of a rate: whole or a thousandth less (29.97 is 1001/30000).
fn time_of(rate: f64) -> Fraction {
    let thousand = (rate * 1000.0).round();
    let whole = (rate * 1001.0 / 1000.0).round();
    if (whole * 1000.0 / 1001.0 - rate).abs() < 0.005 && rate.fract() != 0.0 {
        return Fraction { numerator: 1001, denominator: (whole * 1000.0) as u32 };
    }
    if rate.fract() == 0.0 {
        return Fraction { numerator: 1, denominator: rate as u32 };
    }
    Fraction { numerator: 1000, denominator: thousand as u32 }
}

impl VideoDevice {
    /// Opens a device.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`]: `EACCES`, `ENOENT`, `ENODEV`; `ENOTTY` if it is not a capture device with
    /// queues.
    pub fn open(node: impl Into<PathBuf>) -> Result<Self> {
        let node = node.into();
        let path = node.display().to_string();
        let fd = v4l2::open(&path).map_err(|errno| failed(&path, "open", errno))?;
        let Capability { driver, card, bus_info, capabilities, device_caps, .. } =
            v4l2::capability(fd.as_fd()).map_err(|errno| failed(&path, "capture frames", errno))?;
        let caps =
            if capabilities & v4l2::CAP_DEVICE_CAPS == 0 { capabilities } else { device_caps };
        let kind = match caps {
            _ if caps & v4l2::CAP_STREAMING == 0 => None,
            _ if caps & v4l2::CAP_CAPTURE != 0 => Some(v4l2::CAPTURE),
            _ if caps & v4l2::CAP_CAPTURE_MPLANE != 0 => Some(v4l2::CAPTURE_MPLANE),
            _ => None,
        };
        let kind = kind.ok_or_else(|| failed(&path, "capture frames", Errno::NOTTY))?;
        let (name, driver, bus) = (text(&card), text(&driver), text(&bus_info));
        Ok(Self { fd, node, name, driver, bus, kind })
    }

    /// The node of the capture device of this name: a path (`/dev/video0`, `/dev/v4l/by-id/...`), a
    /// node without its folder (`video0`), or the name that the device reports. Of several, the first:
    /// see [`matching`](Self::matching).
    pub fn find(name: &str) -> Option<PathBuf> {
        Self::matching(name).into_iter().next()
    }

    /// The nodes of all capture devices that report this name; only the one of this path, if there is
    /// one.
    pub fn matching(name: &str) -> Vec<PathBuf> {
        let all = nodes();
        let same = |node: &PathBuf| {
            node.file_name().is_some_and(|file| file == name)
                || fs::canonicalize(name).is_ok_and(|path| path == *node)
        };
        if let Some(node) = all.iter().find(|node| same(node)) {
            return vec![node.clone()];
        }
        let reports = |node: &PathBuf| VideoDevice::open(node).is_ok_and(|one| one.name == name);
        all.into_iter().filter(reports).collect()
    }

    /// Its node in `/dev`.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// The name that it reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn failed(&self, call: impl Into<String>, errno: Errno) -> Error {
        failed(&self.node.display().to_string(), call, errno)
    }

    pub(super) fn refused(&self, what: impl Into<String>, hint: impl Into<String>) -> Error {
        let device = self.node.display().to_string();
        Error::Video { device, what: what.into(), hint: hint.into() }
    }

    fn raw_format(&self) -> Result<Format> {
        v4l2::format(self.fd(), self.kind).map_err(|errno| self.failed("read its format", errno))
    }

    /// The current format.
    ///
    /// # Errors
    ///
    /// [`Error::Video`] if a frame has several buffers, which a stream does not support.
    /// [`Error::Stream`].
    pub fn format(&self) -> Result<VideoFormat> {
        self.describe(&self.raw_format()?)
    }

    fn describe(&self, format: &Format) -> Result<VideoFormat> {
        let offered = self.offered();
        let is_compressed = |code: u32| {
            let one = offered.iter().find(|one| one.pixelformat == code);
            one.is_some_and(|one| one.flags & v4l2::FORMAT_COMPRESSED != 0)
        };
        let code = match format {
            Format::Single(pix) => pix.pixelformat,
            Format::Multi(pix) => pix.pixelformat,
        };
        let (all, buffers) = VideoFormat::of(format, is_compressed(code));
        if buffers != 1 {
            let what = format!("a frame of {all} has {buffers} buffers, one for each plane");
            let hint = "choose a format with all planes in one: --pixel-format NV12, for example";
            return Err(self.refused(what, hint));
        }
        if all.frame_bytes == 0 {
            return Err(self.refused("no format is set", "choose one: --pixel-format, --size"));
        }
        Ok(all)
    }

    /// Sets the format; `None` leaves a setting unchanged. The device keeps the format after it is
    /// closed.
    ///
    /// # Errors
    ///
    /// [`Error::Video`] if the device does not offer that, or a frame has several buffers: the former
    /// format is put back then. [`Error::Stream`] with `EBUSY` if another program captures.
    pub fn set_format(
        &self,
        pixel_format: Option<PixelFormat>,
        size: Option<(u32, u32)>,
    ) -> Result<VideoFormat> {
        let before = self.raw_format()?;
        if pixel_format.is_none() && size.is_none() {
            return self.describe(&before);
        }
        let code = pixel_format.map(|wanted| {
            let like = self.offered().into_iter().map(|one| PixelFormat(one.pixelformat));
            let mut like: Vec<_> = like.filter(|one| wanted.is_like(*one)).collect();
            if like.contains(&wanted) { wanted } else { like.pop().unwrap_or(wanted) }
        });
        // The driver chooses the lengths and colours of a new format.
        let (now_size, now, field) = match &before {
            Format::Single(now) => ((now.width, now.height), now.pixelformat, now.field),
            Format::Multi(now) => ((now.width, now.height), now.pixelformat, now.field),
        };
        let ((width, height), private) = (size.unwrap_or(now_size), PixFormat::MAGIC);
        let pixelformat = code.map_or(now, |code| code.0);
        let wanted = match before {
            Format::Single(_) => {
                let other = PixFormat::default();
                Format::Single(PixFormat { width, height, pixelformat, field, private, ..other })
            }
            Format::Multi(_) => {
                let other = PixFormatMplane::default();
                Format::Multi(PixFormatMplane { width, height, pixelformat, field, ..other })
            }
        };
        let got = v4l2::set_format(self.fd(), wanted)
            .map_err(|errno| self.failed("set its format", errno))?;
        let checked = self.describe(&got).and_then(|got| self.check(got, code, size).map(|()| got));
        if checked.is_err() {
            let _ = v4l2::set_format(self.fd(), before);
        }
        checked
    }

    /// Fails if the driver has set something else.
    fn check(
        &self,
        got: VideoFormat,
        code: Option<PixelFormat>,
        size: Option<(u32, u32)>,
    ) -> Result<()> {
        if let Some(code) = code.filter(|code| *code != got.pixel_format) {
            let names =
                self.offered().into_iter().map(|one| PixelFormat(one.pixelformat).to_string());
            let hint = format!("choose from these: {}", names.collect::<Vec<_>>().join(", "));
            return Err(self.refused(format!("it does not offer the pixel format {code}"), hint));
        }
        let Some((width, height)) = size.filter(|size| *size != (got.width, got.height)) else {
            return Ok(());
        };
        let sizes = self.sizes(got.pixel_format);
        let hint = if sizes.is_empty() {
            format!("the nearest is --size {}x{}", got.width, got.height)
        } else {
            let names: Vec<_> = sizes.iter().map(ToString::to_string).collect();
            format!("choose from these: {}", names.join(", "))
        };
        let what = format!("it does not offer {width}x{height} as {}", got.pixel_format);
        Err(self.refused(what, hint))
    }

    fn offered(&self) -> Vec<v4l2::FormatDescription> {
        let describe = |index| v4l2::describe_format(self.fd(), self.kind, index);
        (0..MOST).map_while(|index| describe(index).ok()).collect()
    }

    fn sizes(&self, format: PixelFormat) -> Vec<FrameSizes> {
        let size = |index| v4l2::frame_size(self.fd(), format.0, index).ok();
        let all = (0..MOST).map_while(size);
        all.map(|one| match (one.kind, one.size) {
            (1, [width, height, ..]) => {
                FrameSizes { least: (width, height), most: (width, height) }
            }
            (_, [width, most_width, _, height, most_height, _]) => {
                FrameSizes { least: (width, height), most: (most_width, most_height) }
            }
        })
        .collect()
    }

    /// The formats that it offers.
    pub fn formats(&self) -> Vec<OfferedFormat> {
        let one = |one: v4l2::FormatDescription| OfferedFormat {
            pixel_format: PixelFormat(one.pixelformat),
            description: text(&one.description),
            compressed: one.flags & v4l2::FORMAT_COMPRESSED != 0,
            sizes: self.sizes(PixelFormat(one.pixelformat)),
        };
        self.offered().into_iter().map(one).collect()
    }

    /// Frames per second, if the device reports them. A camera may be slower in the dark.
    pub fn rate(&self) -> Option<f64> {
        per_second(v4l2::parameters(self.fd(), self.kind).ok()?.timeperframe)
    }

    /// Sets the frames per second. Returns the rate that the device chose.
    ///
    /// # Errors
    ///
    /// [`Error::Video`] if it differs by more than a hundredth, or the device has a fixed rate: the
    /// former rate is put back then. [`Error::Stream`].
    pub fn set_rate(&self, rate: f64) -> Result<f64> {
        let fixed = || {
            let now = self.rate().map_or_else(String::new, |rate| format!(", {rate} per second"));
            self.refused(format!("its rate cannot be set{now}"), "leave out --fps")
        };
        let before = v4l2::parameters(self.fd(), self.kind).map_err(|_| fixed())?;
        if before.capability & v4l2::PARM_TIME_PER_FRAME == 0 {
            return Err(fixed());
        }
        let timeperframe = time_of(rate);
        let wanted = v4l2::CaptureParameters { timeperframe, ..before };
        let got = v4l2::set_parameters(self.fd(), self.kind, wanted)
            .map_err(|errno| self.failed("set its rate", errno))?;
        match per_second(got.timeperframe) {
            Some(got) if (got - rate).abs() <= rate * TOLERANCE => Ok(got),
            got => {
                let _ = v4l2::set_parameters(self.fd(), self.kind, before);
                let got = got.map_or_else(|| "another".into(), |rate| rate.to_string());
                let what = format!("it does not offer {rate} frames per second at this size");
                Err(self.refused(what, format!("the nearest is --fps {got}; or change --size")))
            }
        }
    }

    /// Whether it imports dma-bufs. Requests zero buffers, which changes nothing.
    fn dma_bufs(&self) -> DmaBufs {
        match v4l2::request_buffers(self.fd(), self.kind, v4l2::MEMORY_DMABUF, 0) {
            Ok(_) => DmaBufs::Yes,
            Err(errno @ (Errno::INVAL | Errno::NOTTY)) => DmaBufs::No(errno),
            Err(errno) => DmaBufs::Unknown(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_convert_from_time_per_frame() {
        for (rate, numerator, denominator) in [
            (30.0, 1, 30),
            (29.97, 1001, 30_000),
            (59.94, 1001, 60_000),
            (7.5, 1000, 7500),
            (12.5, 1000, 12_500),
            (0.5, 1000, 500),
        ] {
            assert_eq!(time_of(rate), Fraction { numerator, denominator }, "{rate}");
        }
        assert_eq!(per_second(Fraction { numerator: 0, denominator: 30 }), None);
        assert_eq!(per_second(Fraction { numerator: 2, denominator: 25 }), Some(12.5));
    }

    #[test]
    fn other_files_are_no_capture_device() {
        for (path, errno) in [("/dev/null", Errno::NOTTY), ("/dev/video-none", Errno::NOENT)] {
            let error = VideoDevice::open(path).expect_err("no device");
            assert_eq!(error.errno(), Some(errno), "{path}");
        }
        assert_eq!(VideoDevice::find("/dev/null"), None);
        assert_eq!(VideoDevice::find("video-none"), None);
    }

    #[test]
    fn names_end_at_the_first_zero() {
        assert_eq!((text(b"vivid\0\0x"), text(b"full")), ("vivid".into(), "full".into()));
    }
}
