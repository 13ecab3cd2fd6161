// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `dmabuf-dio bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, value_parser};

use super::cost::args::CostArgs;
use super::ways::Direction;
use crate::size::parse_size;

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    every row that this kernel can do moved every byte to its place
  1    something failed that should work, or the file cannot be made
  2    wrong usage
  3    no row could be measured
  4    a byte was wrong
  130  interrupted by Ctrl-C";

/// Measure the ways between a file and dma-bufs, on any kernel, and compare every byte
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    Table(TableArgs),
    Load(LoadArgs),
    Cost(CostArgs),
}

/// What `bench table` takes.
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
  dmabuf-dio bench table --dir /mnt/nvme
  dmabuf-dio bench table --buffers 4 --runs 5 --direction both
  dmabuf-dio bench table --json --output table.json

{EXIT_CODES}"))]
pub(crate) struct TableArgs {
    /// Number of buffers
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = value_parser!(u64).range(1..=512))]
    pub(crate) buffers: u64,
    /// Size of a buffer, a multiple of the page size
    #[arg(long, value_name = "SIZE", value_parser = whole_pages, default_value = "32MiB")]
    pub(crate) size: u64,
    /// Runs of each row; rows take turns
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// From the file to the buffers, the other way, or first one and then the other
    #[arg(long, value_enum, default_value_t = Directions::Read)]
    pub(crate) direction: Directions,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What `bench load` takes.
#[derive(Debug, Args)]
#[command(about = "The schemes of the thread \"DMA_HEAP_ALLOC_AND_READ_FILE heap flag\"")]
#[command(after_help = format!("\
LOAD allocates and reads in one call: \"heap\" by the heap flag of kernel/series, \"module\" by the
kernel module. Without gather it allocates all memory before it reads; with gather it reads while
it allocates. /sys/module/dma_heap/parameters/read_gather is set for that and set back (as root).

Examples:
  dmabuf-dio bench load --dir /mnt/nvme
  dmabuf-dio bench load --sizes 8M,256M --runs 9
  dmabuf-dio bench load --markdown --output load.md

{EXIT_CODES}"))]
pub(crate) struct LoadArgs {
    /// Sizes of the file, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "512K,8M,1G,3G")]
    pub(crate) sizes: Vec<u64>,
    /// Runs of each row; rows take turns
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Memory that LOAD with gather allocates before the first read [default: 128 MiB by the
    /// heap flag, 8 MiB or its parameter by the module]
    #[arg(long, value_name = "SIZE", value_parser = whole_pages)]
    pub(crate) gather: Option<u64>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Options of all measurements.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Folder for the file, on the storage to measure
    #[arg(long, default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Before each row drop only the file's cache, not also all others (which only root may)
    #[arg(long)]
    pub(crate) keep_caches: bool,
    /// Print JSON, with the values of every run
    #[arg(long)]
    pub(crate) json: bool,
    /// Print Markdown
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// Write the result to FILE and print it as text
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// What is measured, for the result: a commit, say
    #[arg(long, value_name = "TEXT")]
    pub(crate) commit: Option<String>,
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
            Self::Read => &[Direction::Read],
            Self::Write => &[Direction::Write],
            Self::Both => &[Direction::Read, Direction::Write],
        }
    }
}

/// Reads a size that is a multiple of the page size.
pub(crate) fn whole_pages(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    let page = rustix::param::page_size() as u64;
    if size == 0 || size % page != 0 {
        return Err(format!("{text:?} is no multiple of the page size, {page}"));
    }
    Ok(size)
}
