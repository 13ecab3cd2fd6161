// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio-bench`: the tables of the mailing-list threads that this project refers to, and the
//! cost of loading a file.
//!
//! There is a file or folder for each benchmark, and one for each part that they share: the buffers
//! (`buffer`), the ways of filling them (`ways`), the two meters, time and instructions (`measure`), the
//! machine (`host`), output (`report`).

mod args;
mod buffer;
mod compare;
mod cost;
mod disk;
mod fio;
mod host;
mod load;
mod measure;
mod pattern;
mod process;
mod rates;
mod report;
mod small;
mod stream;
mod table;
mod ways;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dmabuf_dio_terminal::exit::{DIFFERENT, FAILED, Failure, UNAVAILABLE};

use args::PROGRAM;
use measure::outcome::Verdict;
use report::page;

/// Measure transfers between files and dma-bufs on any kernel, and compare every byte
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
struct Cli {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    Table(table::TableArgs),
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
        Err(failure) => failure.report(PROGRAM),
    }
}

/// Prints the result. Fails if a row failed.
fn run(benchmark: &Benchmark) -> Result<(), Failure> {
    let (report, common) = match benchmark {
        Benchmark::Table(args) => (table::measure(args)?, &args.common),
        Benchmark::Load(args) => (load::measure(args)?, &args.common),
        Benchmark::Cost(args) => (cost::measure(args)?, &args.common),
        Benchmark::Stream(args) => (stream::measure(args)?, &args.common),
        Benchmark::Rates(args) => (rates::measure(args)?, &args.common),
        Benchmark::Small(args) => (small::measure(args)?, &args.common),
        Benchmark::Compare(args) => (compare::measure(args)?, &args.common),
        Benchmark::CompareWay(args) => return compare::child::run(args),
    };
    page::publish(common, &report)?;
    conclude(Verdict::of(report.statuses))
}

fn conclude(verdict: Verdict) -> Result<(), Failure> {
    let (code, what, hint) = match verdict {
        Verdict::Good => return Ok(()),
        Verdict::NothingRan => (
            UNAVAILABLE,
            "no row could be measured",
            "each row gives the reason; dmabuf-dio doctor says how to change it",
        ),
        Verdict::Failed => {
            (FAILED, "a supported row failed", "the row gives the reason; see dmesg for details")
        }
        Verdict::Different => (
            DIFFERENT,
            "a byte was wrong",
            "the row says which; report it with the output of dmabuf-dio doctor",
        ),
    };
    Err(Failure::new(code, what, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_byte_has_its_own_exit_code() {
        assert!(conclude(Verdict::Good).is_ok());
        for (verdict, code) in
            [(Verdict::Different, 4), (Verdict::NothingRan, 3), (Verdict::Failed, 1)]
        {
            let failure = format!("{:?}", conclude(verdict).expect_err("a failure"));
            assert!(failure.contains(&format!("code: {code}")), "{failure}");
        }
    }
}
