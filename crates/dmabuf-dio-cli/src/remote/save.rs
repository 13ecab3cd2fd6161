// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio save URL`.

use std::ops::Range;
use std::path::Path;

use dmabuf_dio::{Buffer, Options, Report};
use dmabuf_dio_remote::{Settings, Upload};
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::signals;

/// Saves a range of a buffer to the object.
pub(crate) fn run(
    path: &Path,
    options: Options,
    bar: Option<&Bar>,
    buf: &Buffer,
    range: Range<u64>,
) -> Result<Report, Failure> {
    let upload = Upload::new(&path.to_string_lossy(), &Settings::default())?;
    let mut upload = upload.options(options).cancel(signals::token());
    if let Some(bar) = bar.cloned() {
        upload = upload.progress(move |done, total| bar.update(done, total));
    }
    Ok(upload.save(buf, range)?)
}
