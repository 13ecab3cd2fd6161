// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command lines of `dmabuf-dio capture` and `dmabuf-dio replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dmabuf_dio_stream::Overrun;

use super::target::Target;
use crate::size::{parse_count, parse_rate, parse_size};

const EXIT_CODES: &str = "\
Exit codes:
  0  done: all that was asked for, or all until Ctrl-C
  1  ended early; what came before is where it belongs
  2  wrong usage";

/// Capture samples of an IIO device into a file, the network or USB, with no copy by the CPU
#[derive(Debug, Args)]
#[command(after_help = format!("\
TO is one of
  FILE           the samples as they come, and a description of them for people and programs
                 (SigMF): capture.sigmf-data gets a capture.sigmf-meta beside it
  tcp://HOST:PORT
  ffs:FOLDER     a USB function of ours: where an instance of functionfs is mounted
  ffs:FOLDER/ep1 an endpoint of somebody else's function
  none           nowhere, to see what the device gives

Samples that the device has lost are counted, and the places where they are missing are in the
report and the description.

Examples:
  dmabuf-dio capture cf-ad9361-lpc --rate 30.72M --to capture.sigmf-data --seconds 10
  dmabuf-dio capture iio:device0 --channels voltage0,voltage1 --to tcp://192.168.1.5:5000
  dmabuf-dio capture adc --to samples.bin --samples 1000000 --overrun fail --json

{EXIT_CODES}"))]
pub(crate) struct CaptureArgs {
    /// Name, label or number of the device: cf-ad9361-lpc, iio:device0, 0
    pub(crate) device: String,
    /// Where the samples go
    #[arg(long, value_name = "TO")]
    pub(crate) to: Target,
    /// What to do if TO is slower than the device
    #[arg(long, value_enum, default_value_t = Policy::Block)]
    pub(crate) overrun: Policy,
    /// Replace a file that is there, and its description
    #[arg(long)]
    pub(crate) force: bool,
    /// Describe channels as pairs: in-phase, quadrature
    #[arg(long)]
    pub(crate) iq: bool,
    /// Describe the samples as taken around this frequency
    #[arg(long, value_name = "HERTZ", value_parser = parse_rate)]
    pub(crate) frequency: Option<f64>,
    #[command(flatten)]
    pub(crate) common: StreamArgs,
}

/// Put the samples of a file out on an IIO device, with no copy by the CPU
#[derive(Debug, Args)]
#[command(after_help = format!("\
FILE has the samples of all chosen channels, frame by frame, as `dmabuf-dio capture` writes them.
A description beside it (SigMF) says its rate, and has to agree with the device on what a sample is.

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
    /// Put all of FILE out over and over, until Ctrl-C or --seconds
    #[arg(long, conflicts_with_all = ["samples", "block", "blocks"])]
    pub(crate) cyclic: bool,
    /// Put FILE out although its description says that it holds samples of another kind
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) common: StreamArgs,
}

/// Options of both.
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    /// Channels, by name [default: all, without the timestamp]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) channels: Vec<String>,
    /// Frames per second: 1000000, 1M, 30.72M [default: as the device is set]
    #[arg(long, value_name = "HERTZ", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,
    /// End after so many frames, samples of each channel: 1000000, 1M
    #[arg(long, value_name = "NUMBER", value_parser = parse_count)]
    pub(crate) samples: Option<u64>,
    /// End after so much time: counted in frames if the rate is known
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "samples")]
    pub(crate) seconds: Option<f64>,
    /// Size of a block, whole frames [default: what comes in 1/8 s, at most 16 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) block: Option<u64>,
    /// Number of blocks
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    pub(crate) blocks: usize,
    /// Number of the device's buffer
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) buffer: u32,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing but errors
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

/// What `--overrun` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Wait for TO; the device loses samples meanwhile
    Block,
    /// Drop whole blocks
    Drop,
    /// End at the first loss
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
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    if seconds > 0.0 && seconds <= 1e9 {
        Ok(seconds)
    } else {
        Err(format!("{text:?} is no time to wait: write more than 0"))
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
