// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio load`.

mod by_path;
mod child;
mod folder;
mod inherited;
mod kept;
mod loader;
mod many;
pub(crate) mod plan;
mod program;
mod report;
pub(crate) mod template;
mod verify;

use dmabuf_dio_terminal::exit::{Failure, USAGE};

use crate::args::files::LoadArgs;
use crate::args::url::{is_url, shown};

/// Loads, and runs the command if there is one. Returns the exit code.
pub(crate) fn run(args: &LoadArgs) -> Result<u8, Failure> {
    if let Some(program) = args.command.first() {
        program::check(program)?;
    }
    args.remote.check(&args.file)?;
    if let Some(found) = kept::find(args)? {
        if kept::is_enough(args) {
            return kept::run(args, &found);
        }
        return run(&LoadArgs { file: found.path, ..args.clone() });
    }
    refuse_min_size(args)?;
    if template::wants_path(&args.command) { by_path::run(args) } else { inherited::run(args) }
}

/// Fails if `--min-size` was given for something other than a folder, where it would have no effect.
fn refuse_min_size(args: &LoadArgs) -> Result<(), Failure> {
    let is_file = is_url(&args.file) || args.file.exists() && !args.file.is_dir();
    if args.min_size.is_none() || !is_file {
        return Ok(());
    }
    let what = format!("{}: --min-size needs a folder", shown(&args.file).display());
    Err(Failure::new(USAGE, what, "name a folder, or leave out --min-size"))
}
