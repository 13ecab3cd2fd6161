// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, OnceLock};

use dmabuf_dio::{DmaBuf, Error, Loaded, LoadedFile, Refusal};

use crate::failure::{Failure, Outcome, guard};
use crate::names;
use crate::pointers::{exclusive, fd, free, give, shared};

/// A buffer: a dma-buf or a memfd, and the position of the content in it. The memory is freed once no
/// handle, descriptor, mapping or device uses it.
///
/// Several threads may use a buffer at the same time. Free it once, when no thread uses it any more.
#[derive(Debug)]
pub struct Buffer {
    /// Shared with mappings, which outlive this.
    buf: Arc<DmaBuf>,
    /// The same, once it is sealed: other threads may be using the first meanwhile. Not by a lock, which
    /// a child of fork(2) could find locked for ever.
    sealed: OnceLock<Arc<DmaBuf>>,
    range: Range<u64>,
    /// Of a file in memory: the dma-buf over its pages, or why there is none.
    pub(crate) dmabuf: Option<Result<DmaBuf, Refusal>>,
    shared: u64,
    /// Of a memfd.
    pub(crate) path: Option<CString>,
}

impl Buffer {
    pub(crate) fn new(buf: DmaBuf, range: Range<u64>) -> Self {
        let path = buf.path().and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
        Self { buf: Arc::new(buf), sealed: OnceLock::new(), range, dmabuf: None, shared: 0, path }
    }

    /// The memfd or dma-buf that the handle's other functions refer to.
    pub(crate) fn first(&self) -> &DmaBuf {
        &self.buf
    }

    pub(crate) fn buf(&self) -> &Arc<DmaBuf> {
        self.sealed.get().unwrap_or(&self.buf)
    }

    /// Bytes that the memfd and the dma-buf share, from the start.
    pub(crate) fn shared_len(&self) -> u64 {
        self.shared
    }

    fn whole(buf: DmaBuf) -> Self {
        let range = 0..buf.len();
        Self::new(buf, range)
    }

    /// Seals the memory, and returns the buffer that can no longer be written.
    fn seal(&self) -> Outcome<DmaBuf> {
        let mut own = self.buf.try_clone()?;
        if !matches!(self.dmabuf, Some(Ok(_))) {
            own.seal()?;
            return Ok(own);
        }
        // The dma-buf pins the pages, and the kernel refuses F_SEAL_WRITE for pinned ones.
        // SAFETY: the call takes numbers only.
        let sealed =
            unsafe { libc::fcntl(own.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
        if sealed < 0 {
            let number = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
            let errno = dmabuf_dio::Errno::from_raw(number);
            return Err(Error::Buffer { call: "seal", errno }.into());
        }
        Ok(DmaBuf::from_fd(own.into_fd())?)
    }
}

impl From<Loaded> for Buffer {
    fn from(loaded: Loaded) -> Self {
        let range = loaded.range();
        Self::new(loaded.buf, range)
    }
}

impl From<LoadedFile> for Buffer {
    fn from(loaded: LoadedFile) -> Self {
        let shared = loaded.shared_len();
        Self { shared, dmabuf: Some(loaded.dmabuf), ..Self::whole(loaded.file) }
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
        if heap.is_null() {
            return Ok(Buffer::whole(DmaBuf::alloc(length)?));
        }
        // SAFETY: a string, as the header demands.
        let name = unsafe { CStr::from_ptr(heap) }.to_string_lossy();
        Ok(Buffer::whole(DmaBuf::alloc_from(&name, length)?))
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
    guard(|| unsafe { output(buffer, "buffer", || Ok(Buffer::whole(DmaBuf::memfd(length)?))) })
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
        Ok(Buffer::whole(DmaBuf::from_fd(own)?))
    };
    // SAFETY: as the header demands.
    guard(|| unsafe { output(buffer, "buffer", make) })
}

/// Takes over the buffer that `dmabuf-dio load FILE -- PROGRAM` passes to PROGRAM in the environment.
///
/// Returns 0; `-EINVAL` if there is none; `-EBADF`; `-ERANGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_from_env(buffer: *mut *mut Buffer) -> c_int {
    let make = || {
        let (buf, range) = DmaBuf::from_env()?;
        Ok(Buffer::new(buf, range))
    };
    // SAFETY: as the header demands.
    guard(|| unsafe { output(buffer, "buffer", make) })
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
/// is the memfd's: see `dmabuf_dio_buffer_dmabuf_fd`. `-EFAULT` for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_fd(buffer: *const Buffer) -> c_int {
    // SAFETY: a buffer, as the header demands.
    guard(|| Ok(unsafe { shared(buffer, "buffer") }?.buf.as_raw_fd()))
}

/// Returns a duplicate of the buffer's descriptor, which belongs to the caller and stays open when the
/// buffer is freed. It is closed on exec.
///
/// Returns the descriptor; `-EMFILE`; `-EFAULT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_dup(buffer: *const Buffer) -> c_int {
    guard(|| {
        // SAFETY: a buffer, as the header demands.
        let buffer = unsafe { shared(buffer, "buffer") }?;
        Ok(buffer.buf.try_clone()?.into_fd().into_raw_fd())
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
    unsafe { buffer.as_ref() }.map_or(0, |buffer| buffer.range.start)
}

/// Returns the length of the content in bytes: that of the loaded range, or of the whole buffer if a
/// load did not create it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_data_length(buffer: *const Buffer) -> u64 {
    // SAFETY: a buffer, as the header demands.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| buffer.range.end - buffer.range.start)
}

/// Returns the kind of the buffer, `DMABUF_DIO_KIND_DMABUF` or `DMABUF_DIO_KIND_MEMFD`; 0 for a null
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_buffer_kind(buffer: *const Buffer) -> u32 {
    // SAFETY: a buffer, as the header demands.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| names::kind(buffer.buf.kind()))
}

/// Names a dma-buf: at most 31 bytes, shown in /proc/PID/fdinfo and debugfs.
///
/// Returns 0; `-EINVAL` for a longer name; `-ENOTTY` for a memfd.
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
        let _ = buffer.sealed.set(Arc::new(buffer.seal()?));
        Ok(0)
    })
}
