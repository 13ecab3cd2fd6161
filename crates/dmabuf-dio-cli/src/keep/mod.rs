// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio keep`.

pub(crate) mod failure;
mod hold;
mod list;
mod report;
mod source;

use std::path::PathBuf;
use std::sync::Arc;

use dmabuf_dio_keep::{Loading, Store, folders};
use dmabuf_dio_terminal::exit::{Failure, USAGE};
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::signals;

use self::failure::failure;
use crate::args::keep::KeepArgs;

/// Keeps what was asked for, one after the other, or lists what is kept.
pub(crate) fn run(args: &KeepArgs) -> Result<(), Failure> {
    source::check(args)?;
    if args.hold {
        return hold::run(args);
    }
    if args.wanted.is_empty() {
        return list::run(args);
    }
    // Its handlers precede all threads.
    signals::token();
    let store = Store::create(folder(args)?).map_err(failure)?;
    let mut kept = Vec::new();
    for wanted in &args.wanted {
        let source = source::source(args, wanted);
        let result =
            watched("keeping", args, |loading| store.keep(&wanted.name, &*source, loading))?;
        if !args.json {
            report::print(args, &result)?;
        }
        kept.push(result);
    }
    if args.json { report::json(&kept) } else { Ok(()) }
}

/// Loads with a progress bar, unless nothing is to be shown, until a signal.
fn watched<T>(
    what: &'static str,
    args: &KeepArgs,
    load: impl FnOnce(&Loading) -> dmabuf_dio_keep::Result<T>,
) -> Result<T, Failure> {
    let bar = Bar::new(what);
    let shown = bar.clone();
    let progress = move |done, total| shown.update(done, total);
    let result = load(&Loading {
        options: args.options(),
        progress: (!args.quiet).then(|| Arc::new(progress) as _),
        cancel: signals::token().clone(),
    });
    bar.finish();
    result.map_err(|error| Failure::if_interrupted().err().unwrap_or_else(|| failure(error)))
}

/// The folder that files are kept in.
fn folder(args: &KeepArgs) -> Result<PathBuf, Failure> {
    let default = || folders().into_iter().next();
    args.dir.clone().or_else(default).ok_or_else(|| {
        Failure::new(USAGE, "there is no folder to keep files in", "name one on a tmpfs: --dir")
    })
}
