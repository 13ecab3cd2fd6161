// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, OnceLock};

use dmabuf_dio::{DmaBuf, Error};

use crate::failure::{Failure, Outcome, guard};
use crate::names;
use crate::pointers::{exclusive, fd, free, give, shared};

/// A buffer: a dma-buf, a memfd, both, or private memory, and the position of the content in it. The
/// memory is freed once no handle, descriptor, mapping or device uses it.
///
/// Several threads may use a buffer at the same time. Free it once, when no thread uses it any more.
#[derive(Debug)]
pub struct Buffer {
    /// Shared with mappings, which outlive this.
    buf: Arc<dmabuf_dio::Buffer>,
    /// The same buffer, once it is sealed: other threads may be using the first one. There is no
    /// lock, because a child of fork(2) could find it locked for ever.
    sealed: OnceLock<Arc<dmabuf_dio::Buffer>>,
    /// Of a memfd.
    pub(crate) path: Option<CString>,
}

impl Buffer {
    /// The buffer whose descriptor was handed out.
    pub(crate) fn first(&self) -> &dmabuf_dio::Buffer {
        &self.buf
    }

    pub(crate) fn buf(&self) -> &Arc<dmabuf_dio::Buffer> {
        self.sealed.get().unwrap_or(&self.buf)
    }
}

impl From<dmabuf_dio::Buffer> for Buffer {
    fn from(buf: dmabuf_dio::Buffer) -> Self {
        let path = buf.path().and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
        Self { buf: Arc::new(buf), sealed: OnceLock::new(), path }
    }
}

/// Passes the result of `make` to C.
///
/// # Safety
///
/// `out` is null, or an address for a pointer.
pub(crate) unsafe fn output<T>(
    out: *mut *mut T,
    argument: &str,
    make: impl FnOnce() -> Outcome<T>,
) -> Outcome {
    // SAFETY: as the caller promises.
    let out = unsafe { exclusive(out, argument) }?;
    *out = std::ptr::null_mut();
    *out = give(make()?);
    Ok(0)
}

/// Allocates a zeroed dma-buf of `length` bytes, rounded up to whole pages, from the heap of this name
/// in /dev/dma_heap, or from the system heap if `heap` is a null pointer.
///
/// Returns 0; `-ENOENT` or `-EACCES` for the heap; `-ENOMEM`; `-EINVAL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_alloc(
    heap: *const c_char,
    length: u64,
    buffer: *mut *mut Buffer,
) -> c_int {
    let make = || {
        // SAFETY: a string, as the header demands.
        let name = (!heap.is_null()).then(|| unsafe { CStr::from_ptr(heap) }.to_string_lossy());
        let name = name.as_deref().unwrap_or("system");
        Ok(dmabuf_dio::Buffer::from(DmaBuf::alloc_from(name, length)?).into())
    };
    // SAFETY: as the header demands.
    guard(|| unsafe { output(buffer, "buffer", make) })
}

/// Creates a zeroed memfd of `length` bytes, rounded up to whole pages and sealed against shrinking.
///
/// Returns 0; `-EMFILE`; `-EFBIG`; `-EOVERFLOW`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_memfd(length: u64, buffer: *mut *mut Buffer) -> c_int {
    // SAFETY: as the header demands.
    guard(|| unsafe { output(buffer, "buffer", || Ok(dmabuf_dio::Buffer::memfd(length)?.into())) })
}

/// Creates a buffer from the descriptor of a dma-buf or memfd. The library uses a duplicate; the
/// descriptor still belongs to the caller. A memfd is sealed against shrinking if possible.
///
/// Returns 0; `-EINVAL` if it is neither; `-EBADF`; `-EMFILE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_from_fd(
    descriptor: c_int,
    buffer: *mut *mut Buffer,
) -> c_int {
    let make = || {
        // SAFETY: nobody closes it during the call, as the header demands.
        let own = unsafe { fd(descriptor) }?.try_clone_to_owned().map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EMFILE);
            let message = format!("cannot duplicate descriptor {descriptor}: {error}");
            Failure::new(errno, message, "allow more open files: ulimit -n")
        })?;
        Ok(dmabuf_dio::Buffer::from_fd(own)?.into())
    };
    // SAFETY: as the header demands.
    guard(|| unsafe { output(buffer, "buffer", make) })
}

/// Takes over the buffer that `dmabuf-dio load FILE -- PROGRAM` passes to PROGRAM in the environment.
///
/// Returns 0; `-EINVAL` if there is none; `-EBADF`; `-ERANGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_from_env(buffer: *mut *mut Buffer) -> c_int {
    // SAFETY: as the header demands.
    guard(|| unsafe { output(buffer, "buffer", || Ok(dmabuf_dio::Buffer::from_env()?.into())) })
}

/// Frees the handle, and closes the buffer's descriptor. Maps and gathers of the buffer stay valid.
/// Does nothing for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_free(buffer: *mut Buffer) {
    // SAFETY: the handle is not used any more, as the header demands.
    unsafe { free(buffer) };
}

/// Returns the buffer's descriptor, to be passed to an importer. It belongs to the buffer: the caller
/// must not close it, and it is closed with the buffer. If the buffer is both a memfd and a dma-buf, it
/// is the memfd's: see `dmabuf_dio_buffer_dmabuf_fd`. `-EINVAL` for private memory, which has none;
/// `-EFAULT` for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_fd(buffer: *const Buffer) -> c_int {
    // SAFETY: a buffer, as the header demands.
    guard(|| Ok(unsafe { shared(buffer, "buffer") }?.buf.fd()?.as_raw_fd()))
}

/// Returns a duplicate of the buffer's descriptor, which belongs to the caller and stays open when the
/// buffer is freed. It is closed on exec.
///
/// Returns the descriptor; `-EMFILE`; `-EINVAL` for private memory; `-EFAULT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_dup(buffer: *const Buffer) -> c_int {
    guard(|| {
        // SAFETY: a buffer, as the header demands.
        let buffer = unsafe { shared(buffer, "buffer") }?;
        Ok(buffer.buf.try_clone()?.into_fd()?.into_raw_fd())
    })
}

/// Returns the length of the buffer in bytes; 0 for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_length(buffer: *const Buffer) -> u64 {
    // SAFETY: a buffer, as the header demands.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| buffer.buf.len())
}

/// Returns the offset of the content in the buffer, in bytes: 0 if the loaded range starts on a page
/// boundary of the file, else less than a page (or less than a block, if blocks are larger).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_data_offset(buffer: *const Buffer) -> u64 {
    // SAFETY: a buffer, as the header demands.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| buffer.buf.data_offset())
}

/// Returns the length of the content in bytes: that of the loaded range, or of the whole buffer if a
/// load did not create it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_data_length(buffer: *const Buffer) -> u64 {
    // SAFETY: a buffer, as the header demands.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| buffer.buf.data_len())
}

/// Returns the kind of the buffer, a `DMABUF_DIO_KIND_*` other than `ANY`; 0 for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_kind(buffer: *const Buffer) -> u32 {
    // SAFETY: a buffer, as the header demands.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| names::kind(buffer.buf.kind()))
}

/// Names a dma-buf: at most 31 bytes, shown in /proc/PID/fdinfo and debugfs.
///
/// Returns 0; `-EINVAL` for a longer name; `-EOPNOTSUPP` if the buffer has no dma-buf.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_set_name(
    buffer: *const Buffer,
    name: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: a buffer, as the header demands.
        let buffer = unsafe { shared(buffer, "buffer") }?;
        if name.is_null() {
            return Err(Failure::null("name"));
        }
        // SAFETY: a string, as the header demands.
        let name = unsafe { CStr::from_ptr(name) };
        let text = name.to_str().map_err(|_| Failure::invalid("name is not UTF-8", ""))?;
        buffer.buf.set_name(text)?;
        Ok(0)
    })
}

/// Seals a memfd permanently against writing: its content can no longer be changed through any of its
/// descriptors. A transfer into it that is running in another thread may fail. If the buffer also has a
/// dma-buf, as with `DMABUF_DIO_KIND_FILE`, the content can still be written through the dma-buf's
/// descriptor.
///
/// Returns 0; `-EBUSY` while it is mapped for writing, or a map or gather of it exists; `-EPERM` if it
/// does not allow sealing; `-EINVAL` for a dma-buf; `-EMFILE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_seal(buffer: *mut Buffer) -> c_int {
    guard(|| {
        // SAFETY: a buffer, as the header demands.
        let buffer = unsafe { shared(buffer, "buffer") }?;
        if Arc::strong_count(buffer.buf()) > 1 {
            let errno = dmabuf_dio::Errno::from_raw(libc::EBUSY);
            return Err(Error::Buffer { call: "seal", errno }.into());
        }
        let mut own = buffer.buf.try_clone()?;
        own.seal()?;
        let _ = buffer.sealed.set(Arc::new(own));
        Ok(0)
    })
}
