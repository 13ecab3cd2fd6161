// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Buffer`: memory with the content of a file, and its descriptor.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use dmabuf_dio::Kind;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::content::{Content, Transfer, View, let_go};
use crate::dlpack::{self, DataType, Shaped};
use crate::error::{hint, note, raise};
use crate::lock::Lock;
use crate::options::{Given, Keywords};
use crate::report::Report;
use crate::source::duplicate;
use crate::view::{self, Part};

/// Memory with the content of a file: a dma-buf, a memfd, or memory of this process alone.
#[pyclass(module = "dmabuf_dio", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Buffer {
    slot: Lock<Slot>,
    kind: Kind,
    /// Offset of the content in the descriptor's memory, and its length, in bytes.
    start: u64,
    len: u64,
    report: Option<Py<Report>>,
}

#[derive(Debug)]
enum Slot {
    Open(Arc<Content>),
    /// With memory that consumers may still use, though they keep no view.
    Closed(#[allow(dead_code, reason = "owns the memory")] Option<Arc<Content>>),
}

impl Buffer {
    pub(crate) fn new(content: Arc<Content>, report: Option<Py<Report>>) -> Self {
        let (kind, len) = (content.buf().kind(), content.len());
        let start = content.start() + content.skew();
        Self { slot: Lock::new(Slot::Open(content)), kind, start, len, report }
    }

    /// With the report of its load.
    pub(crate) fn loaded(py: Python<'_>, content: Arc<Content>) -> PyResult<Self> {
        let report = content.buf().report().cloned();
        let report = report.map(|report| Py::new(py, Report::new(&report)?)).transpose()?;
        Ok(Self::new(content, report))
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Calls `use_it` with the content, and returns its result. The buffer is not closed meanwhile,
    /// so `close()` finds a view or transfer that `use_it` begins. `use_it` must not wait for
    /// anything.
    fn with<T>(&self, use_it: impl FnOnce(&Arc<Content>) -> T) -> PyResult<T> {
        match &*self.slot.lock() {
            Slot::Open(content) => Ok(use_it(content)),
            Slot::Closed(_) => Err(PyValueError::new_err("the buffer is closed")),
        }
    }

    pub(crate) fn content(&self) -> PyResult<Arc<Content>> {
        self.with(Arc::clone)
    }

    /// Counts a view from now on; `pins` as in [`Content::begin_view`].
    pub(crate) fn begin_view(&self, py: Python<'_>, label: String, pins: bool) -> PyResult<View> {
        let begun = self.with(|content| content.begin_view(label, pins))?;
        begun.map_err(|trouble| trouble.raise(py))
    }

    /// Begins a transfer into the memory.
    pub(crate) fn begin_write(&self, py: Python<'_>) -> PyResult<Transfer> {
        let begun = self.with(Content::begin_write)?;
        let transfer = begun.map_err(|trouble| trouble.raise(py))?;
        py.detach(|| transfer.settle());
        Ok(transfer)
    }

    /// Begins a transfer from the memory.
    pub(crate) fn begin_read(&self, py: Python<'_>) -> PyResult<Transfer> {
        self.with(Content::begin_read)?.map_err(|trouble| trouble.raise(py))
    }
}

#[pymethods]
impl Buffer {
    /// Allocates an empty, writable buffer.
    #[staticmethod]
    #[pyo3(signature = (length, **options))]
    fn alloc(py: Python<'_>, length: u64, options: Option<Keywords<'_>>) -> PyResult<Self> {
        let given = Given::new("alloc", options);
        let (kind, heap) =
            (given.made_kind(Kind::Any)?, given.take_or("heap", "system".to_owned())?);
        given.end()?;
        let buf = py.detach(|| dmabuf_dio::Buffer::alloc_kind(kind, &heap, length));
        let buf = buf.map_err(|error| raise(py, &error))?;
        Ok(Self::new(Content::part(buf, 0, length, true), None))
    }

    /// Creates a buffer from the descriptor of an existing dma-buf or memfd. The descriptor is
    /// duplicated.
    #[staticmethod]
    #[pyo3(signature = (fd, *, data_offset = 0, data_length = None, writable = false))]
    fn from_fd(
        py: Python<'_>,
        fd: c_int,
        data_offset: u64,
        data_length: Option<u64>,
        writable: bool,
    ) -> PyResult<Self> {
        let buf = dmabuf_dio::Buffer::from_fd(duplicate(fd)?).map_err(|error| raise(py, &error))?;
        let length = data_length.unwrap_or_else(|| buf.len().saturating_sub(data_offset));
        buf.check_range(data_offset, length).map_err(|error| raise(py, &error))?;
        if length == 0 {
            return Err(PyValueError::new_err("a buffer has at least one byte"));
        }
        if writable && !buf.is_writable() {
            return Err(raise(py, &dmabuf_dio::Error::ReadOnlyBuffer));
        }
        Ok(Self::new(Content::part(buf, data_offset, length, writable), None))
    }

    /// The buffer that `dmabuf-dio load FILE -- PROGRAM` passes to a program.
    #[staticmethod]
    #[pyo3(signature = (*, writable = false))]
    fn from_env(py: Python<'_>, writable: bool) -> PyResult<Self> {
        let buf = dmabuf_dio::Buffer::from_env().map_err(|error| raise(py, &error))?;
        Ok(Self::new(Content::loaded(buf, writable), None))
    }

    /// `"dmabuf"`, `"memfd"`, `"file"` or `"private"`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.kind.name()
    }

    /// The descriptor, which belongs to the buffer.
    #[getter]
    fn fd(&self, py: Python<'_>) -> PyResult<c_int> {
        match self.content()?.buf().fd() {
            Ok(fd) => Ok(fd.as_raw_fd()),
            Err(_) => {
                Err(unsupported(py, "private memory has no descriptor: load it as a memfd".into()))
            }
        }
    }

    /// The same as `fd`.
    fn fileno(&self, py: Python<'_>) -> PyResult<c_int> {
        self.fd(py)
    }

    /// The descriptor of the dma-buf, which belongs to the buffer. Raises `io.UnsupportedOperation`
    /// if there is none.
    #[getter]
    fn dmabuf_fd(&self, py: Python<'_>) -> PyResult<c_int> {
        match self.content()?.buf().dma_buf() {
            Ok(buf) => Ok(buf.as_raw_fd()),
            Err(cause) => {
                let error = unsupported(py, cause.to_string());
                hint(py, &error, &cause.hint());
                Err(error)
            }
        }
    }

    /// A path that opens the memory, in this process and its children: `/proc/self/fd/N`.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<String> {
        match self.kind {
            Kind::Memfd | Kind::File => Ok(format!("/proc/self/fd/{}", self.fd(py)?)),
            _ => Err(unsupported(
                py,
                format!("a {} has no path: load it with kind=\"file\"", self.kind),
            )),
        }
    }

    /// Offset of the content in the descriptor's memory, in bytes.
    #[getter]
    fn data_offset(&self) -> PyResult<u64> {
        Ok(self.content()?.start())
    }

    /// Length of the content in bytes.
    #[getter(len)]
    fn length(&self) -> u64 {
        self.len
    }

    fn __len__(&self) -> usize {
        self.len as usize
    }

    // Otherwise Python asks for the length.
    fn __bool__(&self) -> bool {
        true
    }

    /// The report of the load; `None` if nothing was loaded.
    #[getter]
    fn report(&self, py: Python<'_>) -> Option<Py<Report>> {
        self.report.as_ref().map(|report| report.clone_ref(py))
    }

    /// Whether views may write.
    #[getter]
    fn writable(&self) -> PyResult<bool> {
        Ok(self.content()?.is_writable())
    }

    /// Whether CPU access is under way: since the first view, until the last one ends.
    #[getter]
    fn accessed(&self, py: Python<'_>) -> PyResult<bool> {
        let content = self.content()?;
        Ok(py.detach(|| content.is_accessed()))
    }

    /// Whether the buffer was closed.
    #[getter]
    fn closed(&self) -> bool {
        matches!(&*self.slot.lock(), Slot::Closed(_))
    }

    /// Frees the memory. Raises `BufferError` while anything uses it, and says what.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut slot = self.slot.lock();
        let Slot::Open(content) = &*slot else { return Ok(()) };
        if let Some(trouble) = content.in_use() {
            drop(slot);
            return Err(trouble.raise(py));
        }
        let kept = content.is_pinned().then(|| Arc::clone(content));
        let before = std::mem::replace(&mut *slot, Slot::Closed(kept));
        drop(slot);
        py.detach(|| drop(before));
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.content()?;
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    pub(crate) fn __exit__(&self, py: Python<'_>, exception: Bound<'_, PyTuple>) -> PyResult<()> {
        let value = exception.get_item(1)?;
        match self.close(py) {
            Err(error) if !value.is_none() => {
                // The exception under way matters more; its frames may hold the views.
                let under_way = PyErr::from_value(value);
                note(py, &under_way, &format!("the buffer was not closed: {}", error.value(py)));
                Ok(())
            }
            result => result,
        }
    }

    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (py, buffer) = (slf.py(), slf.get());
        // SAFETY: the arguments follow the protocol.
        unsafe {
            view::fill(py, view, flags, Part::whole(buffer.len), |label, pins| {
                buffer.begin_view(py, label, pins)
            })
        }
    }

    // Views refer to objects of their own. NumPy keeps views only of types that want them back.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}

    /// A tensor of bytes for `from_dlpack()` of other libraries.
    #[pyo3(signature = (**options))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        options: Option<Keywords<'_>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let view = self.begin_view(py, dlpack::label(py, "a tensor"), false)?;
        let what = Shaped { offset: 0, shape: vec![self.len as i64], dtype: DataType::BYTE };
        dlpack::export(py, view, what, options)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<dmabuf_dio.Buffer: {} bytes, a {}{closed}>", self.len, self.kind)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let slot = self.slot.get_mut();
        let_go(std::mem::replace(slot, Slot::Closed(None)));
    }
}

/// `io.UnsupportedOperation`, which is an `OSError` and a `ValueError`.
fn unsupported(py: Python<'_>, text: String) -> PyErr {
    let class = py.import("io").and_then(|io| io.getattr("UnsupportedOperation"));
    match class.and_then(|class| class.call1((text,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}
