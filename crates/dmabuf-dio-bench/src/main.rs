// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio-bench`: the tables of the mailing-list threads that this project refers to, and the
//! cost of loading a file.
//!
//! There is a file or folder for each benchmark, which makes rows (`rows`), and one for each part that they share: the
//! buffers (`buffer`), the ways of filling them (`ways`), the two meters, time and instructions (`measure`), the machine
//! (`host`).

mod args;
mod buffer;
mod compare;
mod cost;
mod disk;
mod fio;
mod host;
mod load;
mod measure;
mod outcome;
mod pattern;
mod process;
mod rates;
mod rows;
mod small;
mod stream;
mod ways;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dmabuf_dio_terminal::exit::Failure;

use args::PROGRAM;

/// Measure transfers between files and dma-bufs on any kernel, and compare every byte
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
struct Cli {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    Load(load::LoadArgs),
    Cost(cost::CostArgs),
    Stream(stream::StreamArgs),
    Rates(rates::RatesArgs),
    Small(small::SmallArgs),
    Compare(compare::CompareArgs),
    CompareWay(compare::child::CompareWayArgs),
}

fn main() -> ExitCode {
    match run(&Cli::parse().benchmark) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(PROGRAM).into(),
    }
}

/// Prints the result. Fails if a row failed.
fn run(benchmark: &Benchmark) -> Result<(), Failure> {
    match benchmark {
        Benchmark::Load(args) => load::measure(args)?,
        Benchmark::Cost(args) => cost::measure(args)?,
        Benchmark::Stream(args) => stream::measure(args)?,
        Benchmark::Rates(args) => rates::measure(args)?,
        Benchmark::Small(args) => small::measure(args)?,
        Benchmark::Compare(args) => compare::measure(args)?,
        Benchmark::CompareWay(args) => return compare::child::run(args),
    }
    .publish()
}
