// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects that views refer to.
//!
//! `numpy.ndarray(buffer=memoryview(...))` and `torch.frombuffer()` release a view at once and
//! continue to use the memory; they keep only a reference to the object that the view named.
//! Therefore each view has its own object, and exists as long as that object: no counting is
//! needed.

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{ffi, intern};

use crate::content::{View, let_go};

/// A view of a buffer's memory, for as long as anything refers to it.
#[pyclass(module = "dmabuf_dio", name = "_View", frozen)]
#[derive(Debug)]
pub(crate) struct Viewed {
    /// Taken when the object goes.
    view: Option<View>,
    offset: u64,
    len: u64,
    name: String,
}

/// The range of the content that a view shows, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The name in exceptions.
    pub(crate) name: &'a str,
}

impl Part<'static> {
    /// All of it.
    pub(crate) fn whole(len: u64) -> Self {
        Self { offset: 0, len, name: "a memoryview or array" }
    }
}

/// Fills in a view. `begin`: counts it, by its name; told whether its user may keep a reference to the exporter alone.
///
/// # Safety
///
/// `view` is the argument of a `bf_getbuffer`; the part lies in the content.
pub(crate) unsafe fn fill(
    py: Python<'_>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
    part: Part<'_>,
    begin: impl FnOnce(String, bool) -> PyResult<View>,
) -> PyResult<()> {
    // SAFETY: the caller passes a view to fill in.
    unsafe { (*view).obj = std::ptr::null_mut() };
    let label = format!("{}{}", part.name, place(py));
    // numpy.ndarray(buffer=...) sets these flags, and then refers to the exporter alone.
    let contiguous = flags & ffi::PyBUF_ANY_CONTIGUOUS == ffi::PyBUF_ANY_CONTIGUOUS;
    let begun = begin(label, contiguous && flags & ffi::PyBUF_FORMAT == 0)?;
    let writable = begun.content().is_writable();
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && !writable {
        return Err(PyBufferError::new_err("the buffer is read-only: load it with writable=True"));
    }
    let first = py.detach(|| begun.open()).map_err(|trouble| trouble.raise(py))?;
    let Part { offset, len, name } = part;
    let object = Py::new(py, Viewed { view: Some(begun), offset, len, name: name.to_owned() })?;
    // SAFETY: the part lies in the memory, which stays as long as the object, to which the view refers.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            object.as_ptr(),
            first.0.as_ptr().add(offset as usize).cast(),
            len as ffi::Py_ssize_t,
            c_int::from(!writable),
            flags,
        )
    };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
}

#[pymethods]
impl Viewed {
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (py, own) = (slf.py(), slf.get());
        let part = Part { offset: own.offset, len: own.len, name: &own.name };
        // SAFETY: the arguments follow the protocol.
        unsafe {
            fill(py, view, flags, part, |label, _| {
                let begun = own.view.as_ref().map(|view| view.content().begin_view(label, false));
                // It is taken in `drop` alone.
                begun.unwrap_or_else(|| unreachable!()).map_err(|trouble| trouble.raise(py))
            })
        }
    }
}

impl Drop for Viewed {
    fn drop(&mut self) {
        let_go(self.view.take());
    }
}

/// The line of a Python program that takes a view: ` taken at FILE:LINE`, or nothing.
pub(crate) fn place(py: Python<'_>) -> String {
    // SAFETY: the interpreter is attached; the frame is borrowed, and referred to at once.
    let mut next = unsafe {
        Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast::<ffi::PyObject>())
    };
    // A few of the frames may be of this package.
    for _ in 0..4 {
        let Some(frame) = next else { break };
        match line(&frame) {
            Ok(Some(line)) => return format!(" taken at {line}"),
            Ok(None) => next = frame.getattr(intern!(py, "f_back")).ok().filter(|f| !f.is_none()),
            Err(_) => break,
        }
    }
    String::new()
}

/// The file and the line of a frame, unless it is of this package.
fn line(frame: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = frame.py();
    let file = frame.getattr(intern!(py, "f_code"))?.getattr(intern!(py, "co_filename"))?;
    let file = file.cast::<PyString>()?.to_string_lossy();
    if file.contains("/dmabuf_dio/") {
        return Ok(None);
    }
    Ok(Some(format!("{file}:{}", frame.getattr(intern!(py, "f_lineno"))?)))
}
