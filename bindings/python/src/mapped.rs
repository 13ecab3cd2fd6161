// SPDX-License-Identifier: MIT OR Apache-2.0
//! A range of a file, mapped: what its user changes is copied, and nobody else sees it.
//!
//! As with safetensors, the file must not be truncated meanwhile: reading what is gone raises
//! `SIGBUS`.

use std::ffi::c_int;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

use dmabuf_dio_tensors::{Error, Model, Tensor};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::error::raise_tensors;
use crate::page::page_size;

/// Mappings that may exist: without setting, a process may have 65530, which it needs for its
/// threads and its allocator, too.
const MOST: usize = 16 << 10;
/// Those that exist.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The mapping of a range of a file.
#[pyclass(module = "dmabuf_dio", name = "_Mapped", frozen)]
#[derive(Debug)]
pub(crate) struct Mapped {
    first: NonNull<u8>,
    len: usize,
    /// Bytes of the first page before the range.
    before: usize,
}

// SAFETY: memory of the process, which only Python's views refer to; they outlive no reference to
// the object.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps bytes of a tensor, at least one. `None` if there are too many mappings, or if they are no file's.
    pub(crate) fn new<'py>(
        py: Python<'py>,
        model: &Model,
        tensor: &Tensor,
        range: Range<u64>,
    ) -> PyResult<Option<Bound<'py, Self>>> {
        if COUNT.load(Ordering::Relaxed) >= MOST {
            return Ok(None);
        }
        let file = &model.files()[tensor.file];
        let Some(open) = file.file() else { return Ok(None) };
        let (offset, length) = (tensor.range.start + range.start, range.end - range.start);
        let end = open.metadata().map_or(0, |facts| facts.len());
        if offset + length > end {
            let path = file.path().to_owned();
            let source = dmabuf_dio::Error::ShortFile { path, offset, length, end, done: 0 };
            let path = file.path().to_owned();
            return Err(raise_tensors(py, &Error::Load { path, source }));
        }
        let page = page_size() as u64;
        let before = (offset % page) as usize;
        let size = length as usize + before;
        // SAFETY: requests new address space, at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap64(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE,
                open.as_raw_fd(),
                (offset - before as u64) as libc::off64_t,
            )
        };
        if base == libc::MAP_FAILED {
            return Ok(None);
        }
        let Some(base) = NonNull::new(base.cast::<u8>()) else { return Ok(None) };
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the range begins within the first page of the mapping.
        let first = unsafe { base.add(before) };
        Ok(Some(Bound::new(py, Self { first, len: length as usize, before })?))
    }
}

#[pymethods]
impl Mapped {
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let own = slf.get();
        let (first, len) = (own.first.as_ptr().cast(), own.len as ffi::Py_ssize_t);
        // SAFETY: the arguments are those of the protocol; the view refers to the object, which has
        // the memory.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), first, len, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the address and the size are those of the mapping, which nothing refers to any
        // more.
        unsafe {
            let base = self.first.as_ptr().sub(self.before);
            libc::munmap(base.cast(), self.len + self.before);
        }
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}
