// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers for names of the library.

use std::ffi::c_char;

use dmabuf_dio::lend::Access;
use dmabuf_dio::{Backend, Kind, Mode, Numa};

use crate::failure::{Failure, Outcome};

/// Version of this header: major number.
pub const DMABUF_DIO_VERSION_MAJOR: u32 = 0;
/// Version of this header: minor number.
pub const DMABUF_DIO_VERSION_MINOR: u32 = 1;
/// Version of this header: patch number.
pub const DMABUF_DIO_VERSION_PATCH: u32 = 0;

/// Kind of a buffer to load into, the default: a dma-buf if one can be had here, else a memfd; or what the
/// chosen backend creates. No buffer is of this kind.
pub const DMABUF_DIO_KIND_ANY: u32 = 0;
/// Kind of a buffer: a dma-buf, which devices can import.
pub const DMABUF_DIO_KIND_DMABUF: u32 = 1;
/// Kind of a buffer: a memfd, which processes can share.
pub const DMABUF_DIO_KIND_MEMFD: u32 = 2;
/// Kind of a buffer: a memfd of exactly the content, which programs open by path, and a dma-buf over its
/// pages if one can be created here.
pub const DMABUF_DIO_KIND_FILE: u32 = 3;
/// Kind of a buffer: memory of this process only, without a descriptor.
pub const DMABUF_DIO_KIND_PRIVATE: u32 = 4;

/// NUMA nodes: the one of the processor that the calling thread runs on, and others where it has no memory left.
pub const DMABUF_DIO_NUMA_LOCAL: u32 = 1;
/// NUMA nodes: all with memory that the process may use, in turn.
pub const DMABUF_DIO_NUMA_INTERLEAVE: u32 = 2;
/// NUMA nodes: the one that `numa_node` names, and no other.
pub const DMABUF_DIO_NUMA_NODE: u32 = 3;

/// Backend: the best one that is available.
pub const DMABUF_DIO_BACKEND_BEST: u32 = 0;
/// Backend: the kernel module's ioctls.
pub const DMABUF_DIO_BACKEND_MODULE: u32 = 1;
/// Backend: the dma-buf's pages as io_uring fixed buffers, lent by the module (Linux 7.3).
pub const DMABUF_DIO_BACKEND_SLOT: u32 = 2;
/// Backend: the system heap reads the file while it allocates, on a kernel with the patch series.
pub const DMABUF_DIO_BACKEND_HEAP: u32 = 3;
/// Backend: copy_file_range(2) with a dma-buf, on a kernel with the patch series.
pub const DMABUF_DIO_BACKEND_COPY_FILE_RANGE: u32 = 4;
/// Backend: a memfd, and a dma-buf over its pages.
pub const DMABUF_DIO_BACKEND_UDMABUF: u32 = 5;
/// Backend: a memfd, filled by io_uring with `O_DIRECT`.
pub const DMABUF_DIO_BACKEND_MEMFD: u32 = 6;
/// Backend: pread(2) and pwrite(2) on a mapping, through the page cache.
pub const DMABUF_DIO_BACKEND_BUFFERED: u32 = 7;

/// Mode of a transfer: unknown, because the kernel's counters are not sufficient.
pub const DMABUF_DIO_MODE_UNKNOWN: u32 = 0;
/// Mode of a transfer: direct; the page cache of the file did not grow.
pub const DMABUF_DIO_MODE_DIRECT: u32 = 1;
/// Mode of a transfer: through the page cache.
pub const DMABUF_DIO_MODE_BUFFERED: u32 = 2;
/// Mode of a transfer: part of the data went through the page cache.
pub const DMABUF_DIO_MODE_MIXED: u32 = 3;
/// Mode of a transfer: the data was already in the page cache; no storage was read.
pub const DMABUF_DIO_MODE_PAGE_CACHE: u32 = 4;

/// CPU access: reads the buffer. Can be combined with `DMABUF_DIO_ACCESS_WRITE`.
pub const DMABUF_DIO_ACCESS_READ: u32 = 1;
/// CPU access: writes the buffer.
pub const DMABUF_DIO_ACCESS_WRITE: u32 = 2;

/// Returns the version of the library that the program runs with, such as `"0.1.0"`. Never freed.
#[unsafe(no_mangle)]
pub extern "C" fn dmabuf_dio_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Returns the name of a backend, as the command and the reports use it, such as `"module"`; a null
/// pointer if no backend has this number. Never freed.
#[unsafe(no_mangle)]
pub extern "C" fn dmabuf_dio_backend_name(backend: u32) -> *const c_char {
    let name = match backend {
        DMABUF_DIO_BACKEND_MODULE => c"module",
        DMABUF_DIO_BACKEND_SLOT => c"slot",
        DMABUF_DIO_BACKEND_HEAP => c"heap",
        DMABUF_DIO_BACKEND_COPY_FILE_RANGE => c"copy_file_range",
        DMABUF_DIO_BACKEND_UDMABUF => c"udmabuf",
        DMABUF_DIO_BACKEND_MEMFD => c"memfd",
        DMABUF_DIO_BACKEND_BUFFERED => c"buffered",
        _ => return std::ptr::null(),
    };
    name.as_ptr()
}

pub(crate) fn backend(number: u32) -> Outcome<Option<Backend>> {
    Ok(Some(match number {
        DMABUF_DIO_BACKEND_BEST => return Ok(None),
        DMABUF_DIO_BACKEND_MODULE => Backend::Module,
        DMABUF_DIO_BACKEND_SLOT => Backend::UringSlot,
        DMABUF_DIO_BACKEND_HEAP => Backend::Heap,
        DMABUF_DIO_BACKEND_COPY_FILE_RANGE => Backend::CopyFileRange,
        DMABUF_DIO_BACKEND_UDMABUF => Backend::Udmabuf,
        DMABUF_DIO_BACKEND_MEMFD => Backend::Memfd,
        DMABUF_DIO_BACKEND_BUFFERED => Backend::Buffered,
        _ => return Err(unknown("backend", number, "DMABUF_DIO_BACKEND_*")),
    }))
}

/// 0 for a backend that this interface has no number for.
pub(crate) fn number_of(backend: Option<Backend>) -> u32 {
    match backend {
        Some(Backend::Module) => DMABUF_DIO_BACKEND_MODULE,
        Some(Backend::UringSlot) => DMABUF_DIO_BACKEND_SLOT,
        Some(Backend::Heap) => DMABUF_DIO_BACKEND_HEAP,
        Some(Backend::CopyFileRange) => DMABUF_DIO_BACKEND_COPY_FILE_RANGE,
        Some(Backend::Udmabuf) => DMABUF_DIO_BACKEND_UDMABUF,
        Some(Backend::Memfd) => DMABUF_DIO_BACKEND_MEMFD,
        Some(Backend::Buffered) => DMABUF_DIO_BACKEND_BUFFERED,
        _ => 0,
    }
}

/// Each kind and its number.
const KINDS: [(Kind, u32); 5] = [
    (Kind::Any, DMABUF_DIO_KIND_ANY),
    (Kind::DmaBuf, DMABUF_DIO_KIND_DMABUF),
    (Kind::Memfd, DMABUF_DIO_KIND_MEMFD),
    (Kind::File, DMABUF_DIO_KIND_FILE),
    (Kind::Private, DMABUF_DIO_KIND_PRIVATE),
];

pub(crate) fn kind(kind: Kind) -> u32 {
    KINDS.iter().find(|(one, _)| *one == kind).map_or(DMABUF_DIO_KIND_ANY, |(_, number)| *number)
}

pub(crate) fn kind_of(number: u32) -> Outcome<Kind> {
    let found = KINDS.iter().find(|(_, one)| *one == number);
    found.map(|(kind, _)| *kind).ok_or_else(|| unknown("kind", number, "DMABUF_DIO_KIND_*"))
}

pub(crate) fn numa(number: u32, node: u32) -> Outcome<Option<Numa>> {
    match number {
        0 => Ok(None),
        DMABUF_DIO_NUMA_LOCAL => Ok(Some(Numa::Local)),
        DMABUF_DIO_NUMA_INTERLEAVE => Ok(Some(Numa::Interleave)),
        DMABUF_DIO_NUMA_NODE => Ok(Some(Numa::Node(node))),
        _ => Err(unknown("numa", number, "DMABUF_DIO_NUMA_*")),
    }
}

pub(crate) fn number_of_numa(numa: Option<Numa>) -> u32 {
    match numa {
        None => 0,
        Some(Numa::Local) => DMABUF_DIO_NUMA_LOCAL,
        Some(Numa::Interleave) => DMABUF_DIO_NUMA_INTERLEAVE,
        Some(Numa::Node(_)) => DMABUF_DIO_NUMA_NODE,
    }
}

pub(crate) fn node_of(numa: Option<Numa>) -> u32 {
    if let Some(Numa::Node(node)) = numa { node } else { 0 }
}

pub(crate) fn mode(mode: Mode) -> u32 {
    match mode {
        Mode::Direct => DMABUF_DIO_MODE_DIRECT,
        Mode::Buffered => DMABUF_DIO_MODE_BUFFERED,
        Mode::Mixed => DMABUF_DIO_MODE_MIXED,
        Mode::PageCache => DMABUF_DIO_MODE_PAGE_CACHE,
        _ => DMABUF_DIO_MODE_UNKNOWN,
    }
}

pub(crate) fn access(bits: u32) -> Outcome<Access> {
    match bits {
        DMABUF_DIO_ACCESS_READ => Ok(Access::Read),
        DMABUF_DIO_ACCESS_WRITE => Ok(Access::Write),
        3 => Ok(Access::ReadWrite),
        _ => Err(unknown("access", bits, "DMABUF_DIO_ACCESS_*")),
    }
}

pub(crate) fn unknown(what: &str, number: u32, names: &str) -> Failure {
    Failure::invalid(format!("{what} cannot be {number}"), format!("choose one of {names}"))
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn backend_numbers_and_names_match_the_library() {
        for one in Backend::ALL {
            let number = number_of(Some(one));
            assert_eq!(backend(number).ok(), Some(Some(one)));
            // SAFETY: the name is a string of the program.
            let name = unsafe { CStr::from_ptr(dmabuf_dio_backend_name(number)) };
            assert_eq!(name.to_str(), Ok(one.name()));
        }
        assert_eq!(backend(0).ok(), Some(None));
        assert!(backend(9).is_err() && dmabuf_dio_backend_name(9).is_null());
    }

    #[test]
    fn nodes_and_numbers_match() {
        for one in [None, Some(Numa::Local), Some(Numa::Interleave), Some(Numa::Node(5))] {
            assert_eq!(numa(number_of_numa(one), node_of(one)).ok(), Some(one));
        }
        assert!(numa(4, 0).is_err());
    }

    #[test]
    fn header_version_matches_the_library() {
        let header = format!(
            "{DMABUF_DIO_VERSION_MAJOR}.{DMABUF_DIO_VERSION_MINOR}.{DMABUF_DIO_VERSION_PATCH}"
        );
        assert_eq!(header, env!("CARGO_PKG_VERSION"));
    }
}
