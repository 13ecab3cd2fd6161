// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `dmabuf-dio`.

mod args;
mod completions;
mod doctor;
mod load;
mod man;
mod save;
mod show;
mod stream;
mod verify;

use std::process::ExitCode;

use clap::Parser;
use dmabuf_dio_cli::{exit, progress, signals, size};

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Doctor(args) => doctor::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Save(args) => save::run(&args),
        Command::Capture(args) => stream::capture::run(&args),
        Command::Replay(args) => stream::replay::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("dmabuf-dio"),
    }
}
