// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device of a capture or replay with its settings, and the block size for it.

use std::path::Path;

use dmabuf_dio_stream::{BlockRing, Channel, Device, VideoFacts, available, frame_bytes};
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE, say};
use rustix::process::{Resource, getrlimit};

use super::args::StreamArgs;
use super::setup::Setup;

/// Accepted relative difference from the requested rate.
const TOLERANCE: f64 = 0.01;
/// The default block size: upper bound, blocks per second, and the size for a device without a rate. The
/// lower bound is a page.
const BLOCK: u64 = 16 << 20;
const PART: f64 = 8.0;
const WITHOUT_RATE: u64 = 64 << 10;
/// The ring at the start: seconds of samples, or blocks for a device without a rate.
const SECONDS: f64 = 2.0;
const WITHOUT_RATE_BLOCKS: u64 = 8;
/// Free memory to count on if the kernel does not say.
const UNKNOWN_MEMORY: u64 = 256 << 20;
/// Most blocks of a ring. Each needs two descriptors, and one more for a moment.
const MOST: u64 = 4096;
const FILES_PER_BLOCK: u64 = 3;
const OTHER_FILES: u64 = 64;

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
        // It says what is not put back.
        let _ = self.put_back();
    }
}

impl Chosen {
    /// Finds the device.
    pub(crate) fn find(name: &str, args: &StreamArgs) -> Result<Self, Failure> {
        let device = one(name)?.ok_or_else(|| unknown(name))?;
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

    /// Sets attributes and the trigger, until this is dropped or [kept](Self::keep). They may change
    /// the rate.
    pub(crate) fn set_up(&mut self, quiet: bool) -> Result<(), Failure> {
        self.setup.apply(&self.device, quiet)?;
        self.look_at_rate();
        Ok(())
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

    /// Keeps the settings, because the device was used with them, unless they are to be restored at
    /// the end.
    pub(crate) fn keep(&mut self) {
        if !self.restore {
            self.before = None;
        }
        self.setup.keep();
    }

    /// Restores what is not kept, once the device is stopped.
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

    /// What the device's DMA transfers at least, in bytes, in whole frames.
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
        if let Some(blocks) = args.blocks {
            return Ok(BlockRing::new(blocks, block)?);
        }
        let bytes_per_second = self.rate.map(|rate| rate * self.frame() as f64);
        let (blocks, most) = numbers(args, block, bytes_per_second, available(), open_files());
        Ok(BlockRing::new(blocks, block)?.growing(most)?)
    }

    /// Block size in bytes.
    pub(crate) fn block(&self, args: &StreamArgs) -> Result<u64, Failure> {
        let (frame, align) = (self.frame(), self.align());
        let size = args.block_size.unwrap_or_else(|| {
            let size = match self.rate {
                // Nobody knows how often its trigger fires: each frame is delivered when it comes.
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

/// How many blocks there are at the start and may be later. The memory that is available and the
/// limit on open files bound both.
pub(super) fn numbers(
    args: &StreamArgs,
    block: u64,
    bytes_per_second: Option<f64>,
    available: Option<u64>,
    files: u64,
) -> (usize, usize) {
    let block = block.max(1);
    let seconds = args.ring.unwrap_or(SECONDS);
    let wanted = bytes_per_second
        .map_or(WITHOUT_RATE_BLOCKS, |bytes| (seconds * bytes / block as f64).ceil() as u64);
    let free = available.unwrap_or(UNKNOWN_MEMORY);
    let by_files = (files.saturating_sub(OTHER_FILES) / FILES_PER_BLOCK).min(MOST);
    let most = args.max_ring.unwrap_or(free / 2) / block;
    let first = wanted.min(free / 4 / block).min(most).min(by_files).max(2);
    (first as usize, most.min(by_files).max(first) as usize)
}

/// How many files this process may have open.
pub(super) fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The smallest size in bytes that is a multiple of both the frame and the page.
fn whole(frame: u64) -> u64 {
    let (mut a, mut b) = (frame.max(1), page_size());
    while b > 0 {
        (a, b) = (b, a % b);
    }
    frame.max(1) / a * page_size()
}

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// The default block size: a multiple of `align`, which is that of whole frames.
pub(super) fn suitable(frame: u64, align: u64, rate: Option<f64>) -> u64 {
    let (least, most, align) = (page_size(), BLOCK, align.max(1));
    let wanted = rate.map_or(WITHOUT_RATE, |rate| (rate * frame as f64 / PART) as u64);
    if wanted < least {
        // At such a rate, unaligned writes do not matter.
        return (wanted / align).max(1) * align;
    }
    (wanted.min(most) / whole(align)).max(1) * whole(align)
}

/// At most `size` bytes of frames of `frame` bytes, multiples of `align`, that are whole pages at both
/// ends, if `size` is enough for that.
fn both_whole(size: u64, align: u64, frame: u64, other: u64) -> u64 {
    let (one, two) = (whole(align) / frame, whole(other) / other);
    // A common multiple suffices.
    let frames = if one % two == 0 {
        one
    } else if two % one == 0 {
        two
    } else {
        one * two
    };
    let step = frames * frame;
    if size < step { size } else { size / step * step }
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
                format!("choose from these: --channels {}", names.join(",")),
            ));
        }
    }
    let wanted = |channel: &Channel| {
        args.channels.iter().any(|name| channel.name == *name || short(&channel.name) == *name)
    };
    let found: Vec<_> = all.into_iter().filter(wanted).collect();
    let is_at = |(channel, name): (&Channel, &String)| {
        channel.name == *name || short(&channel.name) == *name
    };
    if found.len() != args.channels.len() || !found.iter().zip(&args.channels).all(is_at) {
        let names: Vec<_> = found.iter().map(|channel| short(&channel.name)).collect();
        let what = format!("{} has its channels in another order, each once", device.name());
        let hint = format!("name them as they are in a frame: --channels {}", names.join(","));
        return Err(Failure::new(USAGE, what, hint));
    }
    Ok(found)
}

/// The device of this name, if there is one. Fails if there are several.
pub(crate) fn one(name: &str) -> Result<Option<Device>, Failure> {
    let mut all = Device::matching(name);
    if all.len() < 2 {
        return Ok(all.pop());
    }
    let choice = |device: &Device| match device.read("label") {
        Ok(label) if label != name => format!("{} ({label})", device.id()),
        _ => device.id().to_owned(),
    };
    let choices: Vec<_> = all.iter().map(choice).collect();
    let what = format!("{} devices are called {name}", all.len());
    Err(Failure::new(USAGE, what, format!("choose one of them: {}", choices.join(", "))))
}

/// There is no device of this name.
pub(crate) fn unknown(name: &str) -> Failure {
    let mut names: Vec<_> = Device::all().iter().map(|device| device.name().to_owned()).collect();
    let what = if !is_node(name) {
        format!("there is no IIO device {name}")
    } else if Path::new(name).exists() {
        format!("{name} is neither a video device nor an IIO device")
    } else {
        format!("there is no device {name}")
    };
    if is_node(name) {
        names.extend(VideoFacts::all().iter().map(|facts| facts.node.display().to_string()));
    }
    let hint = if names.is_empty() {
        "there are none: check that the driver is loaded (ls /sys/bus/iio/devices /dev/video*)"
            .to_owned()
    } else {
        format!("there are: {}", names.join(", "))
    };
    Failure::new(FAILED, what, hint)
}

/// Whether a name is that of a node in `/dev`, not of an IIO device: `/dev/video0`, `video0`.
fn is_node(name: &str) -> bool {
    let number = name.strip_prefix("video");
    name.contains('/')
        || number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_sized_by_time_and_memory() {
        use clap::Parser as _;
        const MIB: u64 = 1 << 20;

        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            common: StreamArgs,
        }
        let gib = 1 << 30;
        let of = |options: &[&str], block: u64, rate: f64, free: u64, files: u64| {
            let words = [&["x"], options].concat();
            let args = Only::try_parse_from(words).expect("options").common;
            numbers(&args, block, (rate > 0.0).then_some(rate), Some(free), files)
        };
        assert_eq!(of(&[], MIB, 8e6, 4 * gib, 1 << 20), (16, 2048));
        // A quarter of the memory at first, and a half at last.
        assert_eq!(of(&[], MIB, 1e9, gib, 1 << 20), (256, 512));
        assert_eq!(of(&["--max-ring", "40M"], MIB, 1e9, gib, 1 << 20), (40, 40));
        assert_eq!(of(&["--ring", "0.5", "--max-ring", "40M"], MIB, 8e6, gib, 1 << 20), (4, 40));
        // The limit on open files, and at least two.
        assert_eq!(of(&[], MIB, 1e9, 4 * gib, 1024), (320, 320));
        assert_eq!(of(&[], MIB, 1.0, 0, 3), (2, 2));
        assert_eq!(of(&[], 64 << 10, 0.0, gib, 1 << 20), (8, 4096));
    }

    #[test]
    fn blocks_are_whole_pages_at_both_ends() {
        for (size, frame, other) in
            [(1 << 20, 4, 8), (999_424, 8, 4), (999_424, 8, 2), (1 << 20, 6, 4)]
        {
            let both = both_whole(size, frame, frame, other);
            assert!(both > 0 && both <= size && both % frame == 0, "{both}");
            let page = page_size();
            assert_eq!((both % page, both / frame * other % page), (0, 0), "{frame} and {other}");
        }
        assert_eq!(both_whole(4096, 8, 8, 4), 4096, "too little for both");
        // A 12-byte frame whose DMA moves multiples of 5 bytes.
        let both = both_whole(1 << 20, 60, 12, 8);
        assert!(both > 0 && both % 60 == 0 && both % page_size() == 0, "{both}");
    }

    #[test]
    fn blocks_are_whole_frames_and_pages() {
        assert_eq!(whole(10_000) % page_size(), 0);
        if page_size() != 4096 {
            return println!("skipped: the sizes below are for pages of 4 KiB");
        }
        assert_eq!((whole(8), whole(24), whole(1), whole(10_000)), (4096, 12_288, 4096, 2_560_000));
        assert_eq!(suitable(8, 8, None), 64 << 10);
        assert_eq!(suitable(8, 8, Some(1e9)), 16 << 20);
        assert_eq!(suitable(8, 8, Some(1e6)), 999_424);
        assert_eq!((suitable(8, 8, Some(1.0)), suitable(8, 8, Some(100.0))), (8, 96));
        assert_eq!(suitable(24, 24, Some(1000.0)), 3000);
        assert_eq!(suitable(24, 24, Some(2000.0)), 12_288);
    }

    #[test]
    fn missing_camera_is_not_called_an_iio_device() {
        for (name, what) in [
            ("/dev/video7777", "there is no device /dev/video7777"),
            ("video7777", "there is no device video7777"),
            ("/dev/null", "/dev/null is neither a video device nor an IIO device"),
            ("no-such-adc", "there is no IIO device no-such-adc"),
            ("video", "there is no IIO device video"),
        ] {
            assert_eq!(unknown(name).what(), what);
        }
    }

    #[test]
    fn default_blocks_suit_the_dma() {
        for (frame, align) in
            [(2, 8), (4, 8), (6, 24), (8, 8), (2, 64), (4, 12), (6, 30), (1, 4096)]
        {
            for rate in [1e-3, 1.0, 10.0, 500.0, 1000.0, 1001.0, 12_345.6, 1e6, 1e9] {
                let size = suitable(frame, align, Some(rate));
                assert!(size > 0 && size % align == 0, "{frame}, {align}, {rate}: {size}");
                let both = both_whole(size, align, frame, 4);
                assert!(both > 0 && both % align == 0, "{frame}, {align}, {rate}: {both}");
            }
            assert_eq!(suitable(frame, align, None) % align, 0);
        }
    }
}
