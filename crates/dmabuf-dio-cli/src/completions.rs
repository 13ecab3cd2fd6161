// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio completions`.

use clap::CommandFactory;
use dmabuf_dio_terminal::exit::Failure;

use crate::args::{Cli, CompletionsArgs};

// The other subcommands can fail and have the same signature.
#[allow(clippy::unnecessary_wraps)]
pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    clap_complete::generate(args.shell, &mut Cli::command(), "dmabuf-dio", &mut std::io::stdout());
    Ok(())
}
