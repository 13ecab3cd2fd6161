// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device of a capture or replay, set up as asked for, and blocks that suit it.

use dmabuf_dio_stream::{Channel, Device, Ring, frame_bytes};

use super::args::StreamArgs;
use crate::exit::{FAILED, Failure, USAGE};

const PAGE: u64 = 4096;
/// How far a rate may be from the one that was asked for.
const TOLERANCE: f64 = 0.01;
/// Bounds of a block whose size nobody chose, the part of a second that it has, and its size if the
/// device has no rate.
const BLOCK: (u64, u64) = (PAGE, 16 << 20);
const PART: f64 = 8.0;
const WITHOUT_RATE: u64 = 64 << 10;

/// A device, and what of it is used.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) device: Device,
    pub(crate) buffer: u32,
    pub(crate) channels: Vec<Channel>,
    /// Frames per second, if the device has a rate.
    pub(crate) rate: Option<f64>,
}

impl Chosen {
    /// Finds the device.
    pub(crate) fn find(name: &str, args: &StreamArgs) -> Result<Self, Failure> {
        let device = Device::find(name).ok_or_else(|| unknown(name))?;
        let channels = channels(&device, args)?;
        let mut chosen = Self { device, buffer: args.buffer, channels, rate: None };
        chosen.look_at_rate();
        Ok(chosen)
    }

    fn look_at_rate(&mut self) {
        self.rate = self.device.rate(self.buffer).filter(|rate| *rate > 0.0);
    }

    /// Sets the rate, and fails if the device then has another.
    pub(crate) fn set_rate(&mut self, wanted: f64) -> Result<(), Failure> {
        if self.device.rate(self.buffer) == Some(wanted) {
            return Ok(());
        }
        let rates = self.device.rates(self.buffer).map_or_else(
            || "the rate may be that of another device: iio_attr -c lists them".to_owned(),
            |rates| format!("it goes at: {rates}"),
        );
        if let Err(error) = self.device.set_rate(self.buffer, wanted) {
            return Err(Failure::new(FAILED, error.to_string(), rates));
        }
        self.look_at_rate();
        let got = self.rate.unwrap_or(0.0);
        if (got - wanted).abs() > wanted * TOLERANCE {
            let what = format!("{} goes at {got} in place of {wanted}", self.device.name());
            return Err(Failure::new(FAILED, what, rates));
        }
        Ok(())
    }

    /// Bytes of a frame.
    pub(crate) fn frame(&self) -> u64 {
        frame_bytes(&self.channels)
    }

    /// How many frames are asked for; `None` if time or somebody ends it.
    pub(crate) fn frames(&self, args: &StreamArgs) -> Option<u64> {
        args.samples.or_else(|| Some((args.seconds? * self.rate?).ceil() as u64))
    }

    /// Blocks of the size asked for, or of one that suits the rate.
    pub(crate) fn ring(&self, args: &StreamArgs) -> Result<Ring, Failure> {
        Ok(Ring::new(args.blocks, self.block(args)?)?)
    }

    /// Bytes of a block.
    pub(crate) fn block(&self, args: &StreamArgs) -> Result<u64, Failure> {
        let size = args.block.unwrap_or_else(|| suitable(self.frame(), self.rate));
        if size > 0 && !size.is_multiple_of(self.frame()) {
            let frame = self.frame();
            let near = size.next_multiple_of(whole(frame));
            return Err(Failure::new(
                USAGE,
                format!("--block {size} is no whole number of frames, which have {frame} bytes"),
                format!("choose a multiple, best of {PAGE} too: --block {near}"),
            ));
        }
        Ok(size)
    }

    /// As in «4 channels of cf-ad9361-lpc, frames of 8 bytes, 30720000 per second».
    pub(crate) fn describe(&self) -> String {
        let rate = self.rate.map_or_else(
            || "at no rate of its own".to_owned(),
            |rate| format!("{rate} per second"),
        );
        let names: Vec<_> = self.channels.iter().map(|channel| &*channel.name).collect();
        let names = names.join(", ");
        format!("{}: {names}; frames of {} bytes, {rate}", self.device.name(), self.frame())
    }
}

/// The smallest number of bytes that is a number of frames and of pages.
fn whole(frame: u64) -> u64 {
    let (mut a, mut b) = (frame.max(1), PAGE);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    frame.max(1) / a * PAGE
}

fn suitable(frame: u64, rate: Option<f64>) -> u64 {
    let (least, most) = BLOCK;
    let wanted = rate.map_or(WITHOUT_RATE, |rate| (rate * frame as f64 / PART) as u64);
    if wanted < least {
        // Whoever waits for so few does not mind how they are written.
        return (wanted / frame.max(1)).max(1) * frame.max(1);
    }
    (wanted.min(most) / whole(frame)).max(1) * whole(frame)
}

fn channels(device: &Device, args: &StreamArgs) -> Result<Vec<Channel>, Failure> {
    let all = device.channels(args.buffer)?;
    if args.channels.is_empty() {
        let is_sample = |channel: &Channel| !channel.name.ends_with("timestamp");
        let samples: Vec<_> = all.into_iter().filter(is_sample).collect();
        if samples.is_empty() {
            let what = format!("{} has no samples in buffer {}", device.name(), args.buffer);
            return Err(Failure::new(FAILED, what, "choose another: --buffer NUMBER"));
        }
        return Ok(samples);
    }
    let short = |name: &str| {
        name.strip_prefix("in_").or(name.strip_prefix("out_")).unwrap_or(name).to_owned()
    };
    for wanted in &args.channels {
        if !all.iter().any(|channel| channel.name == *wanted || short(&channel.name) == *wanted) {
            let names: Vec<_> = all.iter().map(|channel| short(&channel.name)).collect();
            return Err(Failure::new(
                USAGE,
                format!("{} has no channel {wanted}", device.name()),
                format!("choose of these: --channels {}", names.join(",")),
            ));
        }
    }
    let wanted = |channel: &Channel| {
        args.channels.iter().any(|name| channel.name == *name || short(&channel.name) == *name)
    };
    Ok(all.into_iter().filter(wanted).collect())
}

fn unknown(name: &str) -> Failure {
    let names: Vec<_> = Device::all().iter().map(|device| device.name().to_owned()).collect();
    let hint = if names.is_empty() {
        "there is none: see that its driver is loaded (ls /sys/bus/iio/devices)".to_owned()
    } else {
        format!("there are: {}", names.join(", "))
    };
    Failure::new(FAILED, format!("there is no IIO device {name}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_frames_and_pages() {
        assert_eq!((whole(8), whole(24), whole(1), whole(10_000)), (4096, 12_288, 4096, 2_560_000));
        assert_eq!(suitable(8, None), 64 << 10);
        assert_eq!(suitable(8, Some(1e9)), 16 << 20);
        assert_eq!(suitable(8, Some(1e6)), 999_424);
        assert_eq!((suitable(8, Some(1.0)), suitable(8, Some(100.0))), (8, 96));
        assert_eq!(suitable(24, Some(1000.0)), 3000);
        assert_eq!(suitable(24, Some(2000.0)), 12_288);
    }
}
