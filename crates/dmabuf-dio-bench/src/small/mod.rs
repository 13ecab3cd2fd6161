// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of the thread "iomap: add simple dio path for small direct I/O", for lent memory and
//! for memory of the process.

mod appends;
pub(crate) mod args;
mod engine;
mod fio;
mod gather;
mod libaio;
mod memory;
mod page;
mod results;
mod rows;
mod target;
mod uring;

use dmabuf_dio_cli::exit::Failure;

use crate::compare::fio::SequentialFio;
use crate::measure::clock::Clock;
use crate::measure::turns::take_turns;
use args::SmallArgs;
pub(crate) use page::page;
pub(crate) use results::Small;
use results::{Point, ReadResult};
use rows::ReadRow;
use target::Target;

/// Bytes per read.
const BLOCK: u64 = 4096;

impl Small {
    pub(crate) fn measure(args: &SmallArgs) -> Result<Self, Failure> {
        let facts = crate::begin(&args.common)?;
        let dir = [args.common.dir.clone()];
        let paths = if args.on.is_empty() { &dir[..] } else { &args.on };
        let targets = (0..).zip(paths).map(|(number, path)| Target::open(path, args, number));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let clock = Clock::start()?;
        let rows = ReadRow::selected(&targets, args)?;
        let lines = lines(&rows, args, &clock)?;
        Ok(Self {
            schema: 1,
            bench: "small",
            facts,
            fio: if args.no_fio { None } else { SequentialFio::version() },
            runs: args.runs,
            reads: args.reads,
            size: args.size,
            append_every: args.append_every,
            unit: clock.unit(),
            counted: clock.counted(),
            depths: args.depths.clone(),
            lines,
        })
    }
}

/// The offsets to read from, the same for all lines.
fn offsets(args: &SmallArgs) -> Vec<u64> {
    let blocks = args.size / BLOCK;
    // Marsaglia's xorshift64 (Journal of Statistical Software 8(14), 2003).
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % blocks * BLOCK
    };
    std::iter::repeat_with(next).take(args.reads as usize).collect()
}

/// Runs every point once with comparison, then all points alternately.
fn lines(
    rows: &[ReadRow<'_>],
    args: &SmallArgs,
    clock: &Clock,
) -> Result<Vec<ReadResult>, Failure> {
    let offsets = offsets(args);
    let points: Vec<_> =
        rows.iter().flat_map(|row| args.depths.iter().map(move |depth| (row, *depth))).collect();
    let name = |(row, depth): &(&ReadRow<'_>, u32)| format!("{}, {depth} in flight", row.name());
    let run = |(row, depth): &(&ReadRow<'_>, u32), run| match run {
        0 => row.compare(*depth, &offsets).map(|()| None),
        _ => row.run(*depth, &offsets, clock).map(Some),
    };
    let results = take_turns(&points, 0..=args.runs, name, run)?;
    let results = results.chunks(args.depths.len());
    Ok(rows
        .iter()
        .zip(results)
        .map(|(row, results)| {
            let points = args.depths.iter().zip(results);
            ReadResult::of(row, points.map(|(depth, result)| Point::of(*depth, result)).collect())
        })
        .collect())
}
