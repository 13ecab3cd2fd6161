// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `dmabuf-dio-bench load`.

use clap::{Args, value_parser};

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};

/// Arguments of `load`.
#[derive(Debug, Args)]
#[command(about = "The schemes of the thread \"DMA_HEAP_ALLOC_AND_READ_FILE heap flag\"")]
#[command(after_help = format!("\
LOAD allocates and reads in one call: \"heap\" by the heap flag of kernel/series, \"module\" by the
kernel module. Without gather it allocates all memory before it reads; with gather it reads while
it allocates. /sys/module/dma_heap/parameters/read_gather is set for that and set back (as root).

Examples:
  dmabuf-dio-bench load --dir /mnt/nvme
  dmabuf-dio-bench load --sizes 8M,256M --runs 9
  dmabuf-dio-bench load --markdown --output load.md

{EXIT_CODES}"))]
pub(crate) struct LoadArgs {
    /// Sizes of the file, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "512K,8M,1G,3G")]
    pub(crate) sizes: Vec<u64>,
    /// Runs of each row; rows alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Memory that LOAD with gather allocates before the first read [default: 128 MiB for the heap
    /// flag, the module's parameter (8 MiB) for the module]
    #[arg(long, value_name = "SIZE", value_parser = whole_pages)]
    pub(crate) gather: Option<u64>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}
