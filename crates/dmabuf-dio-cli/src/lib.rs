// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `dmabuf-dio`. To load files, use the library of that name.

mod args;
mod dashes;
mod devices;
mod doctor;
#[cfg(any(test, fuzzed))]
#[doc(hidden)]
pub mod fuzzing;
mod generate;
mod keep;
#[cfg(test)]
#[path = "../../../tests/fuzz/library/kept.rs"]
mod kept_inputs;
mod load;
mod remote;
mod save;
mod show;
mod stream;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory as _;
use dmabuf_dio_terminal::exit::{FAILED, Failure};

use crate::args::{Cli, Command};

/// The command line of `dmabuf-dio`.
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// Runs `dmabuf-dio` with the arguments of this process.
pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    run(&words).into()
}

/// Runs `dmabuf-dio` with the words of a command line, the first of which is the program's name. Returns the
/// exit code. Wrong usage and requests for help end the process.
///
/// It handles signals from then on, and expects their default actions or that they are ignored.
pub fn run(words: &[OsString]) -> u8 {
    if has_small_stack() {
        // A thread has its own stack, whose size does not depend on the limit.
        let (builder, own) = (std::thread::Builder::new().stack_size(STACK), words.to_vec());
        if let Ok(thread) = builder.spawn(move || run_here(&own)) {
            return thread.join().unwrap_or(FAILED);
        }
    }
    run_here(words)
}

/// More than parsing the command line needs.
const STACK: usize = 2 << 20;

/// Whether `ulimit -s` limits the stack of the main thread to less than [`STACK`].
fn has_small_stack() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure, which outlives it.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    result == 0 && limit.rlim_cur < STACK as libc::rlim_t
}

fn run_here(words: &[OsString]) -> u8 {
    let mut command = dashes::parse(words).command;
    let resolved = match &mut command {
        Command::Load(args) => args.resolve(),
        _ => Ok(()),
    };
    let done = |result: Result<(), Failure>| result.map(|()| 0);
    let result = resolved.and_then(|()| match &command {
        Command::Doctor(args) => done(doctor::run(args)),
        Command::Devices(args) => done(devices::run(args)),
        Command::Load(args) => load::run(args),
        Command::Save(args) => done(save::run(args)),
        Command::Keep(args) => done(keep::run(args)),
        #[cfg(feature = "remote")]
        Command::Sum(args) => done(remote::sum::run(args)),
        Command::Capture(args) => done(stream::capture::run(args)),
        Command::Video(args) => done(stream::video::capture::run(args)),
        Command::Replay(args) => done(stream::replay::run(args)),
        Command::Completions(args) => {
            generate::completions(args);
            Ok(0)
        }
        Command::Man(args) => done(generate::man(args)),
    });
    match result {
        Ok(code) => code,
        Err(failure) => {
            let code = failure.report("dmabuf-dio");
            match &command {
                // Standard output belongs to the command that a load runs.
                Command::Load(args) => {
                    show::refusals(&failure, &args.common, args.command.is_empty());
                }
                Command::Save(args) => show::refusals(&failure, &args.common, true),
                _ => {}
            }
            code
        }
    }
}
