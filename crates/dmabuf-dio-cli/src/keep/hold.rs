// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds a source as a service of systemd, and hands out descriptors.

use std::sync::Arc;

use dmabuf_dio_keep::{Loading, hold};
use dmabuf_dio_terminal::exit::{Failure, USAGE, say};
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::signals;

use super::failure::failure;
use super::source::source;
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
    let bar = Bar::new("loading");
    let shown = bar.clone();
    let progress = move |done, total| shown.update(done, total);
    let loading = Loading {
        options: args.options(),
        progress: (!args.quiet).then(|| Arc::new(progress) as _),
        cancel: cancel.clone(),
    };
    let held = hold(&wanted.name, &*source(args, wanted), &loading);
    bar.finish();
    let (holder, note) =
        held.map_err(|error| Failure::if_interrupted().err().unwrap_or_else(|| failure(error)))?;
    if let Some(note) = note {
        say(&format!("dmabuf-dio: {note}"));
    }
    holder.serve(&cancel).map_err(failure)
}
