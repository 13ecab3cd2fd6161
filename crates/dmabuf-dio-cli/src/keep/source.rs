// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be kept: a file or a folder of this machine, an object, or the objects of a prefix.

use dmabuf_dio_keep::{OnDisk, Opened, Source, Stored};
use dmabuf_dio_terminal::exit::{Failure, USAGE};

use crate::args::keep::{KeepArgs, Wanted};
use crate::args::url::{is_prefix, is_url, shown};
use crate::remote;

/// Fails if an option does not fit the sources.
pub(super) fn check(args: &KeepArgs) -> Result<(), Failure> {
    if args.remote.checks() && args.wanted.len() > 1 {
        let what = "--sha256 and --sums are of one object";
        return Err(Failure::new(USAGE, what, "keep the objects one by one"));
    }
    args.wanted.iter().try_for_each(|wanted| args.remote.check(&wanted.source))
}

/// The source that a path or URL names.
pub(super) fn source(args: &KeepArgs, wanted: &Wanted) -> Box<dyn Source> {
    let path = wanted.source.clone();
    if !is_url(&path) {
        return Box::new(OnDisk::new(path));
    }
    let (name, remote) = (shown(&path), args.remote.clone());
    let asked = args.remote.digest(&path);
    let open = move || {
        if is_prefix(&path) {
            return remote::folder(&path, &remote).map(Opened::Folder);
        }
        remote::open(&path, &remote).map(Opened::Content)
    };
    Box::new(Stored::new(name.to_string_lossy(), open).asked(asked))
}
