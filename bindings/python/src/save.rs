// SPDX-License-Identifier: MIT OR Apache-2.0
//! `save()`.

use dmabuf_dio::{Error, Options};
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
    buffer, path, *, buf_offset = 0, length = None, offset = 0, backend = None, block_size = None,
    queue_depth = None, direct = true, progress = None, cancel = None,
))]
pub(crate) fn save(
    py: Python<'_>,
    buffer: PyRef<'_, Buffer>,
    path: Source,
    buf_offset: u64,
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
    let options = Options { backend, block_size, queue_depth, direct, ..Options::default() };
    let transfer = buffer.begin_read(py)?;
    let report = run::call(py, &Watch::new(progress, cancel), move |control| {
        let content = transfer.content();
        let length = length.unwrap_or_else(|| content.len().saturating_sub(buf_offset));
        if !fits(buf_offset, length, content.len()) {
            return Err(Error::RangeBeyondBuffer {
                offset: buf_offset,
                length,
                buffer: content.len(),
            });
        }
        let told = control.clone();
        let saver = path
            .saver()
            .offset(offset)
            .options(options)
            .cancel(control.cancel.clone())
            .progress(move |progress| told.report(progress));
        let first = content.start() + buf_offset;
        saver.save(content.buf(), first..first + length)
    })?;
    report.map(Report).map_err(|error| raise(py, &error))
}
