// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command lines of `dmabuf-dio capture` and `dmabuf-dio replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dmabuf_dio_stream::Overrun;

use super::target::Target;
use crate::size::{parse_count, parse_rate, parse_size};

const EXIT_CODES: &str = "\
Exit codes:
  0  done: everything requested, or everything until Ctrl-C
  1  ended early; the samples before that are in place
  2  wrong usage";

/// Capture samples of an IIO device to a file, the network or USB, without CPU copies
#[derive(Debug, Args)]
#[command(after_help = format!("\
TO is one of
  FILE           the raw samples, and a SigMF description of them in another file:
                 capture.sigmf-meta for capture.sigmf-data
  tcp://HOST:PORT
  ffs:FOLDER     a new USB function: the mount point of a functionfs instance
  ffs:FOLDER/ep1 an endpoint of another program's function
  none           discards the samples, to test the device

Lost samples are counted. The report and the description say where they are missing.

Examples:
  dmabuf-dio capture cf-ad9361-lpc --rate 30.72M --to capture.sigmf-data --seconds 10
  dmabuf-dio capture iio:device0 --channels voltage0,voltage1 --to tcp://192.168.1.5:5000
  dmabuf-dio capture adc --to samples.bin --samples 1000000 --overrun fail --json

{EXIT_CODES}"))]
pub(crate) struct CaptureArgs {
    /// Name, label or number of the device: cf-ad9361-lpc, iio:device0, 0
    pub(crate) device: String,
    /// Destination of the samples
    #[arg(long, value_name = "TO")]
    pub(crate) to: Target,
    /// What to do if TO is slower than the device
    #[arg(long, value_enum, default_value_t = Policy::Block)]
    pub(crate) overrun: Policy,
    /// Replace an existing file and its description
    #[arg(long)]
    pub(crate) force: bool,
    /// Describe channels as in-phase and quadrature pairs
    #[arg(long)]
    pub(crate) iq: bool,
    /// Centre frequency for the description
    #[arg(long, value_name = "HERTZ", value_parser = parse_rate)]
    pub(crate) frequency: Option<f64>,
    #[command(flatten)]
    pub(crate) common: StreamArgs,
}

/// Output the samples of a file on an IIO device, without CPU copies
#[derive(Debug, Args)]
#[command(after_help = format!("\
FILE holds the samples of all chosen channels, frame by frame, as `dmabuf-dio capture` writes them.
Its SigMF description, if any, sets the rate. Its sample format must match the device.

Underruns are counted: frames for which the device had nothing to output. The report says where.

Examples:
  dmabuf-dio replay capture.sigmf-data --to cf-ad9361-dds-core-lpc
  dmabuf-dio replay tone.bin --to dac --rate 1M --cyclic

{EXIT_CODES}"))]
pub(crate) struct ReplayArgs {
    /// File of samples
    pub(crate) file: PathBuf,
    /// Name, label or number of the device
    #[arg(long, value_name = "DEVICE")]
    pub(crate) to: String,
    /// Repeat FILE until Ctrl-C or --seconds
    #[arg(long, conflicts_with_all = ["samples", "block", "blocks"])]
    pub(crate) cyclic: bool,
    /// Output FILE even if its description does not match the device
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
    /// Stop after this many frames, samples of each channel: 1000000, 1M
    #[arg(long, value_name = "NUMBER", value_parser = parse_count)]
    pub(crate) samples: Option<u64>,
    /// Stop after this time, counted in frames if the rate is known
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "samples")]
    pub(crate) seconds: Option<f64>,
    /// Block size, whole frames [default: 1/8 s of samples, at most 16 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) block: Option<u64>,
    /// Number of blocks
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    pub(crate) blocks: usize,
    /// Index of the device's buffer
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) buffer: u32,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors only
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

/// The value of `--overrun`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Wait for TO; the device loses samples meanwhile
    Block,
    /// Drop whole blocks
    Drop,
    /// Stop at the first loss
    Fail,
}

impl From<Policy> for Overrun {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Block => Self::Block,
            Policy::Drop => Self::Drop,
            Policy::Fail => Self::Fail,
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

    #[test]
    fn seconds_are_read() {
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for bad in ["", "0", "-1", "inf", "nan", "x"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
