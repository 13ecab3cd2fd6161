// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `dmabuf-dio video`.

use clap::Args;
use dmabuf_dio_stream::PixelFormat;
use dmabuf_dio_terminal::size::parse_count;

use super::destination::DestinationArgs;
use super::streams::{EXIT_CODES, ReportArgs, RingArgs};
use super::values::{parse_fps, parse_frame_size, parse_seconds};

/// Capture frames of a video device (V4L2) to a file, the network or USB, without CPU copies
#[derive(Debug, Args)]
#[command(after_help = "\
TO is a file, - or a FIFO, tcp://HOST:PORT, unix:PATH, ffs:FOLDER (USB), or none.

Examples:
  dmabuf-dio video /dev/video0 --to frames.raw --frames 300
  dmabuf-dio video /dev/video0 --pixel-format MJPG --to - | ffplay -f mjpeg -

--help shows all options, what is written, and the exit codes.")]
#[command(after_long_help = format!("\
TO is as for `dmabuf-dio capture`: a file, - or a FIFO, tcp://HOST:PORT, tcp-listen://[HOST]:PORT,
unix:PATH, unix-listen:PATH, ffs:FOLDER, or none.

A block holds one frame, and the file contains one frame after the other. FILE.json describes them:
format, numbers and times of frames, and which are missing. Damaged frames are omitted and counted.
Settings remain after the end; v4l2-ctl sets a device's controls.

Examples:
  dmabuf-dio video /dev/video0 --to frames.raw --frames 300 --size 1920x1080 --pixel-format NV12 --fps 30
  dmabuf-dio video /dev/video0 --to frames.raw --seconds 10
  dmabuf-dio video /dev/video0 --pixel-format MJPG --to - | ffplay -f mjpeg -
  dmabuf-dio video /dev/video0 --to tcp-listen://:5000 --report video.json

{EXIT_CODES}"))]
pub(crate) struct VideoArgs {
    /// Node or name of the device: /dev/video0; `dmabuf-dio devices` lists them
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) destination: DestinationArgs,
    /// Stop after this many frames
    #[arg(long, value_name = "NUMBER", value_parser = parse_count, conflicts_with = "seconds")]
    pub(crate) frames: Option<u64>,
    /// Stop after this time, by the times of the frames
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) seconds: Option<f64>,
    /// Width and height of a frame: 1920x1080 [default: the device's setting]
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_frame_size)]
    pub(crate) size: Option<(u32, u32)>,
    /// Pixel format: NV12, YUYV, MJPG [default: the device's setting]
    #[arg(long, value_name = "FOURCC")]
    pub(crate) pixel_format: Option<PixelFormat>,
    /// Frames per second: 30, 29.97 [default: the device's setting]
    #[arg(long, value_name = "NUMBER", value_parser = parse_fps)]
    pub(crate) fps: Option<f64>,
    #[command(flatten)]
    pub(crate) ring: RingArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}
