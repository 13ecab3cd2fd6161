// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of a few bytes: one system call, no thread, no ring.

use std::ffi::c_int;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use dmabuf_dio::probe;
use dmabuf_dio_tensors::{Error, Model, Tensor};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::error::raise_tensors;

/// The most bytes of one call; the kernel moves less than 2 GiB.
const MOST: usize = 1 << 30;

/// Bytes of a tensor, in memory that nothing else refers to. `None` if not `wait` and the page cache
/// does not have all of them, or if they are no file's.
pub(crate) fn read<'py>(
    py: Python<'py>,
    model: &Arc<Model>,
    tensor: &Tensor,
    range: Range<u64>,
    wait: bool,
    around: bool,
) -> PyResult<Option<Bound<'py, PyByteArray>>> {
    let Some(length) = range.end.checked_sub(range.start).filter(|_| range.end <= tensor.len())
    else {
        return Err(beyond());
    };
    // A read without waiting would make the kernel read ahead what is then loaded.
    if !wait && !is_cached(model, tensor, &range) {
        return Ok(None);
    }
    let file = &model.files()[tensor.file];
    let Some(open) = file.file() else { return Ok(None) };
    let size = length as usize;
    // SAFETY: without bytes to copy from, the array has undefined content until it is read into below.
    let (array, place) = unsafe {
        let array = ffi::PyByteArray_FromStringAndSize(std::ptr::null(), size as isize);
        let array = Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked::<PyByteArray>();
        let place = ffi::PyByteArray_AsString(array.as_ptr()).expose_provenance();
        (array, place)
    };
    let offset = tensor.range.start + range.start;
    let (fd, kept) = (open.as_raw_fd(), Arc::clone(model));
    let mut flags = libc::RWF_NOWAIT;
    let mut done = 0;
    while done < size {
        let count = (size - done).min(MOST);
        let at = offset + done as u64;
        // SAFETY: nothing else refers to the array; its memory stays where it is, as `array` refers
        // to it.
        let got = py.detach(|| unsafe { read_at(fd, place + done, count, at, flags) });
        match got {
            Ok(0) if !wait => return Ok(None),
            Ok(0) if flags != 0 => flags = 0,
            Ok(0) => {
                let end = open.metadata().map_or(at, |facts| facts.len());
                let path = file.path().to_owned();
                let source = dmabuf_dio::Error::ShortFile { path, offset, length, end, done: 0 };
                let path = file.path().to_owned();
                return Err(raise_tensors(py, &Error::Load { path, source }));
            }
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => py.check_signals()?,
            // The bytes are not cached, or the file system does not tell.
            Err(_) if !wait => return Ok(None),
            Err(_) if flags != 0 => {
                flags = 0;
                if around {
                    read_around(fd, at, count as u64);
                }
            }
            Err(source) => {
                let path = file.path().to_owned();
                return Err(raise_tensors(py, &Error::Read { path, source }));
            }
        }
    }
    drop(kept);
    Ok(Some(array))
}

/// The error for a range that is not one of the tensor.
fn beyond() -> PyErr {
    PyValueError::new_err("the range exceeds the tensor")
}

/// Begins to read the bytes around a range, as the kernel does for a mapping, for the next request
/// of a program.
fn read_around(fd: c_int, at: u64, len: u64) {
    const AROUND: u64 = 128 << 10;
    let start = at / AROUND * AROUND;
    let end = (at + len).next_multiple_of(AROUND);
    // SAFETY: an advice about an open file.
    unsafe {
        libc::posix_fadvise64(fd, start as i64, (end - start) as i64, libc::POSIX_FADV_WILLNEED)
    };
}

/// Whether the page cache has the first, the middle and the last byte of a range of a tensor.
pub(crate) fn is_cached(model: &Model, tensor: &Tensor, range: &Range<u64>) -> bool {
    let Some(file) = model.files()[tensor.file].file() else { return false };
    let fd = file.as_raw_fd();
    let Some(last) = range.end.checked_sub(1) else { return true };
    [range.start, u64::midpoint(range.start, last), last].into_iter().all(|at| {
        let at = tensor.range.start + at;
        if let Some(cached) = probe::is_cached(file.as_fd(), at) {
            return cached;
        }
        let mut byte = 0_u8;
        let place = (&raw mut byte).expose_provenance();
        // SAFETY: there is one byte.
        unsafe { read_at(fd, place, 1, at, libc::RWF_NOWAIT) }.is_ok_and(|got| got == 1)
    })
}

/// # Safety
///
/// `count` bytes at `place` may be written.
unsafe fn read_at(
    fd: c_int,
    place: usize,
    count: usize,
    at: u64,
    flags: c_int,
) -> io::Result<usize> {
    let base = std::ptr::with_exposed_provenance_mut(place);
    let got = if flags == 0 {
        // SAFETY: the caller's promise.
        unsafe { libc::pread64(fd, base, count, at as i64) }
    } else {
        let part = libc::iovec { iov_base: base, iov_len: count };
        // SAFETY: as above.
        unsafe { libc::preadv2(fd, &raw const part, 1, at as i64, flags) }
    };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}
