// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that the programs of this project share: sizes on the command line, failures, signals and
//! progress bars. Also the command `dmabuf-dio` itself. The interface is not stable. To load files,
//! use the library `dmabuf-dio`.

mod args;
mod by_path;
mod completions;
mod dashes;
mod devices;
mod doctor;
pub mod exit;
mod load;
mod man;
mod program;
pub mod progress;
mod save;
mod show;
pub mod signals;
pub mod size;
mod stream;
mod verify;
mod video;

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::args::{Cli, Command};

/// The command line of `dmabuf-dio`.
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// Runs `dmabuf-dio` with the arguments of this process.
pub fn main() -> ExitCode {
    let result = match dashes::parse().command {
        Command::Doctor(args) => doctor::run(&args).map(|()| 0),
        Command::Devices(args) => devices::run(&args).map(|()| 0),
        Command::Load(args) => load::run(&args)
            .map_err(|failure| failure.with_details(&args.common, args.command.is_empty())),
        Command::Save(args) => {
            save::run(&args).map(|()| 0).map_err(|failure| failure.with_details(&args.common, true))
        }
        Command::Capture(args) => stream::capture::run(&args).map(|()| 0),
        Command::Replay(args) => stream::replay::run(&args).map(|()| 0),
        Command::Completions(args) => completions::run(&args).map(|()| 0),
        Command::Man(args) => man::run(&args).map(|()| 0),
    };
    match result {
        Ok(code) => code.into(),
        Err(failure) => failure.report("dmabuf-dio"),
    }
}
