// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that are lost at each rate: this project with its defaults, `read()`, and libiio.

pub(crate) mod args;
mod busy;
mod numbers;
mod page;
mod results;
mod rows;
mod ways;

use dmabuf_dio_cli::exit::Failure;

use crate::measure::turns::take_turns;
use crate::stream::device::Adc;
use args::RatesArgs;
pub(crate) use page::page;
use results::RateResult;
pub(crate) use results::Rates;
use rows::RateRow;
use ways::RateBench;

impl Rates {
    pub(crate) fn measure(args: &RatesArgs) -> Result<Self, Failure> {
        let facts = crate::begin(&args.common)?;
        let adc = Adc::find(&args.device)?;
        let bench = RateBench::new(args, &adc)?;
        let rows = rows::selected(args)?;
        let results =
            take_turns(&rows, 1..=args.runs, RateRow::name, |row, _| bench.run(*row).map(Some))?;
        let block = |row: &RateRow| bench.block(*row);
        let lines =
            rows.iter().zip(&results).map(|(row, result)| RateResult::of(*row, block(row), result));
        Ok(Self {
            schema: 1,
            bench: "rates",
            facts,
            device: adc.name().to_owned(),
            frame: adc.frame(),
            seconds: args.seconds,
            runs: args.runs,
            rows: lines.collect(),
        })
    }
}
