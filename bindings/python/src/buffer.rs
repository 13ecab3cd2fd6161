// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Buffer`: memory with the content of a file, and its descriptor.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use dmabuf_dio::{DmaBuf, Kind};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::content::{Content, Transfer, View, let_go};
use crate::dlpack::{self, DataType, Shaped, Wanted};
use crate::error::{note, raise};
use crate::lock::Lock;
use crate::report::Report;
use crate::source::duplicate;
use crate::view::{self, Part};

/// Memory with the content of a file: a dma-buf, a memfd, or memory of this process alone.
#[pyclass(module = "dmabuf_dio", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Buffer {
    slot: Lock<Slot>,
    form: Form,
    len: u64,
    report: Option<Py<Report>>,
}

/// What the memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    DmaBuf,
    Memfd,
    /// A memfd, and if possible a dma-buf over its pages.
    File,
    Private,
}

impl Form {
    fn of(content: &Content) -> Self {
        match content.buf().map(DmaBuf::kind) {
            None => Self::Private,
            Some(_) if content.dmabuf().is_some() => Self::File,
            Some(Kind::DmaBuf) => Self::DmaBuf,
            Some(Kind::Memfd) => Self::Memfd,
        }
    }
}

#[derive(Debug)]
enum Slot {
    Open(Arc<Content>),
    /// With memory that consumers may still use, though they keep no view.
    Closed(#[allow(dead_code, reason = "owns the memory")] Option<Arc<Content>>),
}

impl Buffer {
    pub(crate) fn new(content: Arc<Content>, report: Option<Py<Report>>) -> Self {
        let (form, len) = (Form::of(&content), content.len());
        Self { slot: Lock::new(Slot::Open(content)), form, len, report }
    }

    /// What `use_it` returns for the content. The buffer is not closed meanwhile: a view or
    /// transfer that `use_it` begins is one that `close()` finds. It must not wait for anything.
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

    /// The content with a descriptor, and what cannot be done without one.
    fn shared(&self, py: Python<'_>, what: &str) -> PyResult<Arc<Content>> {
        let content = self.content()?;
        if content.buf().is_none() {
            return Err(unsupported(
                py,
                format!("private memory has no {what}: load it as a memfd"),
            ));
        }
        Ok(content)
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
    #[pyo3(signature = (length, *, kind = "dmabuf", heap = "system"))]
    fn alloc(py: Python<'_>, length: u64, kind: &str, heap: &str) -> PyResult<Self> {
        let heap = heap.to_owned();
        let buf = match kind {
            "dmabuf" => py.detach(|| DmaBuf::alloc_from(&heap, length)),
            "memfd" => py.detach(|| DmaBuf::memfd(length)),
            _ => return Err(PyValueError::new_err("kind must be \"dmabuf\" or \"memfd\"")),
        };
        let buf = buf.map_err(|error| raise(py, &error))?;
        Ok(Self::new(Content::shared(buf, 0, length, true), None))
    }

    /// Creates a buffer from the descriptor of an existing dma-buf or memfd. The descriptor is
    /// duplicated.
    #[staticmethod]
    #[pyo3(signature = (fd, *, offset = 0, length = None, writable = false))]
    fn from_fd(
        py: Python<'_>,
        fd: c_int,
        offset: u64,
        length: Option<u64>,
        writable: bool,
    ) -> PyResult<Self> {
        let buf = DmaBuf::from_fd(duplicate(fd)?).map_err(|error| raise(py, &error))?;
        let length = length.unwrap_or_else(|| buf.len().saturating_sub(offset));
        buf.check_range(offset, length).map_err(|error| raise(py, &error))?;
        if length == 0 {
            return Err(PyValueError::new_err("a buffer has at least one byte"));
        }
        if writable && !buf.is_writable() {
            return Err(raise(py, &dmabuf_dio::Error::ReadOnlyBuffer));
        }
        Ok(Self::new(Content::shared(buf, offset, length, writable), None))
    }

    /// The buffer that `dmabuf-dio load FILE -- PROGRAM` passes to a program.
    #[staticmethod]
    #[pyo3(signature = (*, writable = false))]
    fn from_env(py: Python<'_>, writable: bool) -> PyResult<Self> {
        let (buf, range) = DmaBuf::from_env().map_err(|error| raise(py, &error))?;
        let length = range.end - range.start;
        Ok(Self::new(Content::shared(buf, range.start, length, writable), None))
    }

    /// `"dmabuf"`, `"memfd"`, `"file"` or `"private"`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.form {
            Form::DmaBuf => "dmabuf",
            Form::Memfd => "memfd",
            Form::File => "file",
            Form::Private => "private",
        }
    }

    /// The descriptor, which belongs to the buffer.
    #[getter]
    fn fd(&self, py: Python<'_>) -> PyResult<c_int> {
        let content = self.shared(py, "descriptor")?;
        Ok(content.buf().map_or(-1, AsRawFd::as_raw_fd))
    }

    /// The same as `fd`.
    fn fileno(&self, py: Python<'_>) -> PyResult<c_int> {
        self.fd(py)
    }

    /// The descriptor of the dma-buf, which belongs to the buffer. Raises `io.UnsupportedOperation`
    /// if there is none.
    #[getter]
    fn dmabuf_fd(&self, py: Python<'_>) -> PyResult<c_int> {
        match (self.form, self.content()?.dmabuf()) {
            (Form::DmaBuf, _) => self.fd(py),
            (_, Some(Ok(buf))) => Ok(buf.as_raw_fd()),
            (_, Some(Err(refusal))) => {
                let error = unsupported(py, format!("the file has no dma-buf: {refusal}"));
                if let Some(remedy) = &refusal.remedy {
                    note(py, &error, remedy);
                }
                Err(error)
            }
            _ => Err(unsupported(
                py,
                format!("this is {}: load it with kind=\"dmabuf\" or \"file\"", self.described()),
            )),
        }
    }

    /// A path that opens the memory, in this process and its children: `/proc/self/fd/N`.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<String> {
        match self.form {
            Form::Memfd | Form::File => Ok(format!("/proc/self/fd/{}", self.fd(py)?)),
            _ => Err(unsupported(
                py,
                format!("{} has no path: load it with kind=\"file\"", self.described()),
            )),
        }
    }

    /// Offset of the content in the descriptor's memory, in bytes.
    #[getter]
    fn offset(&self) -> PyResult<u64> {
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

    pub(crate) fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Bound<'_, PyAny>,
        exception: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match self.close(py) {
            Err(error) if !exception.is_none() => {
                // The exception under way matters more; its frames may hold the views.
                let under_way = PyErr::from_value(exception);
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
        // SAFETY: the arguments are those of the protocol.
        unsafe {
            view::fill(py, view, flags, Part::whole(buffer.len), |label, pins| {
                buffer.begin_view(py, label, pins)
            })
        }
    }

    // Views refer to objects of their own. NumPy keeps views only of types that want them back.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}

    /// A tensor of bytes for `from_dlpack()` of other libraries.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let shape = vec![self.len as i64];
        let what = Shaped { offset: 0, shape, dtype: DataType::BYTE, name: "a tensor" };
        dlpack::export(py, self, what, &Wanted { stream, max_version, device: dl_device, copy })
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<dmabuf_dio.Buffer: {} bytes, {}{closed}>", self.len, self.described())
    }
}

impl Buffer {
    fn described(&self) -> &'static str {
        match self.form {
            Form::DmaBuf => "a dma-buf",
            Form::Memfd => "a memfd",
            Form::File => "a file in memory",
            Form::Private => "private memory",
        }
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
