// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `dmabuf-dio bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, value_parser};

use super::compare::{Own, Tensors};
use super::cost::args::CostArgs;
use super::small::args::SmallArgs;
use super::stream::args::StreamArgs;
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
    Stream(StreamArgs),
    Small(SmallArgs),
    Compare(CompareArgs),
    CompareWay(WayArgs),
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

/// What `bench compare` takes.
#[derive(Debug, Args)]
#[command(about = "Every way that a file can get into memory here, and what the disk could do")]
#[command(after_help = format!("\
A way is measured in a process of its own, from nothing but the path to all bytes in memory. fio,
if it is installed, says what the disk could do. As root, huge pages are allowed and read-ahead is
set while a way is measured that wants it, and everything is set back.

  dmabuf-dio   the library, by backend           read()     through the page cache
  mmap         the mapped file, every page       pread,     past the page cache, O_DIRECT,
               of it touched                     io_uring   into anonymous memory

A peer is a command that is started with the path as its last argument, and then --verify SEED
where it is to compare the content. It prints {{\"ready\":true}}, waits for a line on its standard
input, loads, and prints one line of JSON; docs/measuring.md says what is in it.

Examples:
  dmabuf-dio bench compare --dir /mnt/nvme
  dmabuf-dio bench compare --sizes 13G --runs 3 --ways memfd,read-malloc,mmap-8m
  dmabuf-dio bench compare --sizes 4K,16K,64K --runs 9
  dmabuf-dio bench compare --processes 4 --sizes 1G --tensors many
  dmabuf-dio bench compare --peer 'safetensors=python3 load_safetensors.py'

{EXIT_CODES}"))]
pub(crate) struct CompareArgs {
    /// Sizes of a file, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "512K,8M,128M,1G,3G")]
    pub(crate) sizes: Vec<u64>,
    /// Runs of each way, five times as many of files below 1 MiB; ways take turns
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Only these of our own ways; fio and peers are measured all the same
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = own_way)]
    pub(crate) ways: Vec<&'static Own>,
    /// Processes that load at the same time, each a file of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    pub(crate) processes: u64,
    /// What a file holds
    #[arg(long, value_enum, default_value_t = Tensors::Few)]
    pub(crate) tensors: Tensors,
    /// Another program that loads a file, to compare with; can be given several times
    #[arg(long = "peer", value_name = "NAME=COMMAND", value_parser = peer)]
    pub(crate) peers: Vec<Peer>,
    /// Compare every byte in every run, not only in the first of each way
    #[arg(long)]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Another program that loads a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) command: String,
}

/// Load a file once, in one way: what `bench compare` starts
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct WayArgs {
    #[arg(long, value_parser = own_way)]
    pub(crate) way: &'static Own,
    /// Compare every byte with what belongs there
    #[arg(long, value_name = "SEED")]
    pub(crate) verify: Option<u64>,
    #[arg(long, value_enum)]
    pub(crate) tensors: Tensors,
    pub(crate) file: PathBuf,
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

fn own_way(id: &str) -> Result<&'static Own, String> {
    Own::named(id).ok_or_else(|| {
        let ids: Vec<&str> = Own::all().map(|own| own.id).collect();
        format!("there is no such way: they are {}", ids.join(", "))
    })
}

fn peer(text: &str) -> Result<Peer, String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
            Ok(Peer { name: name.into(), command: command.into() })
        }
        _ => Err("write NAME=COMMAND".into()),
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
