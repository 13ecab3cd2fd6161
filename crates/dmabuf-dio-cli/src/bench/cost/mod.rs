// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each way to have a file in memory costs the CPU.

pub(crate) mod args;
pub(crate) mod meter;
mod page;
mod results;
pub(crate) mod ring;
mod ways;
pub(crate) mod window;

use crate::bench::clock::Clock;
use args::CostArgs;
use meter::{Meter, Spent};
pub(crate) use page::page;
pub(crate) use results::Cost;
use results::{Per, Samples, Size, line};
use ways::{Setup, Way};

use super::buffers::touch_memory;
use super::disk::{Caches, DiskFile};
use super::facts::lack_of_memory;
use super::only::select;
use super::pattern::Pattern;
use super::trouble::Trouble;
use crate::exit::Failure;
use crate::progress::Bar;
use crate::size::show_size;

/// A run moves at least this much, in several transfers if need be, so that a timer tick more
/// or less does not matter; but not in more transfers than that.
const RUN: u64 = 64 << 20;
const MOST_TRANSFERS: u64 = 128;

/// Writing to it does at once what is due once a second. The limit on what is kept becomes an
/// eighth less, so after so many times nothing is kept above what always is.
const STAT_REFRESH: &str = "/proc/sys/vm/stat_refresh";
const TIMES: u32 = 60;

impl Cost {
    pub(crate) fn measure(args: &CostArgs) -> Result<Self, Failure> {
        let ways = selected(&args.only)?;
        let facts = super::begin(&args.common)?;
        let clock = Clock::start()?;
        let sizes = args.sizes.iter().map(|bytes| size(args, &ways, &clock, *bytes));
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

fn selected(only: &[String]) -> Result<Vec<Way>, Failure> {
    select(ways::all(), only, |way| way.name.clone(), "no way has that name")
}

fn size(args: &CostArgs, ways: &[Way], clock: &Clock, bytes: u64) -> Result<Size, Failure> {
    // The buffer and the page cache: to reclaim memory would be part of the figures.
    if let Some(lack) = lack_of_memory(bytes.saturating_mul(2)) {
        return Ok(Size::left_out(bytes, lack));
    }
    let disk = match DiskFile::create(&args.common.dir, bytes) {
        Err(failure) => return Ok(Size::left_out(bytes, failure.what().to_owned())),
        Ok(disk) => disk,
    };
    let content = Pattern::new(bytes);
    disk.write(&content)?;
    touch_memory(bytes);
    let bench = Bench { args, clock, disk: &disk, content };
    let lines = bench.ways(ways)?;
    Ok(Size { bytes, per: Per::of(bytes), reason: None, ways: lines })
}

struct Bench<'a> {
    args: &'a CostArgs,
    clock: &'a Clock,
    disk: &'a DiskFile,
    content: Pattern,
}

impl Bench<'_> {
    /// First every way is tried and compared, while no memory holds what runs before left there.
    /// Then each is run once more without being counted, and right after that counted: what
    /// the run before left behind, in caches of all kinds, is its own.
    fn ways(&self, ways: &[Way]) -> Result<Vec<results::Line>, Failure> {
        let (bar, runs) = (Bar::steps(), self.args.runs);
        let caches = Caches::new(self.args.common.keep_caches);
        let steps = u64::from(runs + 2) * ways.len() as u64;
        let mut step = 0;
        let mut attempt = |way: &Way, what: &str, setup: &mut Setup<'_>, content| {
            Failure::if_interrupted().inspect_err(|_| bar.finish())?;
            bar.say(format!("{}, {what}: {}", show_size(self.disk.len()), way.name));
            bar.update(step, steps);
            step += 1;
            Ok::<_, Failure>(self.run(way, setup, content))
        };
        let mut results: Vec<Samples> = Vec::new();
        for way in ways {
            let mut setup = Setup::new(self.disk);
            let compared = attempt(way, "comparing", &mut setup, Some(self.content))?;
            results.push(compared.map(|_| Vec::new()));
        }
        for (way, result) in ways.iter().zip(&mut results) {
            caches.drop(self.disk);
            let mut setup = Setup::new(self.disk);
            for run in 0..=runs {
                let Ok(samples) = result else { break };
                match attempt(way, &format!("run {run} of {runs}"), &mut setup, None)? {
                    Ok(_) if run == 0 => {}
                    Ok(sample) => samples.push(sample),
                    // What worked before is not what the kernel lacks.
                    Err(trouble) => *result = Err(trouble.grave()),
                }
            }
        }
        bar.finish();
        Ok(ways.iter().zip(&results).map(|(way, result)| line(way, result)).collect())
    }

    /// One run: the mean of its transfers.
    fn run(
        &self,
        way: &Way,
        setup: &mut Setup<'_>,
        content: Option<Pattern>,
    ) -> Result<Spent, Trouble> {
        let bytes = self.disk.len();
        let transfers = match content {
            Some(_) => 1,
            None => (RUN / bytes).clamp(1, MOST_TRANSFERS),
        };
        return_free_pages();
        self.clock.settle();
        let mut meter = Meter::new(self.clock, content);
        for _ in 0..transfers {
            (way.run)(setup, &mut meter)?;
            self.disk.forget();
        }
        let count = transfers as f64 * Per::of(bytes).count(bytes);
        Ok(meter.finish().divided_by(count))
    }
}

/// Makes the page allocator give back what it keeps per CPU, which it does bit by bit, once a
/// second: in the middle of a run, or not. Besides, these pages come back in the order in which
/// they were freed, so that small pages would be neighbours in every other run.
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
                .map(|ways| ways.len())
                .map_err(|failure| failure.what().to_owned())
        };
        let all = count(&[]).expect("all");
        assert_eq!(count(&["library: "]), Ok(dmabuf_dio::Backend::ALL.len() + 1));
        assert_eq!(count(&["library: ", "library: heap"]), count(&["library: "]));
        assert_eq!(count(&[""]), Ok(all));
        assert!(count(&["LOAD", "no such"]).expect_err("unknown").contains("no such"));
    }
}
