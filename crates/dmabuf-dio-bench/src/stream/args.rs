// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `dmabuf-dio-bench stream`.

use std::path::PathBuf;

use clap::{Args, value_parser};

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};

/// Arguments of `stream`.
#[derive(Debug, Args)]
#[command(
    about = "Samples of an IIO device into nothing, a file and USB: read() compared with dma-bufs"
)]
#[command(after_help = format!("\
The device should give samples as fast as blocks come: kernel/sim/iio_stream does, with a rate of
0. Before it is measured, each row is run once with every sample compared; what goes to USB is
compared by the host of kernel/sim/usb_sink.

Under vm/run --icount the cost is in instructions, and speed means nothing.

Examples:
  vm/run --kernel 7.3-series -- target/release/dmabuf-dio-bench stream
  vm/run --kernel 7.3-series --icount -- target/release/dmabuf-dio-bench stream --blocks 1M
  tests/with-usb-gadget dmabuf-dio-bench stream --usb /run/ffs

{EXIT_CODES}"))]
pub(crate) struct StreamArgs {
    /// Name, label or number of the device
    #[arg(long, default_value = "stream-adc")]
    pub(crate) device: String,
    /// Sizes of a block, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "16K,1M,64M")]
    pub(crate) blocks: Vec<u64>,
    /// Bytes of a ring of dma-bufs, which has from 4 to 256 blocks
    #[arg(long, value_name = "SIZE", value_parser = whole_pages, default_value = "64M")]
    pub(crate) ring: u64,
    /// Bytes of samples in a run
    #[arg(long, value_name = "SIZE", value_parser = whole_pages, default_value = "512M")]
    pub(crate) total: u64,
    /// Mount point of a functionfs instance, for the USB rows
    #[arg(long, value_name = "FOLDER")]
    pub(crate) usb: Option<PathBuf>,
    /// Only rows whose name contains TEXT: "dma-buf into a file"; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Runs of each row; rows alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// `iio_rwdev` of libiio 1.0 or later, for rows to compare with
    #[arg(long, value_name = "PATH")]
    pub(crate) peer_iio_rwdev: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}
