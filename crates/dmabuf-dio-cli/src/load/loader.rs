// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loader of the library, with the settings of the command line.

use std::path::Path;
use std::sync::Arc;

use dmabuf_dio::content::Content;
use dmabuf_dio::{Buffer, Loader, Report};
use dmabuf_dio_terminal::exit::{FAILED, Failure};
use dmabuf_dio_terminal::signals;

use crate::args::files::LoadArgs;
use crate::args::url::is_url;
use crate::remote;

/// A loader with the settings of the command line.
pub(crate) fn loader(path: &Path, args: &LoadArgs) -> dmabuf_dio::Result<Loader<'static>> {
    let loader = if is_url(path) {
        Loader::from_content(remote::open(path, &args.remote)?)
    } else {
        Loader::new(path)
    };
    Ok(with_settings(loader, args))
}

/// The same, of something that is opened.
pub(crate) fn loader_of(content: Arc<dyn Content>, args: &LoadArgs) -> Loader<'static> {
    with_settings(Loader::from_content(content), args)
}

fn with_settings(loader: Loader<'static>, args: &LoadArgs) -> Loader<'static> {
    loader.options(args.options()).offset(args.offset).length(args.length).cancel(signals::token())
}

/// The report of a load.
pub(crate) fn report_of(buffer: &Buffer) -> Result<&Report, Failure> {
    buffer.report().ok_or_else(|| Failure::new(FAILED, "the buffer was not loaded", "load a file"))
}
