// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cachestat(2)`: how much of a file is in the page cache, since Linux 6.5.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::layout::pin_layout;
use crate::{Errno, Result};

/// `struct cachestat`: all counts are in pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStat {
    /// Pages in the page cache.
    pub cached: u64,
    /// Dirty pages.
    pub dirty: u64,
    /// Pages being written back.
    pub writeback: u64,
    /// Pages evicted.
    pub evicted: u64,
    /// Pages evicted recently.
    pub recently_evicted: u64,
}

pin_layout!(CacheStat: 40 {
    cached @ 0, dirty @ 8, writeback @ 16, evicted @ 24, recently_evicted @ 32,
});

/// `struct cachestat_range`.
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

pin_layout!(Range: 16 { offset @ 0, len @ 8 });

/// The number on every architecture but Alpha. libc does not define it everywhere yet.
const SYS_CACHESTAT: libc::c_long = 451;

/// Counts the pages in the page cache for `len` bytes from `offset`. A `len` of 0 means up to the
/// end of the file.
///
/// # Errors
///
/// `ENOSYS`: Linux before 6.5, or blocked. `EPERM`: the caller neither owns the file nor may write
/// it. `EOPNOTSUPP`: a file without an ordinary page cache (hugetlbfs).
pub fn cachestat(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<CacheStat> {
    let range = Range { offset, len };
    let mut stat = CacheStat::default();
    // SAFETY: the call reads a `struct cachestat_range` and fills a `struct cachestat`. `Range` and
    // `CacheStat` have these layouts and outlive the call.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0_u32)
    };
    if result == 0 { Ok(stat) } else { Err(Errno::from(&std::io::Error::last_os_error())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn cachestat_counts_written_pages() {
        let file = tempfile::tempfile().expect("temporary file");
        rustix::io::pwrite(&file, &[1; 8192], 0).expect("write");
        match cachestat(file.as_fd(), 0, 0) {
            Ok(stat) => assert!(stat.cached >= 1, "{stat:?}"),
            Err(Errno::NOSYS) => println!("skipped: no cachestat(2) in this kernel"),
            Err(error) => panic!("cachestat: {error}"),
        }
    }
}
