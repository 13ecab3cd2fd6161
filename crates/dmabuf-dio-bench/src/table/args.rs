// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `dmabuf-dio-bench table`.

use clap::{Args, ValueEnum, value_parser};
use dmabuf_dio::Direction;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};

/// Arguments of `table`.
#[derive(Debug, Args)]
#[command(about = "The 22 ways of the thread \"dmabuf direct I/O via copy_file_range\"")]
#[command(after_help = format!("\
A row is a kind of buffer, a mode and a way. A way that this kernel lacks says so in place of
figures. The file has no name and is gone afterwards.

  dmabuf   a dma-buf of the system heap        buffer  through the page cache
  udmabuf  a dma-buf made of a memfd           direct  past it, O_DIRECT
  memfd    shared memory without pages yet     R/W     read() or write() on a mapping
  u+memfd  a udmabuf; bytes move by its memfd  c_f_r   copy_file_range()

Examples:
  dmabuf-dio-bench table --dir /mnt/nvme
  dmabuf-dio-bench table --buffers 4 --runs 5 --direction both
  dmabuf-dio-bench table --json --output table.json

{EXIT_CODES}"))]
pub(crate) struct TableArgs {
    /// Number of buffers
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = value_parser!(u64).range(1..=512))]
    pub(crate) buffers: u64,
    /// Size of a buffer, a multiple of the page size
    #[arg(long, value_name = "SIZE", value_parser = whole_pages, default_value = "32MiB")]
    pub(crate) size: u64,
    /// Runs of each row; rows alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// From the file to the buffers, from the buffers to the file, or both
    #[arg(long, value_enum, default_value_t = Directions::Read)]
    pub(crate) direction: Directions,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Directions {
    Read,
    Write,
    Both,
}

impl Directions {
    pub(crate) fn each(self) -> &'static [Direction] {
        match self {
            Self::Read => &[Direction::Load],
            Self::Write => &[Direction::Save],
            Self::Both => &[Direction::Load, Direction::Save],
        }
    }
}
