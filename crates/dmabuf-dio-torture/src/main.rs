// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio-torture`: random operations against the module, in a guest.
//!
//! A round makes files, memfds, buffers, contexts and slots, moves data between them, lets disks,
//! signals and allocations fail, and compares every byte with a model that knows what it is. Then
//! everything must be given back. The first failure ends the campaign: its sequence is shortened,
//! and printed as text that `--replay` runs. A seed repeats the operations; those that run at the
//! same time (`together`, `beside`, `signal`) meet at other moments each time.
//!
//! `dmabuf-dio-torture powercut` is another campaign: what is on the disk after the power was cut.
//! `dmabuf-dio-torture fuzz` makes calls that are wrong in every way, led by the code they reach.
//! `dmabuf-dio-torture soak` does the same again and again, and counts.

mod args;
mod buffer;
mod changing;
mod clone;
mod control;
mod device;
mod disk;
mod disturb;
mod fault;
mod fence;
mod file;
mod freezer;
mod full;
mod fuzz;
mod judge;
mod library;
mod limit;
mod load;
mod machine;
mod mapper;
mod mapping;
mod memory;
mod module;
mod ops;
mod pages;
mod plan;
mod plug;
mod powercut;
mod process;
mod procfs;
mod random;
mod report;
mod ring;
mod run;
mod shrink;
mod slot;
mod soak;
mod state;
mod store;
mod swap;
mod together;
mod transfer;
mod unplug;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use args::Args;
use machine::Machine;
use ops::{Op, text};
use report::Report;
use run::Finding;
use state::Memory;

/// How often a sequence is run to shorten it.
const TRIES: usize = 150;
/// Rounds after which the memory of the machine is looked at.
const MEMORY_EVERY: u64 = 25;
/// What may be missing then, in bytes.
const MEMORY_MOST: i64 = 64 << 20;

fn describe(finding: &Finding, ops: &[Op]) -> String {
    match finding.op.and_then(|place| ops.get(place)) {
        Some(op) => format!("'{op}': {}", finding.what),
        None => format!("after the round: {}", finding.what),
    }
}

/// Runs kept sequences. Returns how many failed.
fn replay(machine: &Machine, paths: &[std::path::PathBuf]) -> Result<usize, String> {
    let mut failed = 0;
    for path in paths {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        let ops = ops::parse(&text).map_err(|why| format!("{name}: {why}"))?;
        match run::sequence(machine, &ops) {
            Ok(()) => println!("ok {name}"),
            Err(finding) => {
                println!("FAIL {name}: {}", describe(&finding, &ops));
                failed += 1;
            }
        }
    }
    Ok(failed)
}

fn shorten(machine: &Machine, ops: &[Op]) -> Vec<Op> {
    shrink::shrink(ops, TRIES, &mut |ops| run::sequence(machine, ops).is_err())
}

/// Runs rounds until the time is over or one fails. Returns how many failed.
fn campaign(machine: &Machine, args: &Args) -> usize {
    let start = Instant::now();
    let (mut operations, mut rounds) = (0, 0);
    let mut memory = None;
    let mut failed = None;
    let over = |rounds: u64| match args.rounds {
        Some(most) => rounds >= most,
        None => start.elapsed() >= Duration::from_secs(args.minutes * 60),
    };
    let mut found = None;
    while found.is_none() && !over(rounds) {
        let number = args.first + rounds;
        let ops = plan::round(args.seed, number, args.only);
        if args.verbose {
            // A guest that dies has said where.
            let seconds = start.elapsed().as_secs();
            println!("round {number} operations={operations} seconds={seconds}");
        }
        if let Err(finding) = run::sequence(machine, &ops) {
            operations += finding.op.map_or(ops.len(), |place| place + 1);
            found = Some((number, describe(&finding, &ops)));
            failed = Some(ops);
            break;
        }
        rounds += 1;
        operations += ops.len();
        if rounds % MEMORY_EVERY == 0 {
            let first: &Memory = memory.get_or_insert_with(Memory::look);
            found =
                first.is_there(MEMORY_MOST).err().map(|what| (number, format!("by then: {what}")));
        }
    }
    let time = start.elapsed();
    let count = found.iter().len();
    let tally = machine.tally.take();
    Report { seed: args.seed, rounds, operations, time, tally: &tally, found }.print(args.json);
    if let Some(ops) = failed {
        sequence_of(machine, args, args.first + rounds, &ops);
    }
    count
}

/// Prints the operations that show a finding, as few as possible.
fn sequence_of(machine: &Machine, args: &Args, round: u64, ops: &[Op]) {
    let seed = args.seed;
    if !args.shrink {
        println!("# seed {seed}, round {round}\n{}", text(ops));
        return;
    }
    let shorter = shorten(machine, ops);
    let again = run::sequence(machine, &shorter).err();
    let what = again.map_or("not again".into(), |finding| describe(&finding, &shorter));
    println!("# seed {seed}, round {round}: {what}\n{}", text(&shorter));
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("powercut") => return powercut::main(&words[1..]),
        Some("fuzz") => return fuzz::main(&words[1..]),
        Some("soak") => return soak::main(&words[1..]),
        _ => (),
    }
    let args = match Args::parse(words.into_iter()) {
        Ok(args) => args,
        Err(why) => {
            eprintln!("dmabuf-dio-torture: {why}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    if let Some(number) = args.print {
        print!("{}", text(&plan::round(args.seed, number, args.only)));
        return ExitCode::SUCCESS;
    }
    // Memory and devices of a machine that is in use are no place for this.
    if std::env::var_os("DMABUF_DIO_KERNEL").is_none() {
        eprintln!("dmabuf-dio-torture: not in a guest\nHint: vm/run --kernel 7.3 -- PROGRAM");
        return ExitCode::from(2);
    }
    fault::prepare();
    library::keep::prepare();
    let swap = swap::Swap::start();
    let result = Machine::look(args.folder.clone()).and_then(|machine| {
        println!("seed={} swap={} {machine}", args.seed, swap.is_some());
        if args.replay.is_empty() {
            Ok(campaign(&machine, &args))
        } else {
            replay(&machine, &args.replay)
        }
    });
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("dmabuf-dio-torture: {why}");
            ExitCode::from(3)
        }
    }
}
