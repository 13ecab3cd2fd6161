// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways by the names that they have in each benchmark, in its order.

use dmabuf_dio::{Backend, Kind};

use super::Way;
use crate::buffer::BufferKind::{self, DmaBuf, Memfd, Udmabuf, UdmabufMemfd};
use crate::buffer::mapping::Pages::{self, Huge, Small};
use crate::disk::IoMode::{self, Buffer, Direct};

const MIB: u64 = 1 << 20;

const fn library(backend: Backend) -> Way {
    Way::Library { backend: Some(backend), kind: Kind::Any, huge_pages: true }
}

const fn read(kind: BufferKind, mode: IoMode) -> Way {
    Way::Read { kind, mode, mapped: false }
}

const fn read_mapped(kind: BufferKind, mode: IoMode) -> Way {
    Way::Read { kind, mode, mapped: true }
}

const fn copy(kind: BufferKind) -> Way {
    Way::Copy { kind, again: false }
}

const PRIVATE: Way = Way::Library { backend: None, kind: Kind::Private, huge_pages: true };

/// `load`: the ways of the heap flag's thread, then those that only the thread of `copy_file_range` has.
pub(crate) const LOAD: [(&str, Way); 14] = [
    ("normal", read(DmaBuf, Buffer)),
    ("LOAD module buffer", Way::ModuleLoad { mode: Buffer, gather: false }),
    ("memfd direct R/W", read(Memfd, Direct)),
    ("udmabuf direct", read(UdmabufMemfd, Direct)),
    ("udmabuf direct, parallel", Way::Parallel { huge: false }),
    ("udmabuf direct, parallel, huge pages", Way::Parallel { huge: true }),
    ("sendfile direct", Way::Sendfile),
    ("LOAD heap direct", Way::HeapLoad { mode: Direct, gather: false }),
    ("LOAD heap direct, gather", Way::HeapLoad { mode: Direct, gather: true }),
    ("LOAD module direct", Way::ModuleLoad { mode: Direct, gather: false }),
    ("LOAD module direct, gather", Way::ModuleLoad { mode: Direct, gather: true }),
    ("udmabuf buffer R/W", read(Udmabuf, Buffer)),
    ("udmabuf direct c_f_r", copy(Udmabuf)),
    ("dmabuf direct c_f_r", copy(DmaBuf)),
];

const COST: [(&str, Way); 20] = [
    ("malloc: read()", Way::Zeroed),
    ("memfd: read()", read(Memfd, Buffer)),
    ("memfd, faulted in: O_DIRECT pread", read_mapped(Memfd, Direct)),
    ("memfd, faulted in: io_uring 1 MiB x 8", Way::Registered((MIB, 8))),
    ("heap: allocate", Way::Allocate),
    ("heap: read() into the mapping", read_mapped(DmaBuf, Buffer)),
    ("udmabuf: parallel reads", Way::Parallel { huge: false }),
    ("udmabuf: parallel reads, huge pages", Way::Parallel { huge: true }),
    ("module: attach a heap buffer", Way::Attach(DmaBuf)),
    ("module: attach a udmabuf", Way::Attach(Udmabuf)),
    ("module: READ", Way::ModuleRead((0, 0))),
    ("module: READ, 32 MiB at a time", Way::ModuleRead((32 * MIB, 1))),
    ("module: slot, 1 MiB x 8", Way::Slots((MIB, 8))),
    ("module: slot, 8 MiB x 4", Way::Slots((8 * MIB, 4))),
    ("module: LOAD", Way::ModuleLoad { mode: Direct, gather: true }),
    ("series: copy_file_range, heap", copy(DmaBuf)),
    ("series: copy_file_range, heap, again", Way::Copy { kind: DmaBuf, again: true }),
    ("series: copy_file_range, udmabuf", copy(Udmabuf)),
    ("series: heap flag", Way::HeapLoad { mode: Direct, gather: true }),
    ("library: private memory", PRIVATE),
];

/// `cost`: from the ways of every kernel to those of this project.
pub(crate) fn cost() -> Vec<(String, Way)> {
    let library = Backend::ALL.map(|backend| (format!("library: {backend}"), library(backend)));
    COST.map(|(name, way)| (name.to_owned(), way)).into_iter().chain(library).collect()
}

/// A way of `compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnWay {
    pub(crate) name: &'static str,
    pub(crate) way: Way,
    /// Which pages shared memory can have.
    pub(crate) pages: Pages,
    /// Read-ahead of the device in KiB; `None`: unchanged.
    pub(crate) read_ahead: Option<u32>,
}

/// `compare`
pub(crate) const COMPARE: [OwnWay; 19] = {
    const SMALL_MEMFD: Way =
        Way::Library { backend: Some(Backend::Memfd), kind: Kind::Any, huge_pages: false };
    [
        own("dmabuf-dio memfd", library(Backend::Memfd), Huge),
        own("dmabuf-dio memfd, no setting", library(Backend::Memfd), Small),
        own("dmabuf-dio memfd, 4 KiB", SMALL_MEMFD, Small),
        own("dmabuf-dio private memory", PRIVATE, Small),
        own("dmabuf-dio udmabuf", library(Backend::Udmabuf), Huge),
        own("dmabuf-dio module", library(Backend::Module), Huge),
        own("dmabuf-dio slot", library(Backend::UringSlot), Huge),
        own("dmabuf-dio heap", library(Backend::Heap), Huge),
        own("dmabuf-dio copy_file_range", library(Backend::CopyFileRange), Huge),
        own("dmabuf-dio buffered", library(Backend::Buffered), Huge),
        own("read() into malloc", Way::Malloc, Huge),
        own("read() into memfd", read(Memfd, Buffer), Huge),
        own("read() into dma-buf", read(DmaBuf, Buffer), Huge),
        own("mmap, read-ahead as found", Way::Map, Huge),
        // The kernel's default, and the best: more has no effect.
        OwnWay { read_ahead: Some(128), ..own("mmap, read-ahead 128 KiB", Way::Map, Huge) },
        OwnWay { read_ahead: Some(8192), ..own("mmap, read-ahead 8 MiB", Way::Map, Huge) },
        own("pread O_DIRECT 1 MiB", Way::Pread { piece: MIB }, Huge),
        own("pread O_DIRECT 32 MiB", Way::Pread { piece: 32 * MIB }, Huge),
        own("io_uring O_DIRECT 1 MiB x 8", Way::Ring((MIB, 8)), Huge),
    ]
};

const fn own(name: &'static str, way: Way, pages: Pages) -> OwnWay {
    OwnWay { name, way, pages, read_ahead: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_every_backend_is_compared() {
        let load = LOAD.map(|(name, _)| name.to_owned()).to_vec();
        let cost = cost().into_iter().map(|(name, _)| name).collect();
        for names in [load, cost, COMPARE.map(|own| own.name.to_owned()).to_vec()] {
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
        }
        for backend in Backend::ALL {
            assert!(COMPARE.iter().any(|own| own.way == library(backend)), "{backend}");
        }
    }

    #[test]
    fn copies_are_those_through_the_page_cache() {
        let moves = |wanted| {
            let ways = cost().into_iter().filter(move |(_, way)| way.moves() == wanted);
            ways.map(|(name, _)| name).collect::<Vec<_>>()
        };
        let copied = [
            "malloc: read()",
            "memfd: read()",
            "heap: read() into the mapping",
            "library: buffered",
        ];
        assert_eq!(moves([1, 1]), copied);
        let neither = [
            "module: attach a heap buffer",
            "module: attach a udmabuf",
            "module: LOAD",
            "series: heap flag",
            "library: module",
            "library: heap",
        ];
        assert_eq!(moves([0, 0]), neither);
        assert_eq!(moves([0, 1]).len() + copied.len() + neither.len(), cost().len());
        let fills = COMPARE.iter().filter(|own| own.way.fills_page_cache()).map(|own| own.name);
        let wanted = [
            "dmabuf-dio buffered",
            "read() into malloc",
            "read() into memfd",
            "read() into dma-buf",
        ];
        assert_eq!(fills.collect::<Vec<_>>(), wanted);
    }
}
