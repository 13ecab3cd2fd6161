// SPDX-License-Identifier: MIT OR Apache-2.0
//! `save()`.

use dmabuf_dio::Error;
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::cancel::CancelToken;
use crate::error::raise;
use crate::load::{backend as parse, fits};
use crate::report::Report;
use crate::run::{self, Watch};
use crate::source::Source;

/// Saves a buffer, or a range of it, to a file.
#[pyfunction]
#[pyo3(signature = (
    buffer, path, *, start = 0, length = None, offset = 0, backend = None, block_size = None,
    queue_depth = None, direct = true, progress = None, cancel = None,
))]
pub(crate) fn save(
    py: Python<'_>,
    buffer: PyRef<'_, Buffer>,
    path: Source,
    start: u64,
    length: Option<u64>,
    offset: u64,
    backend: Option<&str>,
    block_size: Option<u64>,
    queue_depth: Option<u32>,
    direct: bool,
    progress: Option<Bound<'_, PyAny>>,
    cancel: Option<PyRef<'_, CancelToken>>,
) -> PyResult<Report> {
    let backend = parse(backend)?;
    let transfer = buffer.begin_read(py)?;
    let report = run::call(py, &Watch::new(progress, cancel), move |control| {
        let content = transfer.content();
        let length = length.unwrap_or_else(|| content.len().saturating_sub(start));
        if !fits(start, length, content.len()) {
            return Err(Error::RangeBeyondBuffer { offset: start, length, buffer: content.len() });
        }
        let told = control.clone();
        let mut saver = path
            .saver()
            .offset(offset)
            .backend(backend)
            .direct(direct)
            .cancel(control.cancel.clone())
            .progress(move |progress| told.report(progress));
        if let Some(bytes) = block_size {
            saver = saver.block_size(bytes);
        }
        if let Some(requests) = queue_depth {
            saver = saver.queue_depth(requests);
        }
        let first = content.start() + start;
        match content.buf() {
            Some(buf) => saver.save(buf, first..first + length),
            None => Err(Error::NotABuffer { found: "private memory".into() }),
        }
    })?;
    report.map(Report).map_err(|error| raise(py, &error))
}
