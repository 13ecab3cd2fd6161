// SPDX-License-Identifier: MIT OR Apache-2.0
//! How other programs read a file of frames.

use dmabuf_dio_stream::VideoFormat;

/// Formats, with their names in ffmpeg and bits per pixel.
const RAW: [(&str, &str, u64); 21] = [
    ("YUYV", "yuyv422", 16),
    ("UYVY", "uyvy422", 16),
    ("YVYU", "yvyu422", 16),
    ("NV12", "nv12", 12),
    ("NV21", "nv21", 12),
    ("NV16", "nv16", 16),
    ("NV24", "nv24", 24),
    ("P010", "p010le", 24),
    ("YU12", "yuv420p", 12),
    ("422P", "yuv422p", 16),
    ("GREY", "gray", 8),
    ("Y16", "gray16le", 16),
    ("RGB3", "rgb24", 24),
    ("BGR3", "bgr24", 24),
    ("RGBP", "rgb565le", 16),
    ("XR24", "bgr0", 32),
    ("AR24", "bgra", 32),
    ("BA81", "bayer_bggr8", 8),
    ("GBRG", "bayer_gbrg8", 8),
    ("GRBG", "bayer_grbg8", 8),
    ("RGGB", "bayer_rggb8", 8),
];

/// Compressed formats, with their names in ffmpeg.
const COMPRESSED: [(&str, &str); 5] = [
    ("MJPG", "mjpeg"),
    ("JPEG", "mjpeg"),
    ("H264", "h264"),
    ("HEVC", "hevc"),
    ("MPG2", "mpegvideo"),
];

/// Options of ffmpeg and ffplay for a file of such frames; `None` if they do not support the format,
/// or if lines are padded.
pub(super) fn ffmpeg_options(format: &VideoFormat, rate: Option<f64>) -> Option<String> {
    let code = format.pixel_format.to_string();
    let rate = rate.map_or_else(String::new, |rate| format!(" -framerate {rate}"));
    if let Some((_, name)) = COMPRESSED.iter().find(|(ours, _)| *ours == code) {
        return Some(format!("-f {name}{rate}"));
    }
    let (_, name, bits) = RAW.iter().find(|(ours, ..)| *ours == code)?;
    let VideoFormat { width, height, frame_bytes, .. } = *format;
    let is_tight = u64::from(width) * u64::from(height) * bits == u64::from(frame_bytes) * 8;
    is_tight.then(|| format!("-f rawvideo -pixel_format {name} -video_size {width}x{height}{rate}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ffmpeg_options_match_the_video_format() {
        let mut format = VideoFormat {
            pixel_format: "NV12".parse().expect("a format"),
            width: 320,
            height: 180,
            stride: 320,
            frame_bytes: 86_400,
            compressed: false,
            interlaced: false,
            colorspace: 8,
            quantization: 0,
        };
        let nv12 = "-f rawvideo -pixel_format nv12 -video_size 320x180";
        assert_eq!(ffmpeg_options(&format, None).as_deref(), Some(nv12));
        format.frame_bytes += 4096;
        assert_eq!(ffmpeg_options(&format, None), None, "padded");
        format.pixel_format = "MJPG".parse().expect("a format");
        format.compressed = true;
        assert_eq!(ffmpeg_options(&format, Some(30.0)).as_deref(), Some("-f mjpeg -framerate 30"));
    }
}
