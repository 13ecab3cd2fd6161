// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats of video frames.

use std::fmt;
use std::str::FromStr;

use dmabuf_dio_sys::v4l2::{FIELD_NONE, Format, FourCc};

/// A pixel format of V4L2, four characters: `NV12`, `YUYV`, `MJPG`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PixelFormat(pub(super) FourCc);

/// This bit in its last character makes a format big-endian: `Y16 -BE`.
const BIG_ENDIAN: FourCc = 1 << 31;

impl fmt::Display for PixelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = (self.0 & !BIG_ENDIAN).to_le_bytes();
        write!(f, "{}", String::from_utf8_lossy(&name).trim_end())?;
        if self.0 & BIG_ENDIAN == 0 { Ok(()) } else { f.write_str("-BE") }
    }
}

impl fmt::Debug for PixelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PixelFormat {
    type Err = String;

    /// Takes the characters in either case: `nv12`. `MJPEG` is another name of `MJPG`.
    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.to_ascii_uppercase();
        let (name, order) = match upper.strip_suffix("-BE") {
            Some(name) => (name.trim_end(), BIG_ENDIAN),
            None => (&*upper, 0),
        };
        let name = if name == "MJPEG" { "MJPG" } else { name };
        if name.is_empty() || name.len() > 4 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{text:?} is not a pixel format: write NV12, YUYV or MJPG"));
        }
        let mut code = [b' '; 4];
        code[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self(u32::from_le_bytes(code) | order))
    }
}

impl PixelFormat {
    /// Whether two are the same except for the case of their letters: `pRAA` and `PRAA`.
    pub(super) fn is_like(self, other: Self) -> bool {
        self.0.to_le_bytes().eq_ignore_ascii_case(&other.0.to_le_bytes())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for PixelFormat {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The frames of a capture device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct VideoFormat {
    /// The pixel format.
    pub pixel_format: PixelFormat,
    /// Pixels in a line.
    pub width: u32,
    /// Lines.
    pub height: u32,
    /// Bytes from one line to the next; 0 if the format has no lines. Lines may be longer than their
    /// pixels.
    pub stride: u32,
    /// Bytes of a frame; the maximum, if `compressed`.
    pub frame_bytes: u32,
    /// Whether frames are compressed, and so differ in length.
    pub compressed: bool,
    /// Whether a frame contains the lines of two fields, captured at different times.
    pub interlaced: bool,
    /// Colour space, `enum v4l2_colorspace`: 8 is sRGB, 3 Rec. 709, 1 SMPTE 170M.
    pub colorspace: u32,
    /// Range of the values, `enum v4l2_quantization`: 0 the colour space's, 1 full, 2 limited.
    pub quantization: u32,
}

impl VideoFormat {
    /// With the number of buffers that a frame has.
    pub(super) fn of(format: &Format, compressed: bool) -> (Self, u32) {
        match format {
            Format::Single(pix) => {
                let all = Self {
                    pixel_format: PixelFormat(pix.pixelformat),
                    width: pix.width,
                    height: pix.height,
                    stride: pix.bytesperline,
                    frame_bytes: pix.sizeimage,
                    compressed,
                    interlaced: pix.field > FIELD_NONE,
                    colorspace: pix.colorspace,
                    quantization: pix.quantization,
                };
                (all, 1)
            }
            Format::Multi(pix) => {
                let plane = pix.plane_fmt[0];
                let all = Self {
                    pixel_format: PixelFormat(pix.pixelformat),
                    width: pix.width,
                    height: pix.height,
                    stride: plane.bytesperline,
                    frame_bytes: plane.sizeimage,
                    compressed,
                    interlaced: pix.field > FIELD_NONE,
                    colorspace: pix.colorspace,
                    quantization: pix.quantization.into(),
                };
                (all, pix.num_planes.into())
            }
        }
    }
}

impl fmt::Display for VideoFormat {
    /// For example `NV12 1920x1080`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interlaced = if self.interlaced { ", interlaced" } else { "" };
        write!(f, "{} {}x{}{interlaced}", self.pixel_format, self.width, self.height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixel_format_names_are_parsed() {
        let code = |text: &[u8; 4]| PixelFormat(u32::from_le_bytes(*text));
        let of = |text: &str| text.parse::<PixelFormat>();
        assert_eq!(of("nv12"), Ok(code(b"NV12")));
        assert_eq!(of("MJPEG"), Ok(code(b"MJPG")));
        assert_eq!(of("Y16"), Ok(code(b"Y16 ")));
        let big = PixelFormat(u32::from_le_bytes(*b"Y16 ") | BIG_ENDIAN);
        assert_eq!(of("y16-be"), Ok(big));
        for (format, name) in [(code(b"NV12"), "NV12"), (code(b"Y16 "), "Y16"), (big, "Y16-BE")] {
            assert_eq!(format.to_string(), name);
        }
        for bad in ["", "NV12X", "-BE", "N 2", "é"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert!(code(b"pRAA").is_like(code(b"PRAA")) && !code(b"NV12").is_like(code(b"NV21")));
    }
}
