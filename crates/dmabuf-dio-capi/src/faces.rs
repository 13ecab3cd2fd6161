// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file in memory: a memfd for programs, and a dma-buf over the same pages for devices.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd as _;
use std::ptr;

use dmabuf_dio::Kind;

use crate::buffer::Buffer;
use crate::failure::{Failure, guard};
use crate::pointers::shared;

/// Returns the path at which programs open the memfd of a buffer, `/proc/PID/fd/N` of the process that
/// made the buffer; a null pointer if it has no memfd. The string belongs to the buffer.
///
/// It works for processes of the same user that have no fewer capabilities, as long as that process
/// runs, is dumpable (prctl(2)) and keeps the buffer. It is a link whose target is not a valid path:
/// programs must open it without resolving it. Seal the buffer with `dmabuf_dio_buffer_seal`, so that
/// programs can only read it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_path(buffer: *const Buffer) -> *const c_char {
    // SAFETY: a buffer, as the header demands.
    let path = unsafe { buffer.as_ref() }.and_then(|buffer| buffer.path.as_ref());
    path.map_or(ptr::null(), |path| path.as_ptr())
}

/// Returns the descriptor of a buffer's memfd, which processes share. It belongs to the buffer, like that of
/// `dmabuf_dio_buffer_fd`.
///
/// Returns the descriptor; `-EOPNOTSUPP` if the buffer has none; `-EFAULT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_memfd_fd(buffer: *const Buffer) -> c_int {
    guard(|| {
        // SAFETY: a buffer, as the header demands.
        let buf = unsafe { shared(buffer, "buffer") }?.first();
        match buf.kind() {
            Kind::Memfd | Kind::File => Ok(buf.fd()?.as_raw_fd()),
            other => Err(Failure::new(
                libc::EOPNOTSUPP,
                format!("the buffer is a {other} and has no memfd"),
                "load with DMABUF_DIO_KIND_FILE or DMABUF_DIO_KIND_MEMFD",
            )),
        }
    })
}

/// Returns the descriptor of a buffer's dma-buf, which devices import. It belongs to the buffer, like that of
/// `dmabuf_dio_buffer_fd`.
///
/// A buffer that was loaded with `DMABUF_DIO_KIND_FILE` has a dma-buf over the pages of its memfd where
/// /dev/udmabuf can be used. It is as long as the content, rounded up to whole pages: see
/// `dmabuf_dio_buffer_shared_length`. Stock kernels do not synchronise it with devices: import it into
/// those that are coherent and not behind bounce buffers.
///
/// Returns the descriptor; `-EOPNOTSUPP` if there is none: the message says why, and the hint is a
/// remedy; `-EFAULT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_dmabuf_fd(buffer: *const Buffer) -> c_int {
    guard(|| {
        // SAFETY: a buffer, as the header demands.
        let buffer = unsafe { shared(buffer, "buffer") }?;
        Ok(buffer.first().dma_buf()?.as_raw_fd())
    })
}

/// Returns how many bytes, from the start, the memfd and the dma-buf of a buffer share: those in
/// whole pages. The dma-buf has a copy of the rest, followed by zeros. 0 if the buffer does not have
/// both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_shared_length(buffer: *const Buffer) -> u64 {
    // SAFETY: a buffer, as the header demands.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| buffer.first().shared_len())
}
