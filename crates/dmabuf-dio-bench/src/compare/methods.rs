// SPDX-License-Identifier: MIT OR Apache-2.0
//! The built-in methods, by name.

use dmabuf_dio::Backend;

use super::settings::CompareSettings;
use crate::buffer::mapping::Pages;

/// The kernel's default read-ahead, in KiB.
const READ_AHEAD_DEFAULT: u32 = 128;
/// The best read-ahead for `mmap`; more has no effect.
const READ_AHEAD_LARGE: u32 = 8192;

/// A method: how a process loads the file, and the kernel settings for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnMethod {
    /// The name for `--ways` and for the loading process.
    pub(crate) id: &'static str,
    /// The name in the table.
    pub(crate) name: &'static str,
    pub(crate) load: LoadMethod,
    pub(crate) settings: CompareSettings,
}

/// How a process loads the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadMethod {
    /// A backend of the library into a new buffer.
    Library(Backend),
    /// The same with small pages, even if there are huge pages.
    LibrarySmall(Backend),
    /// The library's private memory.
    Private,
    /// `read()` into new memory.
    Read(ReadInto),
    /// Map the file and touch each page of it.
    Map,
    /// `pread()` with `O_DIRECT` into huge pages, in pieces of this many bytes.
    Direct { piece: usize },
    /// `io_uring` with `O_DIRECT` into 4 KiB pages.
    Ring { piece: usize, depth: u32 },
}

/// The destination of `read()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadInto {
    Malloc,
    Memfd,
    DmaBuf,
}

impl OwnMethod {
    /// The reference for small files.
    pub(crate) const READ: &str = "read-malloc";

    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        OWN.iter()
    }

    pub(crate) fn named(id: &str) -> Option<&'static Self> {
        Self::all().find(|own| own.id == id)
    }

    /// Whether the method uses the page cache, and so needs twice the memory.
    pub(crate) fn fills_page_cache(&self) -> bool {
        matches!(self.load, LoadMethod::Library(Backend::Buffered) | LoadMethod::Read(_))
    }
}

const HUGE: CompareSettings = CompareSettings { pages: Pages::Huge, read_ahead: None };
const SMALL: CompareSettings = CompareSettings { pages: Pages::Small, read_ahead: None };

/// In the order of the table.
const OWN: &[OwnMethod] = &[
    own("memfd", "dmabuf-dio memfd", LoadMethod::Library(Backend::Memfd), HUGE),
    own("memfd-unset", "dmabuf-dio memfd, no setting", LoadMethod::Library(Backend::Memfd), SMALL),
    own("memfd-4k", "dmabuf-dio memfd, 4 KiB", LoadMethod::LibrarySmall(Backend::Memfd), SMALL),
    own("private", "dmabuf-dio private memory", LoadMethod::Private, SMALL),
    own("udmabuf", "dmabuf-dio udmabuf", LoadMethod::Library(Backend::Udmabuf), HUGE),
    own("module", "dmabuf-dio module", LoadMethod::Library(Backend::Module), HUGE),
    own("slot", "dmabuf-dio slot", LoadMethod::Library(Backend::UringSlot), HUGE),
    own("heap", "dmabuf-dio heap", LoadMethod::Library(Backend::Heap), HUGE),
    own(
        "copy_file_range",
        "dmabuf-dio copy_file_range",
        LoadMethod::Library(Backend::CopyFileRange),
        HUGE,
    ),
    own("buffered", "dmabuf-dio buffered", LoadMethod::Library(Backend::Buffered), HUGE),
    own(OwnMethod::READ, "read() into malloc", LoadMethod::Read(ReadInto::Malloc), HUGE),
    own("read-memfd", "read() into memfd", LoadMethod::Read(ReadInto::Memfd), HUGE),
    own("read-dmabuf", "read() into dma-buf", LoadMethod::Read(ReadInto::DmaBuf), HUGE),
    own("mmap", "mmap, read-ahead as found", LoadMethod::Map, HUGE),
    own("mmap-128k", "mmap, read-ahead 128 KiB", LoadMethod::Map, read_ahead(READ_AHEAD_DEFAULT)),
    own("mmap-8m", "mmap, read-ahead 8 MiB", LoadMethod::Map, read_ahead(READ_AHEAD_LARGE)),
    own("pread-1m", "pread O_DIRECT 1 MiB", LoadMethod::Direct { piece: 1 << 20 }, HUGE),
    own("pread-32m", "pread O_DIRECT 32 MiB", LoadMethod::Direct { piece: 32 << 20 }, HUGE),
    own(
        "io_uring",
        "io_uring O_DIRECT 1 MiB x 8",
        LoadMethod::Ring { piece: 1 << 20, depth: 8 },
        HUGE,
    ),
];

const fn own(
    id: &'static str,
    name: &'static str,
    load: LoadMethod,
    settings: CompareSettings,
) -> OwnMethod {
    OwnMethod { id, name, load, settings }
}

const fn read_ahead(kib: u32) -> CompareSettings {
    CompareSettings { pages: Pages::Huge, read_ahead: Some(kib) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn methods_cover_every_backend_with_unique_names() {
        for backend in Backend::ALL {
            assert!(
                OwnMethod::all().any(|own| own.load == LoadMethod::Library(backend)),
                "{backend}"
            );
        }
        let ids: HashSet<_> = OwnMethod::all().map(|own| own.id).collect();
        let names: HashSet<_> = OwnMethod::all().map(|own| own.name).collect();
        assert_eq!((ids.len(), names.len()), (OWN.len(), OWN.len()));
        assert!(
            OwnMethod::named(OwnMethod::READ).is_some() && OwnMethod::named("nothing").is_none()
        );
    }
}
