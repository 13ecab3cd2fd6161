// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the cost of a transfer, and tells whether it really was direct.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use dmabuf_dio_sys::cachestat::cachestat;

use super::Mode;
use crate::direction::Direction;
use crate::errno::Errno;
use crate::fd::{FileSystem, is_9p};
use crate::memory::Mapping;
use crate::memory::page::page_size;

/// Counters before a transfer.
#[derive(Debug)]
pub(crate) struct Before {
    range: Range<u64>,
    cached: Option<u64>,
    dirtied: Option<u64>,
    usage: Usage,
    start: Instant,
}

/// Counter changes since [`Before`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) elapsed: Duration,
    pub(crate) cpu: Duration,
    /// Bytes of the range in the page cache before; `None` if unknown.
    pub(crate) cached: Option<u64>,
    /// Growth of that in bytes; negative if it shrank.
    pub(crate) cache_growth: Option<i64>,
    /// Bytes that the process read from or wrote to storage.
    pub(crate) storage: Option<u64>,
    /// Whether the kernel may not count all of that.
    pub(crate) served: bool,
    /// Bytes of all files that became dirty in the page cache; only on Btrfs.
    pub(crate) dirtied: Option<u64>,
}

impl Before {
    /// For a transfer of a range of a file.
    pub(crate) fn now(file: BorrowedFd<'_>, system: FileSystem, range: Range<u64>) -> Self {
        let dirtied = (system == FileSystem::Btrfs).then(dirtied).flatten();
        let cached = cached(file, system, range.clone());
        Self { range, cached, dirtied, ..Self::without_cache() }
    }

    /// The same, without checking the page cache: that takes longer the more of the range is cached.
    pub(crate) fn without_cache() -> Self {
        let (usage, start) = (Usage::now(), Instant::now());
        Self { range: 0..0, cached: None, dirtied: None, usage, start }
    }

    /// Bytes of the range in the page cache afterwards, if measured.
    pub(crate) fn cached_after(&self, cost: &Cost) -> Option<u64> {
        self.cached
            .zip(cost.cache_growth)
            .map(|(before, grown)| before.saturating_add_signed(grown))
    }

    /// For what has no file: elapsed time, CPU time, and bytes that the process moved from or to storage meanwhile.
    pub(crate) fn of_no_file(&self, direction: Direction) -> (Duration, Duration, Option<u64>) {
        let elapsed = self.start.elapsed();
        let usage = Usage::now();
        let cpu = usage.cpu.saturating_sub(self.usage.cpu);
        (elapsed, cpu, usage.storage_since(&self.usage, direction))
    }

    pub(crate) fn until_now(
        &self,
        file: BorrowedFd<'_>,
        system: FileSystem,
        direction: Direction,
    ) -> Cost {
        let elapsed = self.start.elapsed();
        let usage = Usage::now();
        let storage = usage.storage_since(&self.usage, direction);
        Cost {
            elapsed,
            cpu: usage.cpu.saturating_sub(self.usage.cpu),
            cached: self.cached,
            cache_growth: self.cached.and_then(|before| {
                Some(cached(file, system, self.range.clone())? as i64 - before as i64)
            }),
            storage,
            served: system.is_served()
                || storage.unwrap_or(0) == 0 && self.cached == Some(0) && is_9p(file),
            dirtied: self.dirtied.and_then(|before| Some(dirtied()?.saturating_sub(before))),
        }
    }
}

/// Usage of all threads of the process. The byte counts equal the ones in `/proc/self/io`, in units of
/// 512, and take a tenth of the time to read.
#[derive(Clone, Copy, Debug)]
struct Usage {
    cpu: Duration,
    read: u64,
    written: u64,
}

impl Usage {
    /// Bytes that were read from or written to storage since then; `None` if the kernel does not count them.
    fn storage_since(&self, before: &Self, direction: Direction) -> Option<u64> {
        let moved = match direction {
            Direction::Load => self.read.saturating_sub(before.read),
            Direction::Save => self.written.saturating_sub(before.written),
        };
        // Kernels without this accounting report 0, too.
        (moved > 0 || Path::new("/proc/self/io").exists()).then_some(moved)
    }

    fn now() -> Self {
        // SAFETY: an all-zero rusage is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: fills the structure it is given, which outlives the call.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        let time = |value: libc::timeval| {
            Duration::from_secs(value.tv_sec as u64) + Duration::from_micros(value.tv_usec as u64)
        };
        Self {
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
            read: usage.ru_inblock as u64 * 512,
            written: usage.ru_oublock as u64 * 512,
        }
    }
}

/// Bytes of a range of a file in the page cache, in whole pages; `None` if unknown.
pub(crate) fn cached(file: BorrowedFd<'_>, system: FileSystem, range: Range<u64>) -> Option<u64> {
    if range.is_empty() {
        return Some(0);
    }
    // overlayfs keeps pages in the file below. A mapping reaches that file; cachestat(2) does not.
    if system == FileSystem::Overlay {
        return cached_by_mincore(file, range);
    }
    match cachestat(file, range.start, range.end - range.start) {
        Ok(stat) => Some(stat.cached * page_size()),
        Err(Errno::NOSYS) => cached_by_mincore(file, range),
        Err(_) => None,
    }
}

/// More pages take too long, as `mincore` looks for each.
const MOST_PAGES: u64 = 1 << 24;

/// For kernels before 6.5, and overlayfs. Without write permission on the file, `mincore` reports
/// every page as present, so nothing is known.
fn cached_by_mincore(file: BorrowedFd<'_>, range: Range<u64>) -> Option<u64> {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::access(&*path, rustix::fs::Access::WRITE_OK).ok()?;
    let end = range.end.min(rustix::fs::fstat(file).ok()?.st_size as u64);
    let start = range.start / page_size() * page_size();
    if end <= start {
        return Some(0);
    }
    let pages = (end - start).div_ceil(page_size());
    if pages > MOST_PAGES {
        return None;
    }
    let mapping = Mapping::new(file.as_fd(), end, false).ok()?;
    let mut pages = vec![0_u8; pages as usize];
    // SAFETY: the range is mapped, and the vector has a byte for each of its pages.
    let result = unsafe {
        let first = mapping.as_ptr().add(start as usize);
        libc::mincore(first.cast(), (end - start) as usize, pages.as_mut_ptr())
    };
    (result == 0).then(|| pages.iter().filter(|page| **page & 1 == 1).count() as u64 * page_size())
}

/// Determines the mode of a transfer from its cost.
///
/// `asked` is the number of bytes requested with `O_DIRECT`, `unallocated` the number of bytes of
/// the file that need no storage.
pub(crate) fn judge(
    direction: Direction,
    bytes: u64,
    asked: u64,
    unallocated: u64,
    cost: &Cost,
) -> (Mode, String) {
    let told = |value: Option<u64>| value.map_or_else(|| "?".into(), |bytes| bytes.to_string());
    let evidence = format!(
        "{asked} of {bytes} bytes requested with O_DIRECT; storage {} {} bytes; \
         page cache of the range {}",
        match direction {
            Direction::Load => "delivered",
            Direction::Save => "received",
        },
        told(cost.storage),
        cost.cache_growth.map_or_else(|| "unknown".into(), |grown| format!("{grown:+} bytes")),
    );
    let evidence = match cost.dirtied {
        Some(dirtied) => format!("{evidence}; {dirtied} bytes of all files became dirty"),
        None => evidence,
    };
    let grown = cost.cache_growth.map(|grown| grown.max(0) as u64);
    let enough = cost.storage.map(|storage| storage.saturating_add(unallocated) >= bytes);
    // Data that was not in the page cache before did not come from there.
    let uncached = cost.cached == Some(0);
    let past_cache = cost.served && (uncached || direction == Direction::Save);
    let mode = match (grown, enough) {
        _ if asked == 0 => match (direction, grown, cost.storage) {
            (Direction::Load, Some(0), Some(0)) => Mode::PageCache,
            _ => Mode::Buffered,
        },
        (None, _) | (_, None) => Mode::Unknown,
        (Some(0), Some(true)) => Mode::Direct,
        (Some(0), Some(false)) if past_cache => Mode::Direct,
        (Some(0), Some(false)) if cost.storage == Some(0) && uncached => Mode::Unknown,
        (Some(0), Some(false)) if cost.storage == Some(0) => Mode::PageCache,
        (Some(grown), Some(true)) if grown * 2 < bytes => Mode::Mixed,
        (Some(0), Some(false)) => Mode::Mixed,
        _ => Mode::Buffered,
    };
    (mode, evidence)
}

/// Bytes of all files that have become dirty in the page cache since the start of the machine.
fn dirtied() -> Option<u64> {
    let counters = std::fs::read_to_string("/proc/vmstat").ok()?;
    let pages = counters.lines().find_map(|line| line.strip_prefix("nr_dirtied "))?;
    pages.parse().ok().map(|pages: u64| pages * page_size())
}

/// The mode of a save that left no pages in the cache, by those that became dirty meanwhile.
pub(crate) fn past_dirty_pages(bytes: u64, cost: &Cost) -> Mode {
    /// Pages that each processor counts on its own, at most (`calculate_normal_threshold()`).
    const NOT_ADDED: u64 = 125;
    // SAFETY: returns a number.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as u64;
    match cost.dirtied {
        Some(dirtied) if dirtied * 2 >= bytes => Mode::Buffered,
        Some(_) if bytes >= 2 * NOT_ADDED * processors * page_size() => Mode::Direct,
        _ => Mode::Unknown,
    }
}

/// Bytes that went through the page cache, as far as the mode tells. The CPU copies those.
pub(crate) fn through_cache(mode: Mode, bytes: u64, unallocated: u64, cost: &Cost) -> u64 {
    match mode {
        Mode::Buffered | Mode::PageCache => bytes,
        Mode::Mixed => {
            let grown = cost.cache_growth.map_or(0, |grown| grown.max(0) as u64);
            let given = cost.storage.unwrap_or(0).saturating_add(unallocated);
            grown.max(bytes.saturating_sub(given)).min(bytes)
        }
        Mode::Direct | Mode::Fetched | Mode::Sent | Mode::Unknown => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd::is_tmpfs;

    fn cost(growth: Option<i64>, storage: Option<u64>) -> Cost {
        let zero = Duration::ZERO;
        let (cached, served) = (Some(4096), false);
        Cost {
            elapsed: zero,
            cpu: zero,
            cached,
            cache_growth: growth,
            storage,
            served,
            dirtied: None,
        }
    }

    fn mode(asked: u64, growth: Option<i64>, storage: Option<u64>) -> Mode {
        judge(Direction::Load, 100, asked, 0, &cost(growth, storage)).0
    }

    #[test]
    fn mode_follows_measured_cost() {
        assert_eq!(mode(100, Some(0), Some(128)), Mode::Direct);
        assert_eq!(mode(100, Some(-8), Some(128)), Mode::Direct);
        assert_eq!(mode(100, Some(128), Some(128)), Mode::Buffered);
        assert_eq!(mode(100, Some(8), Some(128)), Mode::Mixed);
        assert_eq!(mode(100, Some(0), Some(0)), Mode::PageCache);
        assert_eq!(mode(0, Some(0), Some(0)), Mode::PageCache);
        assert_eq!(mode(0, Some(0), Some(128)), Mode::Buffered);
        assert_eq!(mode(0, Some(128), Some(128)), Mode::Buffered);
        assert_eq!(mode(100, None, Some(128)), Mode::Unknown);
        assert_eq!(mode(100, Some(0), None), Mode::Unknown);
    }

    #[test]
    fn uncached_bytes_are_not_page_cache_reads() {
        for (served, cached, load, save) in [
            (false, Some(0), Mode::Unknown, Mode::Unknown),
            (false, Some(4096), Mode::PageCache, Mode::PageCache),
            (true, Some(0), Mode::Direct, Mode::Direct),
            (true, Some(4096), Mode::PageCache, Mode::Direct),
            (true, None, Mode::PageCache, Mode::Direct),
        ] {
            let cost = Cost { cached, served, ..cost(Some(0), Some(0)) };
            assert_eq!(judge(Direction::Load, 100, 100, 0, &cost).0, load, "{cost:?}");
            assert_eq!(judge(Direction::Save, 100, 100, 0, &cost).0, save, "{cost:?}");
        }
        let grown = Cost { served: true, cached: Some(0), ..cost(Some(4096), Some(0)) };
        assert_eq!(judge(Direction::Load, 100, 100, 0, &grown).0, Mode::Buffered);
    }

    #[test]
    fn dirtied_pages_mean_a_buffered_save() {
        let mode = |bytes, dirtied| {
            past_dirty_pages(bytes, &Cost { dirtied, ..cost(Some(0), Some(bytes)) })
        };
        assert_eq!(mode(1 << 40, Some(1 << 39)), Mode::Buffered);
        assert_eq!(mode(1 << 40, Some((1 << 39) - 1)), Mode::Direct);
        assert_eq!(mode(100, Some(0)), Mode::Unknown, "less than is counted at once");
        assert_eq!(mode(1 << 40, None), Mode::Unknown);
        let file = tempfile::tempfile().expect("a file");
        let before = dirtied().expect("/proc/vmstat");
        std::io::Write::write_all(&mut &file, &vec![1; 64 << 20]).expect("written");
        let grown = dirtied().expect("/proc/vmstat") - before;
        assert!(is_tmpfs(file.as_fd()) || grown >= 32 << 20, "{grown}");
    }

    #[test]
    fn holes_need_no_storage() {
        let cost = cost(Some(0), Some(0));
        assert_eq!(judge(Direction::Load, 100, 100, 4096, &cost).0, Mode::Direct);
        assert_eq!(judge(Direction::Load, 100, 100, 0, &cost).0, Mode::PageCache);
    }

    #[test]
    fn idle_measurement_costs_nothing() {
        let file = tempfile::tempfile().expect("temporary file");
        let cost = Before::now(file.as_fd(), FileSystem::Other, 0..4096).until_now(
            file.as_fd(),
            FileSystem::Other,
            Direction::Load,
        );
        assert_eq!(cost.cache_growth.unwrap_or(0), 0);
    }

    #[test]
    fn pages_of_the_range_in_the_page_cache_are_counted() {
        let file = tempfile::tempfile().expect("a file");
        let (page, other) = (page_size(), FileSystem::Other);
        assert_eq!(cached_by_mincore(file.as_fd(), 0..page), Some(0));
        std::io::Write::write_all(&mut &file, &vec![1; 2 * page as usize + 1]).expect("written");
        for (range, pages) in [
            (0..2 * page + 1, 3),
            (0..u64::MAX, 3),
            (0..page, 1),
            (page - 1..page + 1, 2),
            (2 * page..9 * page, 1),
            (3 * page..9 * page, 0),
            (page..page, 0),
        ] {
            let found = cached(file.as_fd(), other, range.clone());
            assert_eq!(found, Some(pages * page), "{range:?}");
            if !range.is_empty() {
                assert_eq!(cached_by_mincore(file.as_fd(), range.clone()), found, "{range:?}");
            }
        }
        let sparse = tempfile::tempfile().expect("a file");
        sparse.set_len((MOST_PAGES + 1) * page).expect("a long file");
        assert_eq!(cached_by_mincore(sparse.as_fd(), 0..u64::MAX), None);
        assert_eq!(cached_by_mincore(sparse.as_fd(), 0..9 * page), Some(0));
        let before = Before { cached: Some(page), range: 0..3 * page, ..Before::without_cache() };
        let cost = before.until_now(file.as_fd(), other, Direction::Load);
        assert_eq!(cost.cache_growth, Some(2 * page as i64));
        assert_eq!(before.cached_after(&cost), Some(3 * page));
        assert_eq!(Before::without_cache().cached_after(&cost), None);
    }
}
