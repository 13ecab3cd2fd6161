// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU cost of each method of loading a file into memory.

pub(crate) mod args;
mod cases;
mod meter;
mod page;
mod results;

use dmabuf_dio_cli::exit::Failure;
use dmabuf_dio_cli::progress::Bar;
use dmabuf_dio_cli::size::show_size;

use crate::buffer::touch_memory;
use crate::disk::{Caches, DiskFile};
use crate::host::facts::lack_of_memory;
use crate::measure::clock::Clock;
use crate::measure::outcome::Trouble;
use crate::measure::select::select;
use crate::measure::turns::Samples;
use crate::pattern::Pattern;
use args::CostArgs;
use cases::{CostCase, Setup};
use meter::{PhaseCosts, PhaseMeter};
pub(crate) use page::page;
pub(crate) use results::Cost;
use results::{CostsAtSize, Per, line};

/// A run transfers at least this much, if necessary in several transfers, so that a single timer tick
/// is insignificant. The number of transfers is limited.
const RUN: u64 = 64 << 20;
const MOST_TRANSFERS: u64 = 128;

/// Writing to this file does the work that is otherwise done once a second. Each time, the limit of
/// pages kept per CPU decreases by an eighth; after this many times only the minimum is kept.
const STAT_REFRESH: &str = "/proc/sys/vm/stat_refresh";
const TIMES: u32 = 60;

impl Cost {
    pub(crate) fn measure(args: &CostArgs) -> Result<Self, Failure> {
        let cases = selected(&args.only)?;
        let facts = crate::begin(&args.common)?;
        let clock = Clock::start()?;
        let sizes = args.sizes.iter().map(|bytes| size(args, &cases, &clock, *bytes));
        let sizes = sizes.collect::<Result<_, _>>()?;
        Ok(Self {
            schema: 1,
            bench: "cost",
            facts,
            runs: args.runs,
            unit: clock.unit(),
            counted: clock.counted(),
            sizes,
        })
    }
}

fn selected(only: &[String]) -> Result<Vec<CostCase>, Failure> {
    select(cases::all(), only, |case| case.name.clone(), "no way has this name")
}

fn size(
    args: &CostArgs,
    cases: &[CostCase],
    clock: &Clock,
    bytes: u64,
) -> Result<CostsAtSize, Failure> {
    // The buffer and the page cache: to reclaim memory would be part of the figures.
    if let Some(lack) = lack_of_memory(bytes.saturating_mul(2)) {
        return Ok(CostsAtSize::left_out(bytes, lack));
    }
    let disk = match DiskFile::create(&args.common.dir, bytes) {
        Err(failure) => return Ok(CostsAtSize::left_out(bytes, failure.what().to_owned())),
        Ok(disk) => disk,
    };
    let content = Pattern::new(bytes);
    disk.write(&content)?;
    touch_memory(bytes);
    let bench = CostBench { args, clock, disk: &disk, content };
    let lines = bench.cases(cases)?;
    Ok(CostsAtSize { bytes, per: Per::of(bytes), reason: None, cases: lines })
}

struct CostBench<'a> {
    args: &'a CostArgs,
    clock: &'a Clock,
    disk: &'a DiskFile,
    content: Pattern,
}

impl CostBench<'_> {
    /// First, every case runs once and is compared, while no memory has data of earlier runs. Then
    /// each case runs uncounted and, right after that, counted: it so finds all caches in the state
    /// that it leaves them in itself.
    fn cases(&self, cases: &[CostCase]) -> Result<Vec<results::CostResult>, Failure> {
        let (bar, runs) = (Bar::steps(), self.args.runs);
        let caches = Caches::new(self.args.common.keep_caches);
        let steps = u64::from(runs + 2) * cases.len() as u64;
        let mut step = 0;
        let mut attempt = |case: &CostCase, what: &str, setup: &mut Setup<'_>, content| {
            Failure::if_interrupted().inspect_err(|_| bar.finish())?;
            bar.say(format!("{}, {what}: {}", show_size(self.disk.len()), case.name));
            bar.update(step, steps);
            step += 1;
            Ok::<_, Failure>(self.run(case, setup, content))
        };
        let mut results: Vec<Samples<PhaseCosts>> = Vec::new();
        for case in cases {
            let mut setup = Setup::new(self.disk);
            let compared = attempt(case, "comparing", &mut setup, Some(self.content))?;
            results.push(compared.map(|_| Vec::new()));
        }
        for (case, result) in cases.iter().zip(&mut results) {
            caches.drop(self.disk);
            let mut setup = Setup::new(self.disk);
            for run in 0..=runs {
                let Ok(samples) = result else { break };
                match attempt(case, &format!("run {run} of {runs}"), &mut setup, None)? {
                    Ok(_) if run == 0 => {}
                    Ok(sample) => samples.push(sample),
                    // What worked before is not what the kernel lacks.
                    Err(trouble) => *result = Err(trouble.grave()),
                }
            }
        }
        bar.finish();
        Ok(cases.iter().zip(&results).map(|(case, result)| line(case, result)).collect())
    }

    /// One run: the mean of its transfers.
    fn run(
        &self,
        case: &CostCase,
        setup: &mut Setup<'_>,
        content: Option<Pattern>,
    ) -> Result<PhaseCosts, Trouble> {
        let bytes = self.disk.len();
        let transfers = match content {
            Some(_) => 1,
            None => (RUN / bytes).clamp(1, MOST_TRANSFERS),
        };
        return_free_pages();
        self.clock.settle();
        let mut meter = PhaseMeter::new(self.clock, content);
        for _ in 0..transfers {
            (case.run)(setup, &mut meter)?;
            self.disk.forget();
        }
        let count = transfers as f64 * Per::of(bytes).count(bytes);
        Ok(meter.finish().divided_by(count))
    }
}

/// Makes the page allocator release the pages that it keeps per CPU, which it otherwise does in steps
/// once a second, possibly during a run. In addition, these pages are allocated in the order in which
/// they were freed, so that small pages would be adjacent in every other run.
fn return_free_pages() {
    for _ in 0..TIMES {
        // Only root may; without it figures are less repeatable.
        if std::fs::write(STAT_REFRESH, "1").is_err() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_selected_by_parts_of_their_names() {
        let count = |only: &[&str]| {
            selected(&only.iter().map(ToString::to_string).collect::<Vec<_>>())
                .map(|cases| cases.len())
                .map_err(|failure| failure.what().to_owned())
        };
        let all = count(&[]).expect("all");
        assert_eq!(count(&["library: "]), Ok(dmabuf_dio::Backend::ALL.len() + 1));
        assert_eq!(count(&["library: ", "library: heap"]), count(&["library: "]));
        assert_eq!(count(&[""]), Ok(all));
        assert!(count(&["LOAD", "no such"]).expect_err("unknown").contains("no such"));
    }
}
