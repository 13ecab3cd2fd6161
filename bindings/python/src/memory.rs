// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a view refers to.
//!
//! `numpy.ndarray(buffer=...)` and `torch.frombuffer()` give a view back at once and go on using the
//! memory; all they keep is a reference to the object that the view named. That object is a
//! [`Memory`], which nobody else refers to: references beyond those that are known are uses of the
//! memory, and a buffer is not closed under them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::content::Content;

/// The memory of a `Buffer`, as views refer to it.
#[pyclass(module = "dmabuf_dio", name = "_Memory", frozen)]
#[derive(Debug)]
pub(crate) struct Memory {
    /// Taken when the object goes.
    content: Option<Arc<Content>>,
    /// Views that were not given back.
    exports: AtomicUsize,
    /// Whether the buffer still refers to this object.
    owned: AtomicBool,
    /// A consumer keeps a reference to the buffer alone.
    pinned: AtomicBool,
}

/// What a view shows: a range of the content, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// What an exception calls it.
    pub(crate) name: &'a str,
}

impl Part<'static> {
    /// All of it.
    pub(crate) fn whole(content: &Content) -> Self {
        Self { offset: 0, len: content.len(), name: "a memoryview or array" }
    }
}

impl Memory {
    pub(crate) fn new(content: Arc<Content>) -> Self {
        Self {
            content: Some(content),
            exports: AtomicUsize::new(0),
            owned: AtomicBool::new(true),
            pinned: AtomicBool::new(false),
        }
    }

    pub(crate) fn content(&self) -> &Arc<Content> {
        // It is taken in `drop` alone.
        self.content.as_ref().unwrap_or_else(|| unreachable!())
    }

    /// The buffer is gone, and its reference with it.
    pub(crate) fn disown(&self) {
        self.owned.store(false, Ordering::Relaxed);
    }

    /// Whether the memory has to stay until the buffer itself goes.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Relaxed)
    }

    /// References by consumers that gave their view back. `own` are those of the caller.
    pub(crate) fn hidden(slf: &Bound<'_, Self>, own: isize) -> isize {
        let memory = slf.get();
        let known = memory.exports.load(Ordering::Relaxed) as isize
            + isize::from(memory.owned.load(Ordering::Relaxed))
            + own;
        // SAFETY: the object is valid.
        let references = unsafe { ffi::Py_REFCNT(slf.as_ptr()) };
        (references as isize - known).max(0)
    }

    /// Fills in a view that refers to this object.
    ///
    /// # Safety
    ///
    /// `view` is the argument of a `bf_getbuffer`; the part lies in the content.
    pub(crate) unsafe fn fill(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
        part: Part<'_>,
    ) -> PyResult<()> {
        let (py, memory) = (slf.py(), slf.get());
        let content = memory.content();
        // SAFETY: the caller passes a view to fill in.
        unsafe { (*view).obj = std::ptr::null_mut() };
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && !content.is_writable() {
            return Err(PyBufferError::new_err(
                "the buffer is read-only: load it with writable=True",
            ));
        }
        let label = format!("{}{}", part.name, place(py));
        let begun = py.detach(|| content.begin_view(label));
        let (first, number) = begun.map_err(|trouble| trouble.raise(py))?;
        // SAFETY: the part lies in the memory, which stays as long as the view, which is counted.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                first.0.as_ptr().add(part.offset as usize).cast(),
                part.len as ffi::Py_ssize_t,
                c_int::from(!content.is_writable()),
                flags,
            )
        };
        if filled != 0 {
            py.detach(|| content.end_view(number, None));
            return Err(PyErr::fetch(py));
        }
        memory.exports.fetch_add(1, Ordering::Relaxed);
        // What numpy.ndarray(buffer=...) asks for, which then refers to the buffer alone.
        let contiguous = flags & ffi::PyBUF_ANY_CONTIGUOUS == ffi::PyBUF_ANY_CONTIGUOUS;
        if contiguous && flags & ffi::PyBUF_FORMAT == 0 {
            memory.pinned.store(true, Ordering::Relaxed);
        }
        // SAFETY: as above; the field is ours.
        unsafe { (*view).internal = number as usize as *mut c_void };
        Ok(())
    }
}

#[pymethods]
impl Memory {
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: the arguments are those of the protocol.
        unsafe { Self::fill(slf, view, flags, Part::whole(slf.get().content())) }
    }

    unsafe fn __releasebuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer) {
        let memory = slf.get();
        // SAFETY: this is a view that `fill` filled in.
        let number = unsafe { (*view).internal } as usize as u64;
        // The reference of the view that is given back is dropped after this call.
        let hidden = Self::hidden(slf, 0) > 0 || memory.is_pinned();
        memory.exports.fetch_sub(1, Ordering::Relaxed);
        slf.py().detach(|| memory.content().end_view(number, Some(hidden)));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Unmapping gigabytes of small pages takes a while.
        let content = self.content.take();
        let _ = Python::try_attach(|py| py.detach(|| drop(content)));
    }
}

/// Where in a Python program a view is taken: ` taken at FILE:LINE`, or nothing.
pub(crate) fn place(py: Python<'_>) -> String {
    // SAFETY: the interpreter is attached; the frame is borrowed, and referred to at once.
    let frame = unsafe {
        Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast::<ffi::PyObject>())
    };
    let mut next = frame;
    // A few of the frames may be of this package.
    for _ in 0..4 {
        let Some(frame) = next else { break };
        match line(&frame) {
            Ok((file, line)) if !file.contains("/dmabuf_dio/") => {
                return format!(" taken at {file}:{line}");
            }
            _ => next = frame.getattr("f_back").ok().filter(|back| !back.is_none()),
        }
    }
    String::new()
}

fn line(frame: &Bound<'_, PyAny>) -> PyResult<(String, usize)> {
    let file = frame.getattr("f_code")?.getattr("co_filename")?.extract()?;
    Ok((file, frame.getattr("f_lineno")?.extract()?))
}
