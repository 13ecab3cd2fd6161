// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load()` and `load_into()`.

use dmabuf_dio::{Backend, Errno, Error, Kind, Loader, Options, UnknownKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::cancel::CancelToken;
use crate::content::Content;
use crate::error::raise;
use crate::report::Report;
use crate::run::{self, Control, Watch};
use crate::source::Source;

pub(crate) fn kind(name: &str) -> PyResult<Kind> {
    name.parse().map_err(|error: UnknownKind| PyValueError::new_err(error.to_string()))
}

pub(crate) fn backend(name: Option<&str>) -> PyResult<Option<Backend>> {
    let parsed = name.map(str::parse::<Backend>).transpose();
    parsed.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A loader with these settings, for a range of a file.
fn loader<'s>(
    source: &'s Source,
    options: Options,
    offset: u64,
    length: Option<u64>,
    control: &Control,
) -> Loader<'s> {
    let told = control.clone();
    source
        .loader()
        .options(options)
        .offset(offset)
        .length(length)
        .cancel(control.cancel.clone())
        .progress(move |progress| told.report(progress))
}

/// Seals memory that was just loaded, unless it is to be writable.
pub(crate) fn seal(buf: &mut dmabuf_dio::Buffer, writable: bool) -> Result<(), Error> {
    if writable || !matches!(buf.kind(), Kind::Memfd | Kind::File) {
        return Ok(());
    }
    match buf.seal() {
        // A child that another thread forked meanwhile has it mapped, and does not write to it.
        Err(error) if error.errno() == Some(Errno::BUSY) => buf.seal_future_writes(),
        sealed => sealed,
    }
}

/// Loads a file, or a range of it, into a new buffer.
#[pyfunction]
#[pyo3(signature = (
    path, *, kind = "any", offset = 0, length = None, backend = None, writable = false,
    block_size = None, queue_depth = None, allocation_step = None, direct = true,
    huge_pages = true, progress = None, cancel = None,
))]
pub(crate) fn load(
    py: Python<'_>,
    path: Source,
    kind: &str,
    offset: u64,
    length: Option<u64>,
    backend: Option<&str>,
    writable: bool,
    block_size: Option<u64>,
    queue_depth: Option<u32>,
    allocation_step: Option<u64>,
    direct: bool,
    huge_pages: bool,
    progress: Option<Bound<'_, PyAny>>,
    cancel: Option<PyRef<'_, CancelToken>>,
) -> PyResult<Buffer> {
    let (kind, backend) = (self::kind(kind)?, self::backend(backend)?);
    let options =
        Options { kind, backend, block_size, queue_depth, allocation_step, direct, huge_pages };
    let loaded = run::call(py, &Watch::new(progress, cancel), move |control| {
        let mut buf = loader(&path, options, offset, length, control).load()?;
        seal(&mut buf, writable)?;
        Ok(Content::loaded(buf, writable))
    })?;
    let content = loaded.map_err(|error: Error| raise(py, &error))?;
    Buffer::loaded(py, content)
}

/// Loads a file, or a range of it, into a writable buffer of which no view exists.
#[pyfunction]
#[pyo3(signature = (
    path, buffer, *, buf_offset = 0, offset = 0, length = None, backend = None, block_size = None,
    queue_depth = None, direct = true, progress = None, cancel = None,
))]
pub(crate) fn load_into(
    py: Python<'_>,
    path: Source,
    buffer: PyRef<'_, Buffer>,
    buf_offset: u64,
    offset: u64,
    length: Option<u64>,
    backend: Option<&str>,
    block_size: Option<u64>,
    queue_depth: Option<u32>,
    direct: bool,
    progress: Option<Bound<'_, PyAny>>,
    cancel: Option<PyRef<'_, CancelToken>>,
) -> PyResult<Report> {
    let backend = self::backend(backend)?;
    let options = Options { backend, block_size, queue_depth, direct, ..Options::default() };
    let transfer = buffer.begin_write(py)?;
    let report = run::call(py, &Watch::new(progress, cancel), move |control| {
        let content = transfer.content();
        // The content may be a part of what the descriptor refers to.
        let length = length.or_else(|| Some(path.end()?.saturating_sub(offset)));
        if length.is_some_and(|length| !fits(buf_offset, length, content.len())) {
            let length = length.unwrap_or(0);
            return Err(Error::RangeBeyondBuffer {
                offset: buf_offset,
                length,
                buffer: content.len(),
            });
        }
        let loader = loader(&path, options, offset, length, control);
        loader.load_into(content.buf(), content.start() + buf_offset)
    })?;
    report.map(Report).map_err(|error| raise(py, &error))
}

/// Whether a range lies within `len` bytes.
pub(crate) fn fits(start: u64, length: u64, len: u64) -> bool {
    start.checked_add(length).is_some_and(|end| end <= len)
}
