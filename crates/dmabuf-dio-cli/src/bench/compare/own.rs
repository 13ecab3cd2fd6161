// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways that need no other program, by name.

use dmabuf_dio::Backend;

use super::settings::Settings;
use crate::bench::mapping::Pages;

/// The read-ahead of a kernel that nobody has told anything, in KiB.
const READ_AHEAD_DEFAULT: u32 = 128;
/// What serves `mmap` best: more gains nothing.
const READ_AHEAD_LARGE: u32 = 8192;

/// A way: how a process loads the file, and what the kernel is told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// For `--ways` and for the process that loads.
    pub(crate) id: &'static str,
    /// In the table.
    pub(crate) name: &'static str,
    pub(crate) load: Load,
    pub(crate) settings: Settings,
}

/// How a process loads the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// A backend of the library into a new buffer.
    Library(Backend),
    /// `read()` into new memory.
    Read(Into),
    /// Map the file and touch each page of it.
    Map,
    /// `pread()` with `O_DIRECT` in pieces of so many bytes into huge pages.
    Direct { piece: usize },
    /// `io_uring` with `O_DIRECT` into 4 KiB pages.
    Ring { piece: usize, depth: u32 },
}

/// What `read()` reads into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Into {
    Malloc,
    Memfd,
    DmaBuf,
}

impl Own {
    /// The one that small files are compared with.
    pub(crate) const READ: &str = "read-malloc";

    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        OWN.iter()
    }

    pub(crate) fn named(id: &str) -> Option<&'static Self> {
        Self::all().find(|own| own.id == id)
    }

    /// Whether the file goes through the page cache, and so needs its memory twice.
    pub(crate) fn fills_page_cache(&self) -> bool {
        matches!(self.load, Load::Library(Backend::Buffered) | Load::Read(_))
    }
}

const HUGE: Settings = Settings { pages: Pages::Huge, read_ahead: None };
const SMALL: Settings = Settings { pages: Pages::Small, read_ahead: None };

/// In the order of the table. What the library can load into besides a buffer is a line here and
/// a case of [`Load`].
const OWN: &[Own] = &[
    own("memfd", "dmabuf-dio memfd", Load::Library(Backend::Memfd), HUGE),
    own("memfd-4k", "dmabuf-dio memfd, 4 KiB", Load::Library(Backend::Memfd), SMALL),
    own("udmabuf", "dmabuf-dio udmabuf", Load::Library(Backend::Udmabuf), HUGE),
    own("module", "dmabuf-dio module", Load::Library(Backend::Module), HUGE),
    own("slot", "dmabuf-dio slot", Load::Library(Backend::UringSlot), HUGE),
    own("heap", "dmabuf-dio heap", Load::Library(Backend::Heap), HUGE),
    own(
        "copy_file_range",
        "dmabuf-dio copy_file_range",
        Load::Library(Backend::CopyFileRange),
        HUGE,
    ),
    own("buffered", "dmabuf-dio buffered", Load::Library(Backend::Buffered), HUGE),
    own(Own::READ, "read() into malloc", Load::Read(Into::Malloc), HUGE),
    own("read-memfd", "read() into memfd", Load::Read(Into::Memfd), HUGE),
    own("read-dmabuf", "read() into dma-buf", Load::Read(Into::DmaBuf), HUGE),
    own("mmap", "mmap, read-ahead as found", Load::Map, HUGE),
    own("mmap-128k", "mmap, read-ahead 128 KiB", Load::Map, read_ahead(READ_AHEAD_DEFAULT)),
    own("mmap-8m", "mmap, read-ahead 8 MiB", Load::Map, read_ahead(READ_AHEAD_LARGE)),
    own("pread-1m", "pread O_DIRECT 1 MiB", Load::Direct { piece: 1 << 20 }, HUGE),
    own("pread-32m", "pread O_DIRECT 32 MiB", Load::Direct { piece: 32 << 20 }, HUGE),
    own("io_uring", "io_uring O_DIRECT 1 MiB x 8", Load::Ring { piece: 1 << 20, depth: 8 }, HUGE),
];

const fn own(id: &'static str, name: &'static str, load: Load, settings: Settings) -> Own {
    Own { id, name, load, settings }
}

const fn read_ahead(kib: u32) -> Settings {
    Settings { pages: Pages::Huge, read_ahead: Some(kib) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_backend_is_there_and_no_name_twice() {
        for backend in Backend::ALL {
            assert!(Own::all().any(|own| own.load == Load::Library(backend)), "{backend}");
        }
        let ids: HashSet<_> = Own::all().map(|own| own.id).collect();
        let names: HashSet<_> = Own::all().map(|own| own.name).collect();
        assert_eq!((ids.len(), names.len()), (OWN.len(), OWN.len()));
        assert!(Own::named(Own::READ).is_some() && Own::named("nothing").is_none());
    }
}
