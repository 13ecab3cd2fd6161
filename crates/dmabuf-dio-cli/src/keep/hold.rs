// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds a source as a service of systemd, and hands out descriptors.

use dmabuf_dio_keep::hold;
use dmabuf_dio_terminal::exit::{Failure, USAGE, say};
use dmabuf_dio_terminal::signals;

use super::failure::failure;
use super::source::source;
use super::watched;
use crate::args::keep::KeepArgs;

/// Holds one source until a signal ends it, which is no failure.
pub(crate) fn run(args: &KeepArgs) -> Result<(), Failure> {
    let [wanted] = &args.wanted[..] else {
        return Err(Failure::new(
            USAGE,
            "--hold holds one source",
            "write: dmabuf-dio keep --hold NAME=SOURCE; systemd starts one for each name",
        ));
    };
    let cancel = signals::token();
    let source = source(args, wanted);
    let (holder, note) = watched("loading", args, |loading| hold(&wanted.name, &*source, loading))?;
    if let Some(note) = note {
        say(&format!("dmabuf-dio: {note}"));
    }
    holder.serve(&cancel).map_err(failure)
}
