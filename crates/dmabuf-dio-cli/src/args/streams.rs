// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command lines of `dmabuf-dio capture` and `dmabuf-dio replay`, and options that `dmabuf-dio
//! video` shares.

use std::path::PathBuf;

use clap::Args;
use dmabuf_dio_stream::convert::SampleType;
use dmabuf_dio_terminal::size::{parse_count, parse_rate, parse_size};

use super::destination::DestinationArgs;
use super::values::{Assignment, MaxLoss, Rotate, parse_seconds};

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    done: everything requested; without a limit, everything until Ctrl-C
  1    ended early, also by Ctrl-C, or more was lost than --max-loss; the samples are in place
  2    wrong usage
  141  the reader or receiver of the samples closed early";

const SET: &str = "\
Every --set is checked before any attribute is written: it must be possible to write and restore the
attribute, and the device must offer the value. If the device then refuses a value, all attributes are
restored. Rounded values are printed. `dmabuf-dio devices DEVICE` lists the attributes. Settings remain
after the end, except with --restore; a second Ctrl-C or SIGKILL prevents restoring them. Use iio_attr
of libiio-utils for debug attributes, attributes that cannot be read, and devices on other machines.";

/// Capture samples of an IIO device to a file, the network or USB, without CPU copies
#[derive(Debug, Args)]
#[command(after_help = "\
TO is a file, - or a FIFO, tcp://HOST:PORT, unix:PATH, ffs:FOLDER (USB), or none.

Examples:
  dmabuf-dio capture cf-ad9361-lpc --rate 30.72M --to capture.sigmf-data --seconds 10
  dmabuf-dio capture adc --to - | sha256sum
  dmabuf-dio capture iio:device0 --channels voltage0,voltage1 --to tcp://192.168.1.5:5000

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

{EXIT_CODES}"))]
pub(crate) struct CaptureArgs {
    /// Name, label or number of the device: cf-ad9361-lpc, iio:device0, 0
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) destination: DestinationArgs,
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
    #[arg(long, value_name = "NUMBER", value_parser = parse_count, conflicts_with = "seconds")]
    pub(crate) samples: Option<u64>,
    /// Stop after this time, counted in frames of the device, including lost ones, if it has a rate
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) seconds: Option<f64>,
    /// Block size, whole frames [default: 1/8 s of samples, at most 16 MiB]
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) block_size: Option<u64>,
    /// Index of the device's buffer
    #[arg(long, hide_short_help = true, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) buffer: u32,
    #[command(flatten)]
    pub(crate) ring: RingArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// Options of capture and replay for the settings of devices.
#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    #[arg(
        help = "Set an attribute first: voltage0.hardwaregain=30, ad9361-phy/RX_LO.frequency=2.4G"
    )]
    #[arg(long, value_name = "[DEVICE/][CHANNEL.]ATTRIBUTE=VALUE", value_parser = Assignment::parse)]
    pub(crate) set: Vec<Assignment>,
    /// Capture when this trigger fires; the former trigger is restored at the end
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    pub(crate) trigger: Option<String>,
    /// Restore the former settings at the end, also after Ctrl-C: --set, --rate, the channels
    #[arg(long, hide_short_help = true)]
    pub(crate) restore: bool,
}

/// The blocks of a stream.
#[derive(Debug, Args)]
pub(crate) struct RingArgs {
    /// Fixed number of blocks
    #[arg(long, hide_short_help = true, value_name = "NUMBER", conflicts_with_all = ["ring", "max_ring"])]
    pub(crate) blocks: Option<usize>,
    /// Seconds of samples that the blocks hold at the start [default: 2]
    #[arg(long, hide_short_help = true, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) ring: Option<f64>,
    /// Memory that the blocks may grow to while TO is slow [default: half of the free memory]
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_ring: Option<u64>,
}

/// Options for the report at the end of a stream.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Exit with 1 if more was lost: frames (1000, 1M) or a percentage (0.1%); also if the device
    /// does not report losses, except with 100% [default: 0, of what is known]
    #[arg(long, hide_short_help = true, value_name = "NUMBER", value_parser = MaxLoss::parse)]
    pub(crate) max_loss: Option<MaxLoss>,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report to this file, as JSON
    #[arg(id = "report", long, hide_short_help = true, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Print errors only
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}
