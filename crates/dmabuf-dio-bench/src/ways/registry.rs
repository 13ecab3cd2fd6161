// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways by the names that they have in each table, in its order.

use dmabuf_dio::{Backend, Kind};

use super::{Gather, LoadProvider, Transfer, Way};
use crate::buffer::BufferKind::{self, DmaBuf, Memfd, Udmabuf, UdmabufMemfd};
use crate::buffer::mapping::Pages;
use crate::buffer::transfer::TransferMethod::{self, CopyFileRange, ReadWrite, Sendfile, Splice};
use crate::disk::IoMode::{self, Buffer, Direct};

const MIB: u64 = 1 << 20;

const fn transfer(kind: BufferKind, mode: IoMode, method: TransferMethod) -> Transfer {
    Transfer { kind, mode, method }
}

const fn moved(kind: BufferKind, mode: IoMode, method: TransferMethod) -> Way {
    Way::Move(transfer(kind, mode, method))
}

const fn library(backend: Backend) -> Way {
    Way::Library { backend: Some(backend), kind: Kind::Any, huge_pages: true }
}

const PRIVATE: Way = Way::Library { backend: None, kind: Kind::Private, huge_pages: true };

/// `table`: the rows of the `copy_file_range` thread. It has a 23rd, the first repeated: here rows
/// alternate instead.
pub(crate) const TABLE: [Transfer; 22] = [
    transfer(DmaBuf, Buffer, ReadWrite),
    transfer(Udmabuf, Buffer, ReadWrite),
    transfer(Memfd, Buffer, ReadWrite),
    transfer(Memfd, Direct, ReadWrite),
    transfer(Memfd, Buffer, Sendfile),
    transfer(Memfd, Direct, Sendfile),
    transfer(Memfd, Buffer, Splice),
    transfer(Memfd, Direct, Splice),
    transfer(Memfd, Buffer, CopyFileRange),
    transfer(Memfd, Direct, CopyFileRange),
    transfer(UdmabufMemfd, Buffer, ReadWrite),
    transfer(UdmabufMemfd, Direct, ReadWrite),
    transfer(UdmabufMemfd, Buffer, Sendfile),
    transfer(UdmabufMemfd, Direct, Sendfile),
    transfer(UdmabufMemfd, Buffer, Splice),
    transfer(UdmabufMemfd, Direct, Splice),
    transfer(UdmabufMemfd, Buffer, CopyFileRange),
    transfer(UdmabufMemfd, Direct, CopyFileRange),
    transfer(Udmabuf, Buffer, CopyFileRange),
    transfer(Udmabuf, Direct, CopyFileRange),
    transfer(DmaBuf, Buffer, CopyFileRange),
    transfer(DmaBuf, Direct, CopyFileRange),
];

/// `load`: a LOAD without gather precedes the one with gather that is compared with it.
pub(crate) const LOAD: [(&str, IoMode, Way); 15] = {
    use Gather::{With, Without};
    use LoadProvider::{Heap, Module};
    [
        ("normal", Buffer, moved(DmaBuf, Buffer, ReadWrite)),
        ("udmabuf buffer", Buffer, moved(UdmabufMemfd, Buffer, ReadWrite)),
        ("sendfile buffer", Buffer, Way::Sendfile(Buffer)),
        ("LOAD heap buffer", Buffer, Way::Load(Heap, Buffer, Without)),
        ("LOAD heap buffer, gather", Buffer, Way::Load(Heap, Buffer, With)),
        ("LOAD module buffer", Buffer, Way::Load(Module, Buffer, Without)),
        ("LOAD module buffer, gather", Buffer, Way::Load(Module, Buffer, With)),
        ("udmabuf direct", Direct, moved(UdmabufMemfd, Direct, ReadWrite)),
        ("udmabuf direct, parallel", Direct, Way::Parallel { huge: false }),
        ("udmabuf direct, parallel, huge pages", Direct, Way::Parallel { huge: true }),
        ("sendfile direct", Direct, Way::Sendfile(Direct)),
        ("LOAD heap direct", Direct, Way::Load(Heap, Direct, Without)),
        ("LOAD heap direct, gather", Direct, Way::Load(Heap, Direct, With)),
        ("LOAD module direct", Direct, Way::Load(Module, Direct, Without)),
        ("LOAD module direct, gather", Direct, Way::Load(Module, Direct, With)),
    ]
};

const COST: [(&str, Way); 20] = [
    ("malloc: read()", Way::Zeroed),
    ("memfd: read()", moved(Memfd, Buffer, ReadWrite)),
    ("memfd, faulted in: O_DIRECT pread", Way::Mapped(Memfd, Direct)),
    ("memfd, faulted in: io_uring 1 MiB x 8", Way::Registered { chunk: MIB, depth: 8 }),
    ("heap: allocate", Way::Allocate),
    ("heap: read() into the mapping", Way::Mapped(DmaBuf, Buffer)),
    ("udmabuf: parallel reads", Way::Parallel { huge: false }),
    ("udmabuf: parallel reads, huge pages", Way::Parallel { huge: true }),
    ("module: attach a heap buffer", Way::Attach(DmaBuf)),
    ("module: attach a udmabuf", Way::Attach(Udmabuf)),
    ("module: READ", Way::ModuleRead { chunk: 0, depth: 0 }),
    ("module: READ, 32 MiB at a time", Way::ModuleRead { chunk: 32 * MIB, depth: 1 }),
    ("module: slot, 1 MiB x 8", Way::Slots { chunk: MIB, depth: 8 }),
    ("module: slot, 8 MiB x 4", Way::Slots { chunk: 8 * MIB, depth: 4 }),
    ("module: LOAD", Way::Load(LoadProvider::Module, Direct, Gather::Default)),
    ("series: copy_file_range, heap", moved(DmaBuf, Direct, CopyFileRange)),
    (
        "series: copy_file_range, heap, again",
        Way::MoveAgain(transfer(DmaBuf, Direct, CopyFileRange)),
    ),
    ("series: copy_file_range, udmabuf", moved(Udmabuf, Direct, CopyFileRange)),
    ("series: heap flag", Way::Load(LoadProvider::Heap, Direct, Gather::Default)),
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
    /// The name for `--ways` and for the loading process.
    pub(crate) id: &'static str,
    /// The name in the table.
    pub(crate) name: &'static str,
    pub(crate) way: Way,
    /// Which pages shared memory can have.
    pub(crate) pages: Pages,
    /// Read-ahead of the device in KiB; `None`: unchanged.
    pub(crate) read_ahead: Option<u32>,
}

/// The reference of `compare` for small files.
pub(crate) const READ: &str = "read-malloc";

/// `compare`
pub(crate) const COMPARE: [OwnWay; 19] = {
    use Pages::{Huge, Small};
    const SMALL_MEMFD: Way =
        Way::Library { backend: Some(Backend::Memfd), kind: Kind::Any, huge_pages: false };
    [
        own("memfd", "dmabuf-dio memfd", library(Backend::Memfd), Huge),
        own("memfd-unset", "dmabuf-dio memfd, no setting", library(Backend::Memfd), Small),
        own("memfd-4k", "dmabuf-dio memfd, 4 KiB", SMALL_MEMFD, Small),
        own("private", "dmabuf-dio private memory", PRIVATE, Small),
        own("udmabuf", "dmabuf-dio udmabuf", library(Backend::Udmabuf), Huge),
        own("module", "dmabuf-dio module", library(Backend::Module), Huge),
        own("slot", "dmabuf-dio slot", library(Backend::UringSlot), Huge),
        own("heap", "dmabuf-dio heap", library(Backend::Heap), Huge),
        own("copy_file_range", "dmabuf-dio copy_file_range", library(Backend::CopyFileRange), Huge),
        own("buffered", "dmabuf-dio buffered", library(Backend::Buffered), Huge),
        own(READ, "read() into malloc", Way::Malloc, Huge),
        own("read-memfd", "read() into memfd", moved(Memfd, Buffer, ReadWrite), Huge),
        own("read-dmabuf", "read() into dma-buf", moved(DmaBuf, Buffer, ReadWrite), Huge),
        own("mmap", "mmap, read-ahead as found", Way::Map, Huge),
        // The kernel's default, and the best: more has no effect.
        read_ahead("mmap-128k", "mmap, read-ahead 128 KiB", 128),
        read_ahead("mmap-8m", "mmap, read-ahead 8 MiB", 8192),
        own("pread-1m", "pread O_DIRECT 1 MiB", Way::Pread { piece: 1 << 20 }, Huge),
        own("pread-32m", "pread O_DIRECT 32 MiB", Way::Pread { piece: 32 << 20 }, Huge),
        own(
            "io_uring",
            "io_uring O_DIRECT 1 MiB x 8",
            Way::Ring { piece: 1 << 20, depth: 8 },
            Huge,
        ),
    ]
};

const fn own(id: &'static str, name: &'static str, way: Way, pages: Pages) -> OwnWay {
    OwnWay { id, name, way, pages, read_ahead: None }
}

const fn read_ahead(id: &'static str, name: &'static str, kib: u32) -> OwnWay {
    OwnWay { read_ahead: Some(kib), ..own(id, name, Way::Map, Pages::Huge) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::Hash;

    fn all_differ<T: Eq + Hash>(list: impl IntoIterator<Item = T>) -> bool {
        let mut seen = HashSet::new();
        list.into_iter().all(|one| seen.insert(one))
    }

    #[test]
    fn names_are_unique_and_every_backend_is_compared() {
        assert!(all_differ(TABLE) && all_differ(TABLE.map(Transfer::name)));
        assert!(all_differ(LOAD.map(|(name, ..)| name)) && all_differ(LOAD.map(|(.., way)| way)));
        let cost = cost();
        assert!(cost.iter().all(|(name, _)| name.len() <= 37));
        assert!(all_differ(cost.into_iter().map(|(name, _)| name)));
        assert!(all_differ(COMPARE.map(|own| own.id)) && all_differ(COMPARE.map(|own| own.name)));
        for backend in Backend::ALL {
            assert!(COMPARE.iter().any(|own| own.way == library(backend)), "{backend}");
        }
        assert!(COMPARE.iter().any(|own| own.id == READ));
    }

    /// The numbers of the rows in the thread.
    #[test]
    fn rows_are_ordered_as_in_the_mail_thread() {
        for (number, name) in [
            (1, "dmabuf buffer R/W"),
            (3, "memfd buffer R/W"),
            (8, "memfd direct splice"),
            (12, "u+memfd direct R/W"),
            (18, "u+memfd direct c_f_r"),
            (20, "udmabuf direct c_f_r"),
            (22, "dmabuf direct c_f_r"),
        ] {
            assert_eq!(TABLE[number - 1].name(), name);
        }
    }

    /// A dma-buf without a memfd supports neither direct R/W nor sendfile nor splice.
    #[test]
    fn dmabufs_are_read_or_copied() {
        for row in TABLE.iter().filter(|row| row.kind.moves_dmabuf()) {
            match row.method {
                ReadWrite => assert_eq!(row.mode, Buffer),
                method => assert_eq!(method, CopyFileRange),
            }
        }
    }

    #[test]
    fn gather_follows_its_base() {
        let with = |way| matches!(way, Way::Load(_, _, Gather::With));
        let pairs = LOAD.windows(2).filter(|pair| with(pair[1].2));
        let mut count = 0;
        for pair in pairs {
            let (Way::Load(by, mode, Gather::Without), Way::Load(other, same, _)) =
                (pair[0].2, pair[1].2)
            else {
                panic!("{pair:?}");
            };
            assert_eq!((by, mode), (other, same));
            count += 1;
        }
        assert_eq!(count, 4);
    }

    #[test]
    fn copies_are_those_through_the_page_cache() {
        let copied = |name: &str| {
            let ways = super::cost();
            ways.into_iter().find(|way| way.0 == name).expect("a way").1.moves()
        };
        assert_eq!(copied("malloc: read()"), [1, 1]);
        assert_eq!(copied("memfd, faulted in: O_DIRECT pread"), [0, 1]);
        assert_eq!(copied("module: LOAD"), [0, 0]);
        assert_eq!(copied("series: copy_file_range, heap"), [0, 1]);
        assert_eq!(copied("library: buffered"), [1, 1]);
        let fills = COMPARE.iter().filter(|own| own.way.fills_page_cache()).map(|own| own.id);
        assert_eq!(
            fills.collect::<Vec<_>>(),
            ["buffered", "read-malloc", "read-memfd", "read-dmabuf"]
        );
    }
}
