// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device of a capture or replay with its settings, and the block size for it.

use dmabuf_dio_stream::{BlockRing, Channel, Device, frame_bytes};
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE, say};

use super::ring::{both_whole, numbers, page_size, suitable, whole};
use super::setup::Setup;
use crate::args::streams::StreamArgs;
use crate::devices::find;

/// Accepted relative difference from the requested rate.
const TOLERANCE: f64 = 0.01;
/// A device, and the buffer and channels in use.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) device: Device,
    pub(crate) buffer: u32,
    pub(crate) channels: Vec<Channel>,
    /// Frames per second, if the device has a rate.
    pub(crate) rate: Option<f64>,
    /// Bytes of a frame at the other end, if samples are converted.
    pub(crate) other_frame: Option<u64>,
    /// The rate to restore if the stream does not start.
    before: Option<f64>,
    pub(crate) setup: Setup,
    /// Put the rate back at the end.
    restore: bool,
}

impl Drop for Chosen {
    fn drop(&mut self) {
        // Its message names the settings that could not be restored.
        let _ = self.put_back();
    }
}

impl Chosen {
    /// Finds the device.
    pub(crate) fn find(name: &str, args: &StreamArgs) -> Result<Self, Failure> {
        let device = find::iio(name)?;
        let channels = channels(&device, args)?;
        let setup = Setup::check(&args.setup, &device, args.buffer)?;
        let mut chosen = Self {
            device,
            buffer: args.buffer,
            channels,
            rate: None,
            other_frame: None,
            before: None,
            setup,
            restore: args.setup.restore,
        };
        chosen.look_at_rate();
        Ok(chosen)
    }

    fn look_at_rate(&mut self) {
        self.rate = self.device.rate(self.buffer).filter(|rate| *rate > 0.0);
    }

    /// Sets attributes and the trigger, which may change the rate, and then the rate, until this is
    /// dropped or [kept](Self::keep).
    pub(crate) fn set_up(&mut self, args: &StreamArgs) -> Result<(), Failure> {
        self.setup.apply(&self.device, args.report.quiet)?;
        self.look_at_rate();
        args.rate.map_or(Ok(()), |rate| self.set_rate(rate))
    }

    /// Sets the rate, until this is dropped or [kept](Self::keep). Fails if the device then has
    /// another rate, and restores the former one.
    pub(crate) fn set_rate(&mut self, wanted: f64) -> Result<(), Failure> {
        let before = self.device.rate(self.buffer);
        if before == Some(wanted) {
            return Ok(());
        }
        self.before = self.before.or(before);
        let result = self.try_rate(wanted);
        if result.is_err() {
            // It says so if that fails.
            let _ = self.restore_rate();
        }
        result
    }

    /// Keeps the settings, because the device was used with them, unless `--restore` is given.
    pub(crate) fn keep(&mut self) {
        if !self.restore {
            self.before = None;
        }
        self.setup.keep();
    }

    /// Restores the settings that are not kept, once the device is stopped.
    pub(crate) fn put_back(&mut self) -> Result<(), Failure> {
        let rate = self.restore_rate();
        let others = self.setup.put_back(&self.device, self.buffer);
        rate.and(others)
    }

    /// Sets the rate that the device had.
    fn restore_rate(&mut self) -> Result<(), Failure> {
        let Some(rate) = self.before.take() else { return Ok(()) };
        let result = self.device.set_rate(self.buffer, rate);
        if let Err(error) = &result {
            say(&format!("dmabuf-dio: the rate was {rate}, and is not restored: {error}"));
        }
        self.look_at_rate();
        Ok(result?)
    }

    fn try_rate(&mut self, wanted: f64) -> Result<(), Failure> {
        let rates = self.device.rates(self.buffer).map_or_else(
            || "the rate may belong to another device: iio_attr -c lists them".to_owned(),
            |rates| format!("supported rates: {rates}"),
        );
        // Most drivers take whole numbers only.
        let set = match self.device.set_rate(self.buffer, wanted) {
            Err(_) if wanted.fract() != 0.0 && wanted >= 1.0 => {
                let whole = wanted.round();
                self.device.set_rate(self.buffer, whole).inspect(|()| {
                    say(&format!("dmabuf-dio: the rate is {whole} instead of {wanted}"));
                })
            }
            set => set,
        };
        if let Err(error) = set {
            return Err(Failure::new(FAILED, error.to_string(), rates));
        }
        self.look_at_rate();
        let got = self.rate.unwrap_or(0.0);
        if (got - wanted).abs() > wanted * TOLERANCE {
            let what = format!("{} runs at {got} instead of {wanted}", self.device.name());
            return Err(Failure::new(FAILED, what, rates));
        }
        Ok(())
    }

    /// Size of a frame in bytes.
    pub(crate) fn frame(&self) -> u64 {
        frame_bytes(&self.channels)
    }

    /// The smallest transfer of the device's DMA, in bytes of whole frames.
    pub(crate) fn align(&self) -> u64 {
        self.device.block_align(self.buffer, self.frame())
    }

    /// Number of requested frames. `None`: until a time limit or a signal.
    pub(crate) fn frames(&self, args: &StreamArgs) -> Option<u64> {
        args.samples.or_else(|| Some((args.seconds? * self.rate?).ceil() as u64))
    }

    /// A ring with the requested number and size of blocks, or one that suits the rate and the free
    /// memory.
    pub(crate) fn ring(&self, args: &StreamArgs) -> Result<BlockRing, Failure> {
        let block = self.block(args)?;
        if let Some(blocks) = args.ring.blocks {
            return Ok(BlockRing::new(blocks, block)?);
        }
        let bytes_per_second = self.rate.map(|rate| rate * self.frame() as f64);
        let (blocks, most) = numbers(&args.ring, block, bytes_per_second);
        Ok(BlockRing::new(blocks, block)?.growing(most)?)
    }

    /// Block size in bytes.
    pub(crate) fn block(&self, args: &StreamArgs) -> Result<u64, Failure> {
        let (frame, align) = (self.frame(), self.align());
        let size = args.block_size.unwrap_or_else(|| {
            let size = match self.rate {
                // The rate of the trigger is unknown, so each frame is delivered when it arrives.
                None if self.has_trigger() => align,
                rate => suitable(frame, align, rate),
            };
            self.other_frame.map_or(size, |other| both_whole(size, align, frame, other))
        });
        if size % align != 0 {
            let near = size.next_multiple_of(whole(align));
            let of = if size % frame != 0 {
                format!("the frame size, {frame} bytes")
            } else {
                format!("{align} bytes, which the device's DMA needs for frames of {frame} bytes")
            };
            return Err(Failure::new(
                USAGE,
                format!("--block-size {size} is not a multiple of {of}"),
                format!("choose a multiple, ideally of {} too: --block-size {near}", page_size()),
            ));
        }
        Ok(size)
    }

    fn has_trigger(&self) -> bool {
        self.device.trigger().is_ok_and(|trigger| trigger.is_some())
    }

    /// For example `cf-ad9361-lpc: in_voltage0; frames of 2 bytes, 30720000 per second`.
    pub(crate) fn describe(&self) -> String {
        let rate = self
            .rate
            .map_or_else(|| "no rate of its own".to_owned(), |rate| format!("{rate} per second"));
        let names: Vec<_> = self.channels.iter().map(|channel| &*channel.name).collect();
        let names = names.join(", ");
        format!("{}: {names}; frames of {} bytes, {rate}", self.device.name(), self.frame())
    }
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
    let short = |channel: &Channel| {
        let name = &channel.name;
        name.strip_prefix("in_").or(name.strip_prefix("out_")).unwrap_or(name).to_owned()
    };
    let shorts = |all: &[Channel]| all.iter().map(short).collect::<Vec<_>>().join(",");
    let is = |channel: &Channel, name: &String| channel.name == *name || short(channel) == *name;
    for wanted in &args.channels {
        if !all.iter().any(|channel| is(channel, wanted)) {
            let what = format!("{} has no channel {wanted}", device.name());
            let hint = format!("choose from these: --channels {}", shorts(&all));
            return Err(Failure::new(USAGE, what, hint));
        }
    }
    let mut found = all;
    found.retain(|channel| args.channels.iter().any(|name| is(channel, name)));
    let in_order = found.iter().zip(&args.channels).all(|(channel, name)| is(channel, name));
    if found.len() != args.channels.len() || !in_order {
        let what = format!("{} has its channels in another order, each once", device.name());
        let hint = format!("name them as they are in a frame: --channels {}", shorts(&found));
        return Err(Failure::new(USAGE, what, hint));
    }
    Ok(found)
}
