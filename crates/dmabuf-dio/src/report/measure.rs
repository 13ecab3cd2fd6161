// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a transfer cost, and whether it really was direct.

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
    /// Bytes of the file in the page cache before; `None` if unknown.
    pub(crate) cached: Option<u64>,
    /// Growth of the file's page cache in bytes; negative if it shrank.
    pub(crate) cache_growth: Option<i64>,
    /// Bytes that the process read from or wrote to storage.
    pub(crate) storage: Option<u64>,
    /// Whether the kernel may not count all of that.
    pub(crate) served: bool,
    /// Bytes of all files that became dirty in the page cache; only on Btrfs.
    pub(crate) dirtied: Option<u64>,
}

impl Before {
    pub(crate) fn now(file: BorrowedFd<'_>, system: FileSystem) -> Self {
        let dirtied = (system == FileSystem::Btrfs).then(dirtied).flatten();
        Self { cached: cached(file, system), dirtied, ..Self::without_cache() }
    }

    /// The same, without checking the page cache: that takes longer the more of the file is cached.
    pub(crate) fn without_cache() -> Self {
        Self { cached: None, dirtied: None, usage: Usage::now(), start: Instant::now() }
    }

    /// Bytes of the file in the page cache afterwards, if measured.
    pub(crate) fn cached_after(&self, cost: &Cost) -> Option<u64> {
        self.cached
            .zip(cost.cache_growth)
            .map(|(before, grown)| before.saturating_add_signed(grown))
    }

    pub(crate) fn until_now(
        &self,
        file: BorrowedFd<'_>,
        system: FileSystem,
        direction: Direction,
    ) -> Cost {
        let elapsed = self.start.elapsed();
        let usage = Usage::now();
        let storage = match direction {
            Direction::Load => usage.read.saturating_sub(self.usage.read),
            Direction::Save => usage.written.saturating_sub(self.usage.written),
        };
        Cost {
            elapsed,
            cpu: usage.cpu.saturating_sub(self.usage.cpu),
            cached: self.cached,
            cache_growth: self
                .cached
                .and_then(|before| Some(cached(file, system)? as i64 - before as i64)),
            // Kernels without this accounting report 0, too.
            storage: (storage > 0 || Path::new("/proc/self/io").exists()).then_some(storage),
            served: system.is_served() || storage == 0 && self.cached == Some(0) && is_9p(file),
            dirtied: self.dirtied.and_then(|before| Some(dirtied()?.saturating_sub(before))),
        }
    }
}

/// Usage of all threads of the process. The byte counts equal those of `/proc/self/io`, in units of
/// 512, and take a tenth of the time to read.
#[derive(Clone, Copy, Debug)]
struct Usage {
    cpu: Duration,
    read: u64,
    written: u64,
}

impl Usage {
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

/// Bytes of the file in the page cache; `None` if unknown.
pub(crate) fn cached(file: BorrowedFd<'_>, system: FileSystem) -> Option<u64> {
    // A mapping is of the file that has the pages, of which cachestat(2) does not know.
    if system == FileSystem::Overlay {
        return cached_by_mincore(file);
    }
    match cachestat(file, 0, 0) {
        Ok(stat) => Some(stat.cached * page_size()),
        Err(Errno::NOSYS) => cached_by_mincore(file),
        Err(_) => None,
    }
}

/// For kernels before 6.5, and overlayfs. Without write permission on the file, `mincore` reports
/// every page as present, so nothing is known.
fn cached_by_mincore(file: BorrowedFd<'_>) -> Option<u64> {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::access(&*path, rustix::fs::Access::WRITE_OK).ok()?;
    let len = rustix::fs::fstat(file).ok()?.st_size as u64;
    if len == 0 {
        return Some(0);
    }
    let mapping = Mapping::new(file.as_fd(), len, false).ok()?;
    let mut pages = vec![0_u8; len.div_ceil(page_size()) as usize];
    // SAFETY: the range is mapped, and the vector has a byte for each of its pages.
    let result =
        unsafe { libc::mincore(mapping.as_ptr().cast(), len as usize, pages.as_mut_ptr()) };
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
         page cache of the file {}",
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
    // What was not in the page cache before did not come from there.
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
        Mode::Direct | Mode::Unknown => 0,
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
    fn judged_by_cost_not_by_request() {
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
    fn what_was_not_cached_did_not_come_from_the_cache() {
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
    fn pages_that_became_dirty_were_in_the_cache() {
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
    fn cost_of_nothing() {
        let file = tempfile::tempfile().expect("temporary file");
        let cost = Before::now(file.as_fd(), FileSystem::Other).until_now(
            file.as_fd(),
            FileSystem::Other,
            Direction::Load,
        );
        assert_eq!(cost.cache_growth.unwrap_or(0), 0);
    }

    #[test]
    fn what_is_in_the_page_cache_is_counted() {
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(cached_by_mincore(file.as_fd()), Some(0));
        std::io::Write::write_all(&mut &file, &vec![1; 2 * page_size() as usize + 1])
            .expect("written");
        let pages = Some(3 * page_size());
        assert_eq!(
            (cached_by_mincore(file.as_fd()), cached(file.as_fd(), FileSystem::Other)),
            (pages, pages)
        );
        let before = Before { cached: Some(page_size()), ..Before::without_cache() };
        let cost = before.until_now(file.as_fd(), FileSystem::Other, Direction::Load);
        assert_eq!(cost.cache_growth, Some(2 * page_size() as i64));
        assert_eq!(before.cached_after(&cost), pages);
        assert_eq!(Before::without_cache().cached_after(&cost), None);
    }
}
