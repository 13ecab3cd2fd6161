// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `dmabuf-dio`. To load files, use the library of that name.

mod args;
mod dashes;
mod devices;
mod doctor;
mod generate;
mod load;
mod save;
mod show;
mod stream;

use std::process::ExitCode;

use clap::CommandFactory as _;
use dmabuf_dio_terminal::exit::Failure;

use crate::args::{Cli, Command};

/// The command line of `dmabuf-dio`.
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// Runs `dmabuf-dio` with the arguments of this process.
pub fn main() -> ExitCode {
    if has_small_stack() {
        // A thread has its own stack, whose size does not depend on the limit.
        if let Ok(thread) = std::thread::Builder::new().stack_size(STACK).spawn(run) {
            return thread.join().unwrap_or(ExitCode::FAILURE);
        }
    }
    run()
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

fn run() -> ExitCode {
    let command = dashes::parse().command;
    let done = |result: Result<(), Failure>| result.map(|()| 0);
    let result = match &command {
        Command::Doctor(args) => done(doctor::run(args)),
        Command::Devices(args) => done(devices::run(args)),
        Command::Load(args) => load::run(args),
        Command::Save(args) => done(save::run(args)),
        Command::Capture(args) => done(stream::capture::run(args)),
        Command::Video(args) => done(stream::video::capture::run(args)),
        Command::Replay(args) => done(stream::replay::run(args)),
        Command::Completions(args) => {
            generate::completions(args);
            Ok(0)
        }
        Command::Man(args) => done(generate::man(args)),
    };
    match result {
        Ok(code) => code.into(),
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
