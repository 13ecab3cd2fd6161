// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio-torture fuzz`: sequences of calls, most of them wrong in some way, of which those that
//! reach new code of the module are kept and changed further.
//!
//! An input is a few calls that a process makes. `kernel/coverage` says how many basic blocks of the
//! module were reached; without it inputs are drawn anew each time. A failure is shortened, and printed
//! as text that `--replay` runs. A seed repeats what is drawn, not which inputs reach something new,
//! as threads, signals and the kernel's own work come at other moments.

mod args;
mod call;
mod child;
mod domain;
mod draw;
mod known;
mod pool;
mod report;
mod ring;
mod rings;
mod run;
mod shared;
mod structures;
mod system;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use args::Args;
use call::{Call, text};
use report::Report;
use run::Runner;

use crate::machine::Machine;
use crate::random::Random;
use crate::state::{Memory, State};
use crate::{fault, shrink};

/// Inputs after which everything has to be given back.
const BATCH: u64 = 50;
/// Batches after which memory is looked at.
const MEMORY_EVERY: u64 = 20;
/// Bytes that may be missing then
const MEMORY_MOST: i64 = 64 << 20;
/// How often an input is run to shorten it
const TRIES: usize = 60;

struct Campaign<'a> {
    runner: Runner<'a>,
    args: &'a Args,
    random: Random,
    corpus: Vec<Vec<Call>>,
    start: Instant,
    executions: u64,
    /// Of the corpus' last growth
    blocks: u64,
}

/// What must not be, and the input if it is known.
type Finding = (String, Option<Vec<Call>>);

impl Campaign<'_> {
    fn over(&self) -> bool {
        match self.args.executions {
            Some(most) => self.executions >= most,
            None => self.start.elapsed() >= Duration::from_secs(self.args.minutes * 60),
        }
    }

    /// Mostly those that came last are changed.
    fn pick(&mut self) -> &[Call] {
        let many = self.corpus.len() as u64;
        let from = if self.random.one_in(2) { many.saturating_sub(10) } else { 0 };
        &self.corpus[self.random.in_range(from..many) as usize]
    }

    fn draw(&mut self) -> Vec<Call> {
        if self.corpus.is_empty() || self.random.one_in(4) {
            return draw::input(&mut self.random);
        }
        let one = self.pick().to_vec();
        let other = self.pick().to_vec();
        draw::mutate(&mut self.random, &one, &other)
    }

    fn batch(&mut self) -> Result<(), Finding> {
        let unknown = |what| (what, None);
        let before = State::look(self.runner.machine).map_err(unknown)?;
        let mut ran = Vec::new();
        while (ran.len() as u64) < BATCH && !self.over() {
            let input = self.draw();
            self.executions += 1;
            if self.args.verbose {
                println!("# input {}\n{}", self.executions, text(&input));
            }
            let reached = Runner::blocks().unwrap_or(0);
            self.runner.run(&input).map_err(|what| (what, Some(input.clone())))?;
            if let Some(now) = Runner::blocks().filter(|now| *now > reached) {
                self.blocks = now;
                self.corpus.push(input.clone());
            }
            ran.push(input);
        }
        self.runner.pool.reset();
        let Err(what) = before.await_again(self.runner.machine) else { return Ok(()) };
        // Whose fault it is shows if each is run by itself.
        for input in ran.into_iter().rev() {
            if let Err(what) = self.runner.alone(&input) {
                return Err((what, Some(input)));
            }
        }
        Err((format!("{what}, of no input by itself"), None))
    }

    fn all(&mut self) -> Result<(), Finding> {
        let mut memory = None;
        let mut batches = 0;
        while !self.over() {
            self.batch()?;
            batches += 1;
            if batches % MEMORY_EVERY == 1 {
                let first: &Memory = memory.get_or_insert_with(Memory::look);
                first.is_there(MEMORY_MOST).map_err(|what| (what, None))?;
            }
        }
        Ok(())
    }

    fn print(&self, found: Option<&str>) {
        let report = Report {
            seed: self.args.seed,
            executions: self.executions,
            corpus: self.corpus.len(),
            blocks: Runner::blocks(),
            time: self.start.elapsed(),
            shared: self.runner.shared,
            found,
        };
        print!("{}", if self.args.json { report.json() } else { report.words() });
    }

    fn write_corpus(&self) -> Result<(), String> {
        let Some(folder) = &self.args.corpus else { return Ok(()) };
        for (number, input) in self.corpus.iter().enumerate() {
            let path = folder.join(format!("{number:04}.calls"));
            std::fs::write(&path, text(input))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    /// Prints the calls that show a finding, as few as possible.
    fn shorten(&self, input: &[Call]) {
        if !self.args.shrink {
            print!("# the input\n{}", text(input));
            return;
        }
        let shorter = shrink::shrink(input, TRIES, &mut |calls| self.runner.alone(calls).is_err());
        let again = self.runner.alone(&shorter).err();
        println!("# {}\n{}", again.unwrap_or("not again".into()), text(&shorter));
    }
}

fn campaign(machine: &Machine, args: &Args) -> Result<bool, String> {
    let mut campaign = Campaign {
        runner: Runner::prepare(machine)?,
        args,
        random: Random::of_round(args.seed, 0),
        corpus: Vec::new(),
        start: Instant::now(),
        executions: 0,
        blocks: 0,
    };
    let found = campaign.all().err();
    campaign.print(found.as_ref().map(|(what, _)| what.as_str()));
    if let Some((_, Some(input))) = &found {
        campaign.shorten(input);
    }
    campaign.write_corpus()?;
    Ok(found.is_none())
}

fn replay(machine: &Machine, paths: &[PathBuf]) -> Result<bool, String> {
    let runner = Runner::prepare(machine)?;
    let mut good = true;
    for path in paths {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        let calls = call::parse(&text).map_err(|why| format!("{name}: {why}"))?;
        match runner.alone(&calls) {
            Ok(()) => println!("ok {name}"),
            Err(what) => {
                println!("FAIL {name}: {what}");
                good = false;
            }
        }
    }
    Ok(good)
}

pub(crate) fn main(words: &[String]) -> ExitCode {
    let args = match Args::parse(words) {
        Ok(args) => args,
        Err(why) => {
            eprintln!("dmabuf-dio-torture: {why}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    if std::env::var_os("DMABUF_DIO_KERNEL").is_none() {
        eprintln!("dmabuf-dio-torture: not in a guest\nHint: vm/run --kernel 7.3 -- PROGRAM");
        return ExitCode::from(2);
    }
    fault::prepare();
    let result = Machine::look(".".into()).and_then(|machine| {
        println!("seed={} {machine}", args.seed);
        if args.replay.is_empty() {
            campaign(&machine, &args)
        } else {
            replay(&machine, &args.replay)
        }
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("dmabuf-dio-torture: {why}");
            ExitCode::from(3)
        }
    }
}
