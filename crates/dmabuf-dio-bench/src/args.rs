// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command lines of all benchmarks have in common.

use std::path::PathBuf;

use clap::{Args, value_parser};
use dmabuf_dio_terminal::size::parse_size;

/// The name of the program, at the start of its messages.
pub(crate) const PROGRAM: &str = "dmabuf-dio-bench";

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    every row that this kernel can do moved every byte to its place
  1    something failed that should work, or the file cannot be made
  2    wrong usage
  3    no row could be measured
  4    a byte was wrong
  130  interrupted by Ctrl-C";

/// Common options.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Folder for the file, on the storage to measure
    #[arg(long, default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Runs of each row; rows alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(i32).range(1..=99))]
    pub(crate) runs: i32,
    /// Only rows whose name, the first cells of the table with commas between, contains TEXT; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Before each row, drop only the file's page cache instead of all caches (which requires root)
    #[arg(long)]
    pub(crate) keep_caches: bool,
    /// Write the result to FILE as JSON, with the values of every run, too
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Parses a size that is a multiple of the page size.
pub(crate) fn whole_pages(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    let page = rustix::param::page_size() as u64;
    if size == 0 || size % page != 0 {
        return Err(format!("{text:?} is not a multiple of the page size, {page}"));
    }
    Ok(size)
}
