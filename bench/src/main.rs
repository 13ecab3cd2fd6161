// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements of dmabuf-dio.

mod busy;
mod cost;
mod ring;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measurements of dmabuf-dio
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// What moving a file into a dma-buf costs the CPU, way by way
    ///
    /// Prints busy CPU time per MiB in nanoseconds. In a guest with one CPU under
    /// `vm/run --icount` one nanosecond is one instruction; elsewhere the figures are times
    /// and no more repeatable than times are.
    #[command(after_help = "Example:\n  vm/run --kernel 7.3 --icount -- \
                            target/release/dmabuf-dio-bench cost")]
    Cost {
        /// Where the test file goes, on a file system with direct I/O
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// Size of the file in MiB
        #[arg(long, default_value_t = 128)]
        mib: u64,
        /// Runs of each way; the median is printed
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
        runs: u32,
        /// Only the ways whose name contains TEXT
        #[arg(long, value_name = "TEXT", default_value = "")]
        only: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let What::Cost { dir, mib, runs, only, json } = Args::parse().what;
    match cost::run(&dir, mib, runs, &only, json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dmabuf-dio-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
