// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `dmabuf-dio`. To load files, use the library of that name.

mod args;
mod completions;
mod dashes;
mod devices;
mod doctor;
mod load;
mod man;
mod save;
mod show;
mod stream;

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::args::{Cli, Command};

/// The command line of `dmabuf-dio`.
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// Runs `dmabuf-dio` with the arguments of this process.
pub fn main() -> ExitCode {
    if has_small_stack() {
        // A thread has a stack of its own.
        if let Ok(thread) = std::thread::Builder::new().stack_size(STACK).spawn(run) {
            return thread.join().unwrap_or(ExitCode::FAILURE);
        }
    }
    run()
}

/// More than parsing the command line needs.
const STACK: usize = 2 << 20;

/// Whether `ulimit -s` leaves the main thread less than that.
fn has_small_stack() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure, which outlives it.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    result == 0 && limit.rlim_cur < STACK as libc::rlim_t
}

fn run() -> ExitCode {
    let command = dashes::parse().command;
    // Standard output belongs to the command that a load runs.
    let (result, details) = match &command {
        Command::Doctor(args) => (doctor::run(args).map(|()| 0), None),
        Command::Devices(args) => (devices::run(args).map(|()| 0), None),
        Command::Load(args) => (load::run(args), Some((&args.common, args.command.is_empty()))),
        Command::Save(args) => (save::run(args).map(|()| 0), Some((&args.common, true))),
        Command::Capture(args) => (stream::capture::run(args).map(|()| 0), None),
        Command::Video(args) => (stream::video::capture::run(args).map(|()| 0), None),
        Command::Replay(args) => (stream::replay::run(args).map(|()| 0), None),
        Command::Completions(args) => (completions::run(args).map(|()| 0), None),
        Command::Man(args) => (man::run(args).map(|()| 0), None),
    };
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            let code = failure.report("dmabuf-dio");
            if let Some((common, output)) = details {
                show::refusals(&failure, common, output);
            }
            code
        }
    }
}
