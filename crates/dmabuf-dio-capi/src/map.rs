// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings, and begin and end of CPU access.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use dmabuf_dio::lend::{Access, Mapping};
use dmabuf_dio::{Error, Kind};

use crate::buffer::{Buffer, output};
use crate::failure::{Failure, guard};
use crate::names;
use crate::pointers::{exclusive, shared};

/// A mapping of a whole buffer into this process, and CPU access to it. It keeps the buffer alive.
///
/// Only one thread at a time may begin or end access, or unmap.
#[derive(Debug)]
pub struct Map {
    /// None: the buffer is private memory, mapped for as long as it lives.
    mapping: Option<Mapping>,
    buf: Arc<dmabuf_dio::Buffer>,
    access: Access,
    begun: bool,
}

impl Map {
    fn end(&mut self) -> dmabuf_dio::Result<()> {
        if std::mem::take(&mut self.begun) {
            self.buf.end_cpu_access(self.access)?;
        }
        Ok(())
    }
}

/// Maps a buffer and begins CPU access, so that data written by devices is visible. Blocks until
/// devices that use the buffer have finished.
///
/// `access` is `DMABUF_DIO_ACCESS_READ`, `DMABUF_DIO_ACCESS_WRITE` or both. Without `WRITE` the mapping
/// is read-only.
///
/// Returns 0; `-EINVAL` for `access`; `-EACCES` if the buffer cannot be written; `-ENODEV` if its
/// exporter does not support mapping; `-ENOMEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_map(
    buffer: *const Buffer,
    access: u32,
    map: *mut *mut Map,
) -> c_int {
    let make = || {
        // SAFETY: a buffer, as the header demands.
        let buf = Arc::clone(unsafe { shared(buffer, "buffer") }?.buf());
        let access = names::access(access)?;
        if access != Access::Read && !buf.is_writable() {
            return Err(Error::ReadOnlyBuffer.into());
        }
        let mapping = match buf.kind() {
            Kind::Private => None,
            _ => Some(buf.mapping(access != Access::Read)?),
        };
        buf.begin_cpu_access(access)?;
        Ok(Map { mapping, buf, access, begun: true })
    };
    // SAFETY: as the header demands.
    guard(|| unsafe { output(map, "map", make) })
}

/// Returns the address of the buffer's first byte, a multiple of the page size; a null pointer if `map`
/// is one. It does not change until the buffer is unmapped.
///
/// The content is at `dmabuf_dio_buffer_data_offset`, and the mapping is as long as the buffer.
/// Accessing a page of a memfd that was shrunk, or in which a hole was punched, can raise `SIGBUS`, as
/// with mmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_map_address(map: *const Map) -> *mut c_void {
    // SAFETY: a map, as the header demands.
    let map = unsafe { map.as_ref() };
    let address = map.and_then(|map| match &map.mapping {
        Some(mapping) => Some(mapping.as_ptr()),
        None => Some(map.buf.map().ok()?.as_ptr().cast_mut()),
    });
    address.map_or(std::ptr::null_mut(), <*mut u8>::cast)
}

/// Ends CPU access without unmapping: devices may use the buffer, and the memory must not be touched
/// until `dmabuf_dio_map_begin`.
///
/// Returns 0; `-EALREADY` if it has ended already; or the kernel's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_map_end(map: *mut Map) -> c_int {
    guard(|| {
        // SAFETY: a map, as the header demands.
        let map = unsafe { exclusive(map, "map") }?;
        if !map.begun {
            return Err(Failure::new(libc::EALREADY, "CPU access has ended already", "begin it"));
        }
        map.end()?;
        Ok(0)
    })
}

/// Begins CPU access again, as `dmabuf_dio_map` did.
///
/// Returns 0; `-EALREADY` if it has not ended; or the kernel's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_map_begin(map: *mut Map) -> c_int {
    guard(|| {
        // SAFETY: a map, as the header demands.
        let map = unsafe { exclusive(map, "map") }?;
        if map.begun {
            return Err(Failure::new(libc::EALREADY, "CPU access has not ended", "end it first"));
        }
        map.buf.begin_cpu_access(map.access)?;
        map.begun = true;
        Ok(0)
    })
}

/// Ends CPU access, if it has not ended, unmaps the buffer and frees the handle, even if it returns an
/// error. Does nothing for a null pointer.
///
/// Returns 0, or the kernel's error at the end of the access: then a device may not see the written
/// data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_unmap(map: *mut Map) -> c_int {
    guard(|| {
        if map.is_null() {
            return Ok(0);
        }
        // SAFETY: the handle is not used any more, as the header demands.
        let mut map = unsafe { Box::from_raw(map) };
        map.end()?;
        Ok(0)
    })
}

/// Begins CPU access to a buffer without mapping it: for the program's own mappings, and for its own
/// requests on lent memory, which count as CPU access for the devices that have imported the buffer.
/// Does nothing for a memfd.
///
/// Returns 0; `-EINVAL` for `access`; or the kernel's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_access_begin(buffer: *const Buffer, access: u32) -> c_int {
    guard(|| {
        // SAFETY: a buffer, as the header demands.
        unsafe { shared(buffer, "buffer") }?.buf().begin_cpu_access(names::access(access)?)?;
        Ok(0)
    })
}

/// Ends CPU access that `dmabuf_dio_access_begin` has begun with the same `access`.
///
/// Returns 0; `-EINVAL` for `access`; or the kernel's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_access_end(buffer: *const Buffer, access: u32) -> c_int {
    guard(|| {
        // SAFETY: a buffer, as the header demands.
        unsafe { shared(buffer, "buffer") }?.buf().end_cpu_access(names::access(access)?)?;
        Ok(0)
    })
}
