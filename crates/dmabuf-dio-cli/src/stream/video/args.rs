// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `dmabuf-dio capture` for video devices.

use clap::Args;
use dmabuf_dio_stream::PixelFormat;
use dmabuf_dio_terminal::exit::{Failure, USAGE};
use dmabuf_dio_terminal::size::{parse_count, parse_rate};

use crate::stream::args::CaptureArgs;

/// Options for video devices.
#[derive(Debug, Args)]
#[command(next_help_heading = "Video devices")]
pub(crate) struct VideoArgs {
    /// Stop after this many frames
    #[arg(long, value_name = "NUMBER", value_parser = parse_count, conflicts_with_all = ["seconds", "samples"])]
    pub(crate) frames: Option<u64>,
    /// Width and height of a frame: 1920x1080 [default: the device's setting]
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_frame_size)]
    pub(crate) size: Option<(u32, u32)>,
    /// Pixel format: NV12, YUYV, MJPG [default: the device's setting]
    #[arg(long, value_name = "FOURCC")]
    pub(crate) pixel_format: Option<PixelFormat>,
    /// Frames per second: 30, 29.97 [default: the device's setting]
    #[arg(long, value_name = "NUMBER", value_parser = parse_fps)]
    pub(crate) fps: Option<f64>,
}

fn parse_frame_size(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
    let size = text.split_once(['x', 'X']);
    size.and_then(|(width, height)| Some((number(width)?, number(height)?)))
        .ok_or_else(|| format!("{text:?} is not a frame size: write 1920x1080"))
}

fn parse_fps(text: &str) -> Result<f64, String> {
    let rate = parse_rate(text).ok().filter(|rate| (0.01..=1e6).contains(rate));
    rate.ok_or_else(|| format!("{text:?} is not a number of frames per second: write 30 or 29.97"))
}

/// The first of some options that was given.
fn first(options: &[(&'static str, bool)]) -> Option<&'static str> {
    options.iter().find(|(_, given)| *given).map(|(name, _)| *name)
}

/// Fails if an option was given that has no meaning for a video device.
pub(super) fn refuse_iio(args: &CaptureArgs) -> Result<(), Failure> {
    let common = &args.common;
    if common.samples.is_some() {
        return Err(Failure::new(
            USAGE,
            "--samples counts samples of IIO devices",
            "write --frames",
        ));
    }
    if common.rate.is_some() {
        return Err(Failure::new(USAGE, "--rate is for IIO devices", "write --fps"));
    }
    let option = first(&[
        ("--channels", !common.channels.is_empty()),
        ("--set", !common.setup.set.is_empty()),
        ("--trigger", common.setup.trigger.is_some()),
        ("--restore", common.setup.restore),
        ("--block-size", common.block_size.is_some()),
        ("--buffer", common.buffer != 0),
        ("--format", args.format.is_some()),
        ("--iq", args.iq),
        ("--frequency", args.frequency.is_some()),
        ("--rotate", args.rotate.is_some()),
    ]);
    let Some(option) = option else { return Ok(()) };
    let hint = match option {
        "--format" => "write --pixel-format",
        "--set" | "--restore" => "leave it out; v4l2-ctl sets a device's controls",
        _ => "leave it out",
    };
    let what = format!("{option} is for IIO devices, and {} is a video device", args.device);
    Err(Failure::new(USAGE, what, hint))
}

/// Fails if an option was given that has a meaning for video devices only.
pub(crate) fn refuse_video(args: &CaptureArgs) -> Result<(), Failure> {
    let VideoArgs { frames, size, pixel_format, fps } = &args.video;
    let option = first(&[
        ("--frames", frames.is_some()),
        ("--size", size.is_some()),
        ("--pixel-format", pixel_format.is_some()),
        ("--fps", fps.is_some()),
    ]);
    let Some(option) = option else { return Ok(()) };
    let hint = match option {
        "--frames" => "write --samples",
        "--fps" => "write --rate",
        _ => "leave it out, or name a video device: /dev/video0",
    };
    let what = format!("{option} is for video devices, and {} is not one", args.device);
    Err(Failure::new(USAGE, what, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_sizes_and_rates_are_parsed() {
        assert_eq!(parse_frame_size("1920x1080"), Ok((1920, 1080)));
        assert_eq!(parse_frame_size("640X480"), Ok((640, 480)));
        for bad in ["", "x", "640", "640x", "0x480", "640x480x3", "-1x2", "4294967296x1"] {
            assert!(parse_frame_size(bad).is_err(), "{bad}");
        }
        assert_eq!((parse_fps("30"), parse_fps("29.97")), (Ok(30.0), Ok(29.97)));
        for bad in ["", "0", "-1", "x", "inf"] {
            assert!(parse_fps(bad).is_err(), "{bad}");
        }
    }
}
