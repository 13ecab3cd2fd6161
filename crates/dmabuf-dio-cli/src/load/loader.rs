// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loader of the library, with the settings of the command line.

use std::path::Path;

use dmabuf_dio::{Buffer, Loader, Report};
use dmabuf_dio_terminal::exit::{FAILED, Failure};
use dmabuf_dio_terminal::signals;

use crate::args::files::LoadArgs;

/// A loader with the settings of the command line.
pub(crate) fn loader(path: &Path, args: &LoadArgs) -> Loader<'static> {
    Loader::new(path)
        .options(args.options())
        .offset(args.offset)
        .length(args.length)
        .cancel(signals::token())
}

/// The report of a load.
pub(crate) fn report_of(buffer: &Buffer) -> Result<&Report, Failure> {
    buffer.report().ok_or_else(|| Failure::new(FAILED, "the buffer was not loaded", "load a file"))
}
