// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `dmabuf-dio-bench rates`.

use std::path::PathBuf;

use clap::{Args, value_parser};
use dmabuf_dio_cli::size::parse_rate;

use crate::args::{CommonArgs, EXIT_CODES};

/// Arguments of `rates`.
#[derive(Debug, Args)]
#[command(about = "Frames lost on the way into a file, by rate, on an idle and on a busy machine")]
#[command(after_help = format!("\
The device has to write the number of each frame into it, as kernel/sim/iio_stream does: the numbers
that a file lacks are the frames that were lost. Every frame of every file is looked at.

Ways, each with its defaults:
  dmabuf-dio       dmabuf-dio capture DEVICE --seconds SECONDS --to FILE
  read()           read() of a block and write() of it; blocks of 1/8 s, at most 4 MiB
  iio_rwdev        iio_rwdev DEVICE >FILE: four blocks of 256 frames (with --peer-iio-rwdev)
  iio_rwdev -b     the same with the blocks of read()

On the busy machine a thread for each CPU computes without end, with the same priority as all else.

Examples:
  vm/run --kernel 7.3-series --memory 3072 -- target/release/dmabuf-dio-bench rates
  dmabuf-dio-bench rates --rates 100k,10M --seconds 1 --only dmabuf-dio --only 'read()'

{EXIT_CODES}"))]
pub(crate) struct RatesArgs {
    /// Name, label or number of the device
    #[arg(long, default_value = "stream-adc")]
    pub(crate) device: String,
    /// Frames per second
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', value_parser = parse_rate,
          default_value = "1k,10k,100k,1M,10M,30M,62.5M")]
    pub(crate) rates: Vec<f64>,
    /// Seconds of a capture
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// Runs of each row; rows alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Only rows whose name contains TEXT: "idle, dmabuf-dio"; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// The command that is measured [default: beside this program]
    #[arg(long, value_name = "PATH")]
    pub(crate) command: Option<PathBuf>,
    /// `iio_rwdev` of libiio 1.0 or later, to compare with
    #[arg(long, value_name = "PATH")]
    pub(crate) peer_iio_rwdev: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}
