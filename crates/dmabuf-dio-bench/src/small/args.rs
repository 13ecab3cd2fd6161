// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `dmabuf-dio-bench small`.

use std::path::PathBuf;

use clap::{Args, value_parser};

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};

/// Arguments of `small`.
#[derive(Debug, Args)]
#[command(
    about = "Random direct reads of 4 KiB: file systems and disk, libaio and io_uring, by queue depth"
)]
#[command(after_help = format!("\
A line is where is read from, how requests are made, and what memory they are for; a column is a
number of requests in flight. Every read is compared in a run that does not count. Of a block device
nothing is written; what arrives is compared with what the page cache has of it.

  user        memory of the process, as it comes
  registered  the same, registered with io_uring
  lent        pages of a dma-buf, lent to io_uring by the kernel module
  gather      the library's Gatherer into lent pages: all reads in one call

Under vm/run --icount the cost is in instructions, and speed means nothing.

Examples:
  dmabuf-dio-bench small --on /mnt/nvme
  dmabuf-dio-bench small --on /mnt/ext4 --on /mnt/xfs --on /dev/nvme1n1 --depths 32 --only lent
  dmabuf-dio-bench small --no-fio --json --output small.json
  vm/run --kernel 7.3-series --icount --raw-disks 4 --append nvme.poll_queues=1 -- \\
      bench/with-file-systems target/release/dmabuf-dio-bench small \\
      --on /mnt/ext4 --on /mnt/xfs --on /mnt/f2fs --on /dev/raw

{EXIT_CODES}"))]
pub(crate) struct SmallArgs {
    /// Folder in which a file is created, or block device to read; may be repeated [default: that of
    /// --dir]
    #[arg(long, value_name = "PATH")]
    pub(crate) on: Vec<PathBuf>,
    /// Bytes of it to read from, a multiple of the page size
    #[arg(long, value_name = "SIZE", value_parser = whole_pages, default_value = "256M")]
    pub(crate) size: u64,
    /// Requests in flight
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',',
          value_parser = value_parser!(u32).range(1..=1024), default_value = "1,32,64,128,256")]
    pub(crate) depths: Vec<u32>,
    /// Reads in a run
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=10_000_000),
          default_value_t = 20_000)]
    pub(crate) reads: u32,
    /// Append 4 KiB to the file, by a direct write, once in READS reads, and count that with them; lines
    /// by fio and gather are left out
    #[arg(long, value_name = "READS", value_parser = value_parser!(u32).range(1..))]
    pub(crate) append_every: Option<u32>,
    /// Runs of each point; points alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Only lines whose name contains TEXT: "ext4, libaio, user"; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Do not run fio for comparison
    #[arg(long)]
    pub(crate) no_fio: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}
