// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Buffer`: memory with the content of a file, and its descriptor.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use dmabuf_dio::{DmaBuf, Kind};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::content::{Content, Transfer};
use crate::dlpack::{self, DataType, Shaped, Wanted};
use crate::error::{note, raise};
use crate::memory::{Memory, Part};
use crate::report::Report;
use crate::source::duplicate;

/// Memory with the content of a file: a dma-buf, a memfd, or memory of this process alone.
#[pyclass(module = "dmabuf_dio", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Buffer {
    slot: Mutex<Slot>,
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
    Open(Py<Memory>),
    /// With memory that consumers may still use, though they keep no view.
    Closed(#[allow(dead_code, reason = "owns the memory")] Option<Py<Memory>>),
}

impl Buffer {
    pub(crate) fn new(
        py: Python<'_>,
        content: Arc<Content>,
        report: Option<Py<Report>>,
    ) -> PyResult<Self> {
        let (form, len) = (Form::of(&content), content.len());
        let slot = Mutex::new(Slot::Open(Py::new(py, Memory::new(content))?));
        Ok(Self { slot, form, len, report })
    }

    pub(crate) fn memory(&self, py: Python<'_>) -> PyResult<Py<Memory>> {
        match &*self.slot.lock().unwrap_or_else(PoisonError::into_inner) {
            Slot::Open(memory) => Ok(memory.clone_ref(py)),
            Slot::Closed(_) => Err(PyValueError::new_err("the buffer is closed")),
        }
    }

    pub(crate) fn content(&self, py: Python<'_>) -> PyResult<Arc<Content>> {
        Ok(Arc::clone(self.memory(py)?.get().content()))
    }

    /// The content with a descriptor, and what cannot be done without one.
    fn shared(&self, py: Python<'_>, what: &str) -> PyResult<Arc<Content>> {
        let content = self.content(py)?;
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
        let memory = self.memory(py)?;
        let memory = memory.bind(py);
        in_use(memory, 1)?;
        if !memory.get().content().is_writable() {
            return Err(PyBufferError::new_err(
                "the buffer is read-only: load it with writable=True, or use Buffer.alloc()",
            ));
        }
        if memory.get().is_pinned() {
            return Err(PyBufferError::new_err(
                "numpy.ndarray(buffer=...) was made of the buffer and may still use it: \
                 numpy.frombuffer() says when it is done",
            ));
        }
        memory.get().content().begin_write().map_err(|trouble| trouble.raise(py))
    }

    /// Begins a transfer from the memory.
    pub(crate) fn begin_read(&self, py: Python<'_>) -> PyResult<Transfer> {
        self.content(py)?.begin_read().map_err(|trouble| trouble.raise(py))
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
            _ => return Err(PyValueError::new_err("kind is \"dmabuf\" or \"memfd\"")),
        };
        let buf = buf.map_err(|error| raise(py, &error))?;
        Self::new(py, Content::shared(buf, 0, length, true), None)
    }

    /// A buffer of somebody else's dma-buf or memfd. The descriptor is duplicated.
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
        Self::new(py, Content::shared(buf, offset, length, writable), None)
    }

    /// The buffer that `dmabuf-dio load FILE -- PROGRAM` hands to a program.
    #[staticmethod]
    #[pyo3(signature = (*, writable = false))]
    fn from_env(py: Python<'_>, writable: bool) -> PyResult<Self> {
        let (buf, range) = DmaBuf::from_env().map_err(|error| raise(py, &error))?;
        let length = range.end - range.start;
        Self::new(py, Content::shared(buf, range.start, length, writable), None)
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

    /// The descriptor, which stays the buffer's.
    #[getter]
    fn fd(&self, py: Python<'_>) -> PyResult<c_int> {
        let content = self.shared(py, "descriptor")?;
        Ok(content.buf().map_or(-1, AsRawFd::as_raw_fd))
    }

    /// As `fd`.
    fn fileno(&self, py: Python<'_>) -> PyResult<c_int> {
        self.fd(py)
    }

    /// The descriptor of the dma-buf, which stays the buffer's. `io.UnsupportedOperation` without one.
    #[getter]
    fn dmabuf_fd(&self, py: Python<'_>) -> PyResult<c_int> {
        match (self.form, self.content(py)?.dmabuf()) {
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
    fn offset(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.content(py)?.start())
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

    /// How the content got there; `None` if nothing was loaded.
    #[getter]
    fn report(&self, py: Python<'_>) -> Option<Py<Report>> {
        self.report.as_ref().map(|report| report.clone_ref(py))
    }

    /// Whether views may write.
    #[getter]
    fn writable(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.content(py)?.is_writable())
    }

    /// Whether CPU access is under way: since the first view, until the last one ends.
    #[getter]
    fn accessed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.content(py)?.is_accessed())
    }

    /// Whether the buffer was closed.
    #[getter]
    fn closed(&self) -> bool {
        matches!(&*self.slot.lock().unwrap_or_else(PoisonError::into_inner), Slot::Closed(_))
    }

    /// Gives the memory back. An error while anything uses it, which says what.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let Slot::Open(memory) = &*slot else { return Ok(()) };
        let memory = memory.bind(py);
        in_use(memory, 0)?;
        if let Some(trouble) = memory.get().content().is_busy() {
            return Err(trouble.raise(py));
        }
        let kept = memory.get().is_pinned().then(|| memory.clone().unbind());
        let before = std::mem::replace(&mut *slot, Slot::Closed(kept));
        drop(slot);
        drop(before);
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.memory(slf.py())?;
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
        // SAFETY: the arguments are those of the protocol. The view refers to the memory.
        unsafe {
            (*view).obj = std::ptr::null_mut();
            let memory = slf.get().memory(slf.py())?;
            let part = Part::whole(memory.get().content());
            Memory::fill(memory.bind(slf.py()), view, flags, part)
        }
    }

    // Views refer to the memory, which gets them back. NumPy keeps views only of types that want them back.
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
        let content = self.content(py)?;
        let shape = vec![content.len() as i64];
        let what = Shaped { offset: 0, shape, dtype: DataType::BYTE, name: "a tensor" };
        dlpack::export(py, &content, what, &Wanted { stream, max_version, device: dl_device, copy })
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
        if let Slot::Open(memory) = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner) {
            memory.get().disown();
        }
    }
}

/// An error while anything uses the memory. `own` are the caller's references to it.
fn in_use(memory: &Bound<'_, Memory>, own: isize) -> PyResult<()> {
    let views = memory.get().content().views();
    let hidden = Memory::hidden(memory, own);
    if views.is_none() && hidden == 0 {
        return Ok(());
    }
    let mut parts: Vec<String> = views.into_iter().collect();
    if hidden > 0 {
        parts.push(format!(
            "{hidden} array(s) or tensor(s) made by torch.frombuffer() or numpy.ndarray(buffer=...) use it"
        ));
    }
    Err(PyBufferError::new_err(format!("the buffer is in use: {}", parts.join("; "))))
}

/// `io.UnsupportedOperation`, which is an `OSError` and a `ValueError`.
fn unsupported(py: Python<'_>, text: String) -> PyErr {
    let class = py.import("io").and_then(|io| io.getattr("UnsupportedOperation"));
    match class.and_then(|class| class.call1((text,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}
