// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio load`.

mod by_path;
mod child;
mod folder;
mod inherited;
mod loader;
mod many;
mod plan;
mod program;
mod report;
mod template;
mod verify;

use dmabuf_dio_terminal::exit::Failure;

use crate::args::files::LoadArgs;

/// Loads, and runs the command if there is one. Returns the exit code.
pub(crate) fn run(args: &LoadArgs) -> Result<u8, Failure> {
    if let Some(program) = args.command.first() {
        program::check(program)?;
    }
    if template::wants_path(&args.command) { by_path::run(args) } else { inherited::run(args) }
}
