// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load()` and `load_into()`.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use dmabuf_dio::{Backend, DmaBuf, Errno, Error, Kind, Loader};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::cancel::CancelToken;
use crate::content::Content;
use crate::error::raise;
use crate::report::Report;
use crate::run::{self, Control, Watch};
use crate::source::Source;

/// What a load creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A dma-buf, or what the selected backend creates.
    Unsaid,
    Any,
    Only(Kind),
    /// A file in memory and a dma-buf over its pages.
    File,
    Private,
}

impl Wanted {
    pub(crate) fn parse(kind: Option<&str>) -> PyResult<Self> {
        match kind {
            None => Ok(Self::Unsaid),
            Some("any") => Ok(Self::Any),
            Some("dmabuf") => Ok(Self::Only(Kind::DmaBuf)),
            Some("memfd") => Ok(Self::Only(Kind::Memfd)),
            Some("file") => Ok(Self::File),
            Some("private") => Ok(Self::Private),
            Some(other) => Err(PyValueError::new_err(format!(
                "there is no kind {other:?}: choose \"dmabuf\", \"memfd\", \"file\", \"any\" or \"private\""
            ))),
        }
    }
}

/// The settings of a transfer, checked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) backend: Option<Backend>,
    pub(crate) block_size: Option<u64>,
    pub(crate) queue_depth: Option<u32>,
    pub(crate) allocation_step: Option<u64>,
    pub(crate) direct: bool,
    pub(crate) huge_pages: bool,
}

pub(crate) fn backend(name: Option<&str>) -> PyResult<Option<Backend>> {
    let parsed = name.map(str::parse::<Backend>).transpose();
    parsed.map_err(|error| PyValueError::new_err(error.to_string()))
}

impl Settings {
    /// A loader with these settings, for a range of a file.
    pub(crate) fn loader<'s>(
        self,
        source: &'s Source,
        offset: u64,
        length: Option<u64>,
        control: &Control,
    ) -> Loader<'s> {
        let told = control.clone();
        let mut loader = source
            .loader()
            .offset(offset)
            .backend(self.backend)
            .direct(self.direct)
            .huge_pages(self.huge_pages)
            .cancel(control.cancel.clone())
            .progress(move |progress| told.report(progress));
        if let Some(length) = length {
            loader = loader.length(length);
        }
        if let Some(bytes) = self.block_size {
            loader = loader.block_size(bytes);
        }
        if let Some(requests) = self.queue_depth {
            loader = loader.queue_depth(requests);
        }
        if let Some(bytes) = self.allocation_step {
            loader = loader.allocation_step(bytes);
        }
        loader
    }
}

/// Loads.
fn make(
    loader: &Loader<'_>,
    wanted: Wanted,
    writable: bool,
) -> Result<(Arc<Content>, dmabuf_dio::Report), Error> {
    let mut loader = loader.clone();
    match wanted {
        Wanted::Private => {
            let private = loader.load_private()?;
            let report = private.report.clone();
            return Ok((Content::private(private.into_memory(), writable), report));
        }
        Wanted::File => {
            let mut loaded = loader.load_file()?;
            if !writable {
                loaded.seal()?;
            }
            return Ok((Content::file(loaded.file, loaded.dmabuf, writable), loaded.report));
        }
        Wanted::Only(kind) => loader = loader.kind(kind),
        Wanted::Any => loader = loader.any_kind(),
        Wanted::Unsaid => {}
    }
    let mut loaded = loader.load()?;
    seal(&mut loaded.buf, writable)?;
    let content = Content::shared(loaded.buf, loaded.data_offset, loaded.len, writable);
    Ok((content, loaded.report))
}

/// Seals a memfd that was just loaded, unless it is to be writable.
pub(crate) fn seal(buf: &mut DmaBuf, writable: bool) -> Result<(), Error> {
    if writable || buf.kind() != Kind::Memfd {
        return Ok(());
    }
    let sealed = buf.seal();
    // A child that another thread forked meanwhile has it mapped, and does not write to it.
    if matches!(&sealed, Err(error) if error.errno() == Some(Errno::BUSY)) {
        // SAFETY: the call takes numbers only.
        let added =
            unsafe { libc::fcntl(buf.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
        if added == 0 {
            *buf = DmaBuf::from_fd(buf.try_clone()?.into_fd())?;
            return Ok(());
        }
    }
    sealed
}

/// Loads a file, or a range of it, into a new buffer.
#[pyfunction]
#[pyo3(signature = (
    path, *, kind = None, offset = 0, length = None, backend = None, writable = false,
    block_size = None, queue_depth = None, allocation_step = None, direct = true,
    huge_pages = true, progress = None, cancel = None,
))]
pub(crate) fn load(
    py: Python<'_>,
    path: Source,
    kind: Option<&str>,
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
    let wanted = Wanted::parse(kind)?;
    let backend = self::backend(backend)?;
    let settings =
        Settings { backend, block_size, queue_depth, allocation_step, direct, huge_pages };
    let loaded = run::call(py, &Watch::new(progress, cancel), move |control| {
        make(&settings.loader(&path, offset, length, control), wanted, writable)
    })?;
    let (content, report) = loaded.map_err(|error| raise(py, &error))?;
    Ok(Buffer::new(content, Some(Py::new(py, Report(report))?)))
}

/// Loads a file, or a range of it, into a writable buffer of which no view exists.
#[pyfunction]
#[pyo3(signature = (
    path, buffer, *, at = 0, offset = 0, length = None, backend = None, block_size = None,
    queue_depth = None, direct = true, progress = None, cancel = None,
))]
pub(crate) fn load_into(
    py: Python<'_>,
    path: Source,
    buffer: PyRef<'_, Buffer>,
    at: u64,
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
    let settings = Settings { backend, block_size, queue_depth, direct, ..Settings::default() };
    let transfer = buffer.begin_write(py)?;
    let report = run::call(py, &Watch::new(progress, cancel), move |control| {
        let content = transfer.content();
        // The content may be a part of what the descriptor refers to.
        let length = length.or_else(|| Some(path.end()?.saturating_sub(offset)));
        if length.is_some_and(|length| !fits(at, length, content.len())) {
            let length = length.unwrap_or(0);
            return Err(Error::RangeBeyondBuffer { offset: at, length, buffer: content.len() });
        }
        let loader = settings.loader(&path, offset, length, control);
        match content.buf() {
            Some(buf) => loader.load_into(buf, content.start() + at),
            None => Err(Error::NotABuffer { found: "private memory".into() }),
        }
    })?;
    report.map(Report).map_err(|error| raise(py, &error))
}

/// Whether a range lies within `len` bytes.
pub(crate) fn fits(start: u64, length: u64, len: u64) -> bool {
    start.checked_add(length).is_some_and(|end| end <= len)
}
