// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command lines of `dmabuf-dio capture` and `dmabuf-dio replay`.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use dmabuf_dio_stream::convert::SampleType;
use dmabuf_dio_stream::{Gap, Overrun, Summary};
use dmabuf_dio_terminal::exit::{Failure, USAGE};
use dmabuf_dio_terminal::size::{parse_count, parse_rate, parse_size};

use super::address::Use;
use super::report;
use super::rotate::{self, Rotate};
use super::setup::SetupArgs;
use super::target::Target;
use super::video::args::VideoArgs;

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    done: everything requested; without --samples and --seconds, everything until Ctrl-C
  1    ended early, also by Ctrl-C, or more was lost than --max-loss; the samples are in place
  2    wrong usage
  141  the reader or receiver of the samples closed early";

const SET: &str = "\
Every --set is checked before any attribute is written: it must be possible to write and restore the
attribute, and the device must offer the value. If the device then refuses a value, all attributes are
restored. Rounded values are printed. `dmabuf-dio devices DEVICE` lists the attributes. Settings remain
after the end, except with --restore; a second Ctrl-C or SIGKILL prevents restoring them. Use iio_attr
of libiio-utils for debug attributes, attributes that cannot be read, and devices on other machines.";

/// Capture samples of an IIO device, or video frames, to a file, the network or USB, without CPU copies
#[derive(Debug, Args)]
#[command(after_help = "\
TO is a file, - or a FIFO, tcp://HOST:PORT, unix:PATH, ffs:FOLDER (USB), or none.

Examples:
  dmabuf-dio capture cf-ad9361-lpc --rate 30.72M --to capture.sigmf-data --seconds 10
  dmabuf-dio capture adc --to - | sha256sum
  dmabuf-dio capture /dev/video0 --to frames.raw --frames 300

--help shows all options, formats, addresses, and the exit codes.")]
#[command(after_long_help = format!("\
TO is one of
  FILE           the raw samples, and a SigMF description of them in another file:
                 capture.sigmf-meta for capture.sigmf-data
  - or a FIFO    the raw samples, for another program; the report goes to standard error
  tcp://HOST:PORT, tcp-listen://[HOST]:PORT
  unix:PATH, unix-listen:PATH
                 the raw samples, for nc, socat or another program
  ffs:FOLDER     a new USB function: the mount point of a functionfs instance
  ffs:FOLDER/ep1 an endpoint of another program's function
  none           discards the samples, to test the device

Lost samples are counted. The report and the description say where they are missing.

FORMAT is a type of SigMF (ci16, cf32, ci8, i16, f32, u8, cf64_be; c for I/Q pairs) or a format of IIO
(le:s12/16>>0, be:u16/16>>0). Full scale is preserved: +-1.0, or all significant bits of an integer.
Without --format the samples are stored as the device delivers them, without a copy.

--rotate starts a new file, with its own description, when a file has reached this time (60s, 10min, 1h)
or size (500M, 4G), rounded down to what the device's DMA transfers: capture-000000.sigmf-data,
capture-000001.sigmf-data, ... With --force all files of these names are removed first.

{SET}

A video device (V4L2) is /dev/video0 or its name; `dmabuf-dio devices` lists them. A block holds one
frame, and the file contains one frame after the other. FILE.json describes them: format, numbers and
times of frames, and which are missing. Settings of a video device remain after the end. Damaged frames
are omitted and counted.

Examples:
  dmabuf-dio capture cf-ad9361-lpc --rate 30.72M --to capture.sigmf-data --seconds 10
  dmabuf-dio capture iio:device0 --channels voltage0,voltage1 --to tcp://192.168.1.5:5000
  dmabuf-dio capture adc --to - | sha256sum
  dmabuf-dio capture adc --to tcp-listen://:5000 --report capture.json
  dmabuf-dio capture adc --to samples.bin --samples 1000000 --overrun fail --json
  dmabuf-dio capture cf-ad9361-lpc --to x.sigmf-data --restore \\
    --set ad9361-phy/RX_LO.frequency=868M --set ad9361-phy/in_voltage0.hardwaregain=40
  dmabuf-dio capture accelerometer --to x.bin --trigger timer --set timer/sampling_frequency=100
  dmabuf-dio capture cf-ad9361-lpc --format cf32 --to capture.sigmf-data --seconds 10
  dmabuf-dio capture adc --rotate 60s --to capture.sigmf-data
  dmabuf-dio capture /dev/video0 --to frames.raw --frames 300 --size 1920x1080 --pixel-format NV12 --fps 30
  dmabuf-dio capture /dev/video0 --pixel-format MJPG --to - | ffplay -f mjpeg -

{EXIT_CODES}"))]
pub(crate) struct CaptureArgs {
    /// Name, label or number of the device: cf-ad9361-lpc, iio:device0, 0; or /dev/video0
    pub(crate) device: String,
    /// Destination of the samples
    #[arg(long, value_name = "TO")]
    pub(crate) to: Target,
    /// What to do if TO is slower than the device
    #[arg(long, hide_short_help = true, value_enum, default_value_t = Policy::Block)]
    pub(crate) overrun: Policy,
    /// Replace an existing file and its description
    #[arg(long)]
    pub(crate) force: bool,
    /// Convert the samples to this format [default: the device's, no copy]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<SampleType>,
    /// Start a new file after this time or size: 60s, 10min, 4G
    #[arg(long, value_name = "TIME|SIZE", value_parser = Rotate::parse)]
    pub(crate) rotate: Option<Rotate>,
    /// Describe channels as in-phase and quadrature pairs
    #[arg(long, hide_short_help = true)]
    pub(crate) iq: bool,
    /// Centre frequency for the description
    #[arg(long, hide_short_help = true, value_name = "HERTZ", value_parser = parse_rate)]
    pub(crate) frequency: Option<f64>,
    #[command(flatten)]
    pub(crate) common: StreamArgs,
    #[command(flatten)]
    pub(crate) video: VideoArgs,
}

/// Output the samples of a file on an IIO device, without CPU copies
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmabuf-dio replay capture.sigmf-data --to cf-ad9361-dds-core-lpc
  dmabuf-dio replay tone.bin --to dac --rate 1M --cyclic
  zstd -dc capture.zst | dmabuf-dio replay - --to dac --rate 1M

--help shows all options, sources, and the exit codes.")]
#[command(after_long_help = format!("\
FILE holds the samples of all chosen channels, frame by frame, as `dmabuf-dio capture` writes them.
It is a file, - or a FIFO for samples of another program, or one of tcp://HOST:PORT,
tcp-listen://[HOST]:PORT, unix:PATH, unix-listen:PATH.
Its SigMF description, if any, gives the rate and the format of the samples. If the device's format
differs, they are converted; full scale is preserved. The number of channels must match.
FILE can be a SigMF archive: NAME.sigmf.

Underruns are counted: frames for which the device had nothing to output. The report says where.

{SET}

Examples:
  dmabuf-dio replay capture.sigmf-data --to cf-ad9361-dds-core-lpc
  dmabuf-dio replay tone.bin --to dac --rate 1M --cyclic
  zstd -dc capture.zst | dmabuf-dio replay - --to dac --rate 1M
  dmabuf-dio replay tcp-listen://:5000 --to dac --rate 1M
  dmabuf-dio replay x.sigmf-data --to cf-ad9361-dds-core-lpc --restore \\
    --set ad9361-phy/TX_LO.frequency=868M --set ad9361-phy/out_voltage0.hardwaregain=-20
  dmabuf-dio replay gnuradio.cf32 --format cf32 --to cf-ad9361-dds-core-lpc --rate 10M
  dmabuf-dio replay capture.sigmf --to cf-ad9361-dds-core-lpc

{EXIT_CODES}"))]
pub(crate) struct ReplayArgs {
    /// File of samples, or another source
    pub(crate) file: PathBuf,
    /// Name, label or number of the device
    #[arg(long, value_name = "DEVICE")]
    pub(crate) to: String,
    /// Repeat FILE until Ctrl-C or --seconds
    #[arg(long, conflicts_with_all = ["samples", "block_size", "blocks", "ring", "max_ring"])]
    pub(crate) cyclic: bool,
    /// Format of the samples in FILE, as for `capture` [default: from its description]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<SampleType>,
    /// Output the bytes of FILE unchanged, even if its description does not match the device
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) common: StreamArgs,
}

/// Options of capture and replay.
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    /// Channels by name [default: all but the timestamp]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) channels: Vec<String>,
    /// Frames per second: 1000000, 1M, 30.72M [default: the device's setting]
    #[arg(long, value_name = "HERTZ", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,
    #[command(flatten)]
    pub(crate) setup: SetupArgs,
    /// Stop after this many frames, samples of each channel: 1000000, 1M
    #[arg(long, value_name = "NUMBER", value_parser = parse_count)]
    pub(crate) samples: Option<u64>,
    /// Stop after this time, counted in frames of the device, including lost ones, if it has a rate
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "samples")]
    pub(crate) seconds: Option<f64>,
    /// Block size, whole frames [default: 1/8 s of samples, at most 16 MiB]
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) block_size: Option<u64>,
    /// Fixed number of blocks
    #[arg(long, hide_short_help = true, value_name = "NUMBER", conflicts_with_all = ["ring", "max_ring"])]
    pub(crate) blocks: Option<usize>,
    /// Samples that the blocks hold at the start, in seconds [default: 2]
    #[arg(long, hide_short_help = true, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) ring: Option<f64>,
    /// Memory that the blocks may grow to while TO is slow [default: half of the free memory]
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_ring: Option<u64>,
    /// Exit with 1 if more was lost: frames (1000, 1M) or a percentage (0.1%); also if the device
    /// does not report losses, except with 100% [default: 0, of what is known]
    #[arg(long, hide_short_help = true, value_name = "NUMBER", value_parser = MaxLoss::parse)]
    pub(crate) max_loss: Option<MaxLoss>,
    /// Index of the device's buffer
    #[arg(long, hide_short_help = true, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) buffer: u32,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report to this file, as JSON
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Print errors only
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

impl StreamArgs {
    /// Fails if the report cannot be written, before there is anything to report, or if it would
    /// replace what the stream uses.
    pub(crate) fn check_report(&self, used: &Used<'_>) -> Result<(), Failure> {
        let Some(path) = &self.report else { return Ok(()) };
        if used.has(path) {
            let path = path.display();
            let what = format!("{path}: the report would replace the samples or their description");
            return Err(Failure::new(USAGE, what, "choose another name: --report NAME.json"));
        }
        let existed = path.exists();
        if existed && !path.is_file() && !path.is_dir() {
            // Opening a FIFO would wait for its reader.
            return Ok(());
        }
        let opened = File::options().append(true).create(true).open(path);
        if !existed && opened.is_ok() {
            let _ = std::fs::remove_file(path);
        }
        opened.map(drop).map_err(|error| report::cannot_write(path, &error))
    }

    /// Whether what a stream of `frames` frames is known to have lost is more than it may.
    pub(crate) fn is_loss_too_large(&self, summary: &Summary, frames: u64) -> bool {
        !self.max_loss.unwrap_or(MaxLoss::Frames(0)).allows(&summary.gaps, frames)
    }

    /// Why a stream of `frames` frames has lost more than it may; `None` if it has not. What nobody
    /// knows is too much only for a limit that was given.
    pub(crate) fn exceeds_loss(&self, summary: &Summary, frames: u64) -> Option<String> {
        let limit = self.max_loss.unwrap_or(MaxLoss::Frames(0));
        let lost = report::lost(summary);
        if self.is_loss_too_large(summary, frames) {
            return Some(format!("more was lost than --max-loss {limit}: {lost}"));
        }
        let any = matches!(limit, MaxLoss::Part(part) if part >= 1.0);
        let unknown = self.max_loss.is_some() && !summary.loss_known && !any;
        unknown.then(|| {
            format!(
                "whether more was lost than --max-loss {limit} is not known: nothing reports it"
            )
        })
    }
}

/// The files that a stream reads or writes.
#[derive(Debug, Default)]
pub(crate) struct Used<'a> {
    pub(super) files: Vec<PathBuf>,
    /// Standard input or output.
    pub(super) standard: Option<Use>,
    /// The name of the numbered files of a recording.
    pub(super) series: Option<&'a Path>,
}

impl Used<'_> {
    /// Whether this is one of them, by whatever name.
    fn has(&self, path: &Path) -> bool {
        let facts = path.metadata().ok();
        // Nothing is replaced in a terminal or in /dev/null.
        if facts.as_ref().is_some_and(|facts| facts.file_type().is_char_device()) {
            return false;
        }
        let own = facts.map(|facts| (facts.dev(), facts.ino()));
        let is_same = |file: &PathBuf| {
            let other = file.metadata().ok().map(|facts| (facts.dev(), facts.ino()));
            own.is_some() && own == other || resolved(path, LINKS) == resolved(file, LINKS)
        };
        let standard = self.standard.and_then(|used| match used {
            Use::Read => rustix::fs::fstat(std::io::stdin()).ok(),
            Use::Write => rustix::fs::fstat(std::io::stdout()).ok(),
        });
        let is_standard = standard.is_some_and(|facts| own == Some((facts.st_dev, facts.st_ino)));
        let is_piece = |first: &Path| {
            let (first, path) = (resolved(first, LINKS), resolved(path, LINKS));
            first.parent() == path.parent() && rotate::is_piece(&first, &path)
        };
        is_standard || self.files.iter().any(is_same) || self.series.is_some_and(is_piece)
    }
}

/// Most links that are followed.
const LINKS: u32 = 16;

/// A path without links, also of a file that does not exist.
fn resolved(path: &Path, links: u32) -> PathBuf {
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    match path.read_link() {
        Ok(target) if links > 0 => resolved(&folder.join(target), links - 1),
        _ => {
            let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
            folder.join(path.file_name().unwrap_or_default())
        }
    }
}

/// The value of `--overrun`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Wait for TO; the device loses samples meanwhile
    Block,
    /// Stop at the first loss
    Fail,
}

impl From<Policy> for Overrun {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Block => Self::Block,
            Policy::Fail => Self::Fail,
        }
    }
}

/// The value of `--max-loss`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MaxLoss {
    Frames(u64),
    /// Of all frames, from 0 to 1.
    Part(f64),
}

impl MaxLoss {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a limit for losses: write 0, 1000, 1M or 0.1%");
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim_end().parse().map_err(|_| bad())?;
            return if (0.0..=100.0).contains(&percent) {
                Ok(Self::Part(percent / 100.0))
            } else {
                Err(bad())
            };
        }
        if text == "0" {
            return Ok(Self::Frames(0));
        }
        parse_count(text).map(Self::Frames).map_err(|_| bad())
    }

    /// Whether a stream of `frames` frames may have these gaps. One of unknown length is too long,
    /// unless everything may be lost.
    pub(crate) fn allows(self, gaps: &[Gap], frames: u64) -> bool {
        let lost: Option<u64> = gaps.iter().map(|gap| gap.frames).sum();
        match (self, lost) {
            (Self::Frames(most), Some(lost)) => lost <= most,
            (Self::Part(most), Some(lost)) => lost as f64 <= most * (lost + frames) as f64,
            (Self::Part(most), None) => most >= 1.0,
            (Self::Frames(_), None) => false,
        }
    }
}

impl fmt::Display for MaxLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frames(frames) => write!(f, "{frames}"),
            Self::Part(part) => write!(f, "{}%", part * 100.0),
        }
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if seconds > 0.0 && seconds <= 1e9 {
        Ok(seconds)
    } else {
        Err(format!("{text:?} is not a duration: write more than 0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmabuf_dio_stream::Loss;

    #[test]
    fn loss_limits_are_parsed() {
        assert_eq!(MaxLoss::parse("0"), Ok(MaxLoss::Frames(0)));
        assert_eq!(MaxLoss::parse("2k"), Ok(MaxLoss::Frames(2000)));
        assert_eq!(MaxLoss::parse("50%"), Ok(MaxLoss::Part(0.5)));
        for bad in ["", "%", "-1", "101%", "nan%", "x", "1.5"] {
            assert!(MaxLoss::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn losses_are_allowed_up_to_a_limit() {
        let gap = |frames| Gap { kind: Loss::Lost, at: 0, to: 0, frames };
        let two = [gap(Some(6)), gap(Some(4))];
        let unknown = [gap(Some(1)), gap(None)];
        for (most, of_two, of_unknown) in [
            (MaxLoss::Frames(10), true, false),
            (MaxLoss::Frames(9), false, false),
            (MaxLoss::Part(0.1), true, false),
            (MaxLoss::Part(0.099), false, false),
            (MaxLoss::Part(1.0), true, true),
        ] {
            assert!(most.allows(&[], 90), "{most:?}");
            assert_eq!((most.allows(&two, 90), most.allows(&unknown, 90)), (of_two, of_unknown));
        }
    }

    #[test]
    fn seconds_are_parsed() {
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for bad in ["", "0", "-1", "inf", "nan", "x"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn report_replaces_none_of_the_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("x")).expect("a folder");
        let used = Used { files: vec![path("a.bin"), path("a.sigmf-meta")], ..Used::default() };
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, path(name)).expect("a link");
        };
        link("a.bin", "link");
        link("x/../link", "chain");
        link("loop", "loop");
        link(".", "here");
        // Whether it exists yet or not.
        for exists in [false, true] {
            if exists {
                std::fs::write(path("a.bin"), "samples").expect("written");
                std::fs::hard_link(path("a.bin"), path("hard")).expect("a link");
                assert!(used.has(&path("hard")));
            }
            let same = ["a.bin", "x/../a.bin", "./a.bin", "link", "chain", "here/a.bin"];
            for name in same.into_iter().chain(["a.sigmf-meta"]) {
                assert!(used.has(&path(name)), "{name}");
            }
            for name in ["b.bin", "x/a.bin", "a.bin.json", "loop", "no/a.bin"] {
                assert!(!used.has(&path(name)), "{name}");
            }
        }
        let null = PathBuf::from("/dev/null");
        assert!(!Used { files: vec![null.clone()], ..Used::default() }.has(&null));
        let first = path("c.bin");
        let series = Used { series: Some(&first), ..Used::default() };
        for (name, is_one) in [
            ("c-000004.bin", true),
            ("here/c-000004.sigmf-meta", true),
            ("c.bin", false),
            ("x/c-000004.bin", false),
            ("c-000004.json", false),
        ] {
            assert_eq!(series.has(&path(name)), is_one, "{name}");
        }
    }

    #[test]
    fn unknown_loss_is_not_a_large_one() {
        use clap::Parser as _;

        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            common: StreamArgs,
        }
        let zero = Only::try_parse_from(["x", "--max-loss", "0"]).expect("options").common;
        let nothing = Summary::default();
        assert!(zero.exceeds_loss(&nothing, 10).is_some(), "nothing reports it");
        assert!(!zero.is_loss_too_large(&nothing, 10));
        let gaps = vec![Gap { kind: Loss::Lost, at: 0, to: 0, frames: Some(3) }];
        assert!(zero.is_loss_too_large(&Summary { gaps, ..nothing }, 10));
    }
}
