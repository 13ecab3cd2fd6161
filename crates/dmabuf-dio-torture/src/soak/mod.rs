// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio-torture soak`: the same again and again, as in years of use. Bytes and requests are
//! counted by the module, the library and the device, which must agree; memory must stay flat.

mod args;
mod disk;
mod gathers;
mod gauge;
mod loads;
mod transfers;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use args::Args;
use gauge::Gauge;

/// How often a part looks at the memory.
const LOOKS: u64 = 50;
/// By the second look caches have filled.
const FIRST: u64 = 1;

/// One thing that is repeated.
trait Part {
    fn name(&self) -> &'static str;

    /// Does it once or a few times. Returns how often.
    fn turn(&mut self) -> Result<u64, String>;

    /// Compares all counters with what was done.
    fn judge(&mut self) -> Result<String, String>;
}

/// Repeats it so often, or until the time is over. The lines that begin with "look" are the chart's.
fn repeat(mut part: impl Part, times: u64, limit: Duration) -> Result<(), String> {
    if times == 0 {
        return Ok(());
    }
    let start = Instant::now();
    let (mut done, mut looks, mut first) = (0, 0, None);
    while done < times && start.elapsed() < limit {
        done += part.turn()?;
        // By what is done, and by the clock if that ends the part.
        let share = |done: u128, all: u128| (u128::from(LOOKS) * done / all.max(1)) as u64;
        let due = share(done.into(), times.into())
            .max(share(start.elapsed().as_millis(), limit.as_millis()));
        if due <= looks && looks > 0 {
            continue;
        }
        let gauge = match &first {
            Some(before) => Gauge::await_flat_since(before)
                .map_err(|what| format!("{} after {done}: {what}", part.name()))?,
            None => Gauge::look(),
        };
        let seconds = start.elapsed().as_secs_f64();
        println!("look {} done={done} seconds={seconds:.1} {gauge}", part.name());
        if looks > FIRST {
            first.get_or_insert(gauge);
        }
        looks = due.max(looks + 1);
    }
    let counted = part.judge()?;
    println!(
        "ok {} done={done} seconds={:.1} {counted}",
        part.name(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn run(args: &Args) -> Result<(), String> {
    let limit = Duration::from_secs(args.minutes * 60);
    repeat(transfers::Transfers::new()?, args.gib, limit)?;
    repeat(gathers::Gathers::new()?, args.gathers, limit)?;
    repeat(loads::Loads::new()?, args.loads, limit)
}

pub(crate) fn main(words: &[String]) -> ExitCode {
    let args = match Args::parse(words) {
        Ok(args) => args,
        Err(why) => {
            eprintln!("dmabuf-dio-torture soak: {why}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    if std::env::var_os("DMABUF_DIO_KERNEL").is_none() {
        eprintln!("dmabuf-dio-torture soak: not in a guest\nHint: tests/soak/run");
        return ExitCode::from(2);
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("FAIL {what}");
            ExitCode::FAILURE
        }
    }
}
