// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio-bench`: the tables of the mailing-list threads that this project refers to, and the
//! cost of loading a file.
//!
//! There is a folder for each benchmark, and one for each part that they share: the buffers
//! (`buffer`), clocks and outcomes (`measure`), the machine (`host`), output (`report`).

mod args;
mod buffer;
mod compare;
mod cost;
mod disk;
mod host;
mod load;
mod measure;
mod pattern;
mod rates;
mod report;
mod small;
mod stream;
mod table;

use std::process::ExitCode;

use clap::Parser as _;
use dmabuf_dio_cli::exit::{DIFFERENT, FAILED, Failure, UNAVAILABLE};
use dmabuf_dio_cli::signals;
use serde::Serialize;

use args::{Benchmark, Cli, CommonArgs};
use compare::Compare;
use cost::Cost;
use disk::DiskFile;
use host::facts::Facts;
use load::SchemeComparison;
use measure::outcome::Verdict;
use rates::Rates;
use report::page::{self, Page};
use small::Small;
use stream::Streams;
use table::Table;

/// The name of the program, at the start of its messages.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_NAME");

fn main() -> ExitCode {
    match run(&Cli::parse().benchmark) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(PROGRAM),
    }
}

fn run(benchmark: &Benchmark) -> Result<(), Failure> {
    match benchmark {
        Benchmark::Table(args) => {
            finish(&args.common, &Table::measure(args)?, table::page, Table::verdict)
        }
        Benchmark::Load(args) => finish(
            &args.common,
            &SchemeComparison::measure(args)?,
            load::page,
            SchemeComparison::verdict,
        ),
        Benchmark::Cost(args) => {
            finish(&args.common, &Cost::measure(args)?, cost::page, Cost::verdict)
        }
        Benchmark::Stream(args) => {
            finish(&args.common, &Streams::measure(args)?, stream::page, Streams::verdict)
        }
        Benchmark::Rates(args) => {
            finish(&args.common, &Rates::measure(args)?, rates::page, Rates::verdict)
        }
        Benchmark::Small(args) => {
            finish(&args.common, &Small::measure(args)?, small::page, Small::verdict)
        }
        Benchmark::Compare(args) => {
            finish(&args.common, &Compare::measure(args)?, compare::page, Compare::verdict)
        }
        Benchmark::CompareWay(args) => compare::child::run(args),
    }
}

/// Prints the result. Fails if a row failed.
fn finish<T: Serialize>(
    args: &CommonArgs,
    result: &T,
    page: fn(&T) -> Page,
    verdict: fn(&T) -> Verdict,
) -> Result<(), Failure> {
    page::publish(args, &page(result), result)?;
    conclude(verdict(result))
}

/// Starts a measurement: handles signals, so that settings are restored, and collects facts about
/// the machine.
fn begin(args: &CommonArgs) -> Result<Facts, Failure> {
    signals::token();
    Ok(Facts::gather(&DiskFile::create(&args.dir, 0)?, args))
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
