// SPDX-License-Identifier: MIT OR Apache-2.0
//! How data really went, by what the kernel counts apart from the library and the module: pages in
//! the page cache, pages that became dirty, sectors that disks moved.
//!
//! All but the pages of one file is counted for the whole machine, so nothing else may run.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::ptr;

use dmabuf_dio::Direction;
use dmabuf_dio_sys::cachestat::cachestat;

use crate::common::page;

/// The available evidence for files at one place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// Whether the whole machine counts, and not only the pages of the file: a server of this
    /// machine would count as well.
    pub(crate) machine: bool,
    /// Whether the disks move at least as many bytes as the file has.
    pub(crate) disk: bool,
}

/// How the data went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Past the page cache, but for less than an eighth.
    Direct,
    /// Through the page cache, at least half of it.
    Buffered,
    /// Something between them.
    Mixed,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
            Self::Mixed => "mixed",
        })
    }
}

/// Bytes, at one time or between two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    /// Bytes of the file in the page cache.
    file: i64,
    /// Bytes of all files and disks in the page cache.
    cached: i64,
    /// That have become dirty in the page cache.
    dirtied: i64,
    /// That disks have read and written.
    read: i64,
    written: i64,
}

impl Counters {
    /// Reads the counters. A file that does not exist has no pages.
    pub(crate) fn now(path: &Path, length: u64) -> Self {
        // The counters of processors are added up with a delay.
        std::fs::write("/proc/sys/vm/stat_refresh", "1").expect("counters up to date");
        let vmstat = std::fs::read_to_string("/proc/vmstat").expect("vmstat");
        let pages = |name: &str| -> i64 {
            let line = vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.expect(name).parse::<i64>().expect(name) * page() as i64
        };
        let disks = std::fs::read_to_string("/proc/diskstats").expect("diskstats");
        let sectors = |field: usize| -> i64 {
            let rows = disks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            // Disks of the machine, without devices that are made of them
            rows.filter(|row| row[2].starts_with("nvme") || row[2].starts_with("vd"))
                .map(|row| row[field].parse::<i64>().expect("sectors") * 512)
                .sum()
        };
        Self {
            file: File::open(path).map_or(0, |file| in_cache(&file, length)),
            cached: pages("nr_file_pages"),
            dirtied: pages("nr_dirtied"),
            read: sectors(5),
            written: sectors(9),
        }
    }

    /// The counts since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            file: self.file - before.file,
            cached: self.cached - before.cached,
            dirtied: self.dirtied - before.dirtied,
            read: self.read - before.read,
            written: self.written - before.written,
        }
    }

    /// How `length` bytes went, by the differences of two counts.
    pub(crate) fn way(self, direction: Direction, length: u64, scope: Scope) -> Way {
        let length = length as i64;
        let mut pages = self.file;
        let mut moved = self.read;
        if scope.machine {
            pages = pages.max(self.cached);
        }
        if direction == Direction::Save {
            moved = self.written;
            if scope.machine {
                pages = pages.max(self.dirtied);
            }
        }
        let absent = if scope.disk { length - moved } else { 0 };
        match pages.max(absent) {
            through if through * 8 <= length => Way::Direct,
            through if through * 2 >= length => Way::Buffered,
            _ => Way::Mixed,
        }
    }
}

/// Bytes of the file in the page cache: by a mapping, and by cachestat(2) where there is no mapping.
fn in_cache(file: &File, length: u64) -> i64 {
    let told = cachestat(file.as_fd(), 0, 0).map_or(0, |stat| stat.cached as i64);
    let length = length as usize;
    let mut pages = vec![0_u8; length.div_ceil(page())];
    // SAFETY: a new mapping, which nothing reads, of a file that stays open meanwhile; `pages` has a
    // byte for each of its pages.
    unsafe {
        let map = libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        if map != libc::MAP_FAILED {
            assert_eq!(libc::mincore(map, length, pages.as_mut_ptr()), 0);
            libc::munmap(map, length);
        }
    }
    let seen = pages.iter().filter(|page| **page & 1 == 1).count();
    told.max(seen as i64) * page() as i64
}
