// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `dmabuf-dio-bench cost`.

use clap::{Args, value_parser};

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};

/// Arguments of `cost`.
#[derive(Debug, Args)]
#[command(about = "CPU cost of each way, in instructions per MiB, by phase")]
#[command(after_help = format!("\
Under vm/run --icount a nanosecond is an instruction, and the figures are instructions. Elsewhere
they are nanoseconds, and no more repeatable than times are. Of sizes below 1 MiB the figures are
per transfer, of others per MiB.

  allocation  with mapping, attaching and registering     I/O    moving the bytes
  +           allocated within the call that reads        close  until all is free again

Examples:
  vm/run --kernel 7.3 --icount --memory 4096 -- target/release/dmabuf-dio-bench cost
  dmabuf-dio-bench cost --sizes 4K,64K
  dmabuf-dio-bench cost --only LOAD --only library --sizes 128M --runs 9
  vm/run --kernel 7.3-series --icount --profile functions.txt -- \
      target/release/dmabuf-dio-bench cost --only READ --sizes 128M

{EXIT_CODES}"))]
pub(crate) struct CostArgs {
    /// Sizes of the file, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "8M,128M,1G")]
    pub(crate) sizes: Vec<u64>,
    /// Runs of each way
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Only ways whose name contains TEXT; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}
