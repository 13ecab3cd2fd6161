// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio bench`: the tables of the threads that this project answers, and what ways cost.

pub(crate) mod args;
mod buffers;
mod clock;
mod compare;
mod cost;
mod disk;
mod facts;
mod gather;
mod grid;
mod load;
mod load_page;
mod mapping;
mod measure;
mod only;
mod page;
mod pattern;
mod results;
mod rows;
mod schemes;
mod setting;
mod small;
mod stream;
mod table;
mod table_page;
mod trouble;
mod turns;
mod ways;

use args::{BenchArgs, CommonArgs, What};
use compare::Compare;
use cost::Cost;
use disk::DiskFile;
use facts::Facts;
use load::Comparison;
use results::Table;
use small::Small;
use stream::Streams;
use trouble::Verdict;

use crate::exit::{DIFFERENT, FAILED, Failure, UNAVAILABLE};
use crate::signals;

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.what {
        What::Table(args) => {
            let table = Table::measure(args)?;
            page::publish(&args.common, &table_page::page(&table), &table)?;
            conclude(table.verdict())
        }
        What::Load(args) => {
            let comparison = Comparison::measure(args)?;
            page::publish(&args.common, &load_page::page(&comparison), &comparison)?;
            conclude(comparison.verdict())
        }
        What::Compare(args) => {
            let compare = Compare::measure(args)?;
            page::publish(&args.common, &compare::page::page(&compare), &compare)?;
            conclude(compare.verdict())
        }
        What::CompareWay(args) => compare::child::run(args),
        What::Stream(args) => {
            let streams = Streams::measure(args)?;
            page::publish(&args.common, &stream::page(&streams), &streams)?;
            conclude(streams.verdict())
        }
        What::Small(args) => {
            let small = Small::measure(args)?;
            page::publish(&args.common, &small::page(&small), &small)?;
            conclude(small.verdict())
        }
        What::Cost(args) => {
            let cost = Cost::measure(args)?;
            page::publish(&args.common, &cost::page(&cost), &cost)?;
            conclude(cost.verdict())
        }
    }
}

/// What a measurement begins with: from here on signals end it in good order, and it is known
/// where it takes place.
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
            "each row says why; dmabuf-dio doctor says what would change it",
        ),
        Verdict::Failed => (
            FAILED,
            "a row failed that should work",
            "the row says how; see dmesg for what the kernel says about it",
        ),
        Verdict::Different => (
            DIFFERENT,
            "a byte was not where it belongs",
            "the row says which; report it with the output of dmabuf-dio doctor",
        ),
    };
    Err(Failure::new(code, what, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_has_an_exit_code_of_its_own() {
        assert!(conclude(Verdict::Good).is_ok());
        for (verdict, code) in
            [(Verdict::Different, 4), (Verdict::NothingRan, 3), (Verdict::Failed, 1)]
        {
            let failure = format!("{:?}", conclude(verdict).expect_err("a failure"));
            assert!(failure.contains(&format!("code: {code}")), "{failure}");
        }
    }
}
