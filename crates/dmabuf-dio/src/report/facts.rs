// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds a report from what a transfer did and cost.

use super::measure::{Cost, judge, past_dirty_pages, through_cache};
use super::{Mode, Report};
use crate::backend::{Backend, Refusal};
use crate::direction::Direction;
use crate::file::copies::Copies;
use crate::file::dma::Dma;
use crate::kind::Kind;
use crate::transfer::task::Transferred;

/// The inputs of a report.
pub(crate) struct Facts {
    pub(crate) operation: Direction,
    /// `None` for private memory.
    pub(crate) backend: Option<Backend>,
    pub(crate) buffer: Option<Kind>,
    pub(crate) bytes: u64,
    pub(crate) unallocated: u64,
    pub(crate) why_buffered: Option<String>,
    pub(crate) copies: Option<Copies>,
    pub(crate) moved: Transferred,
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) cost: Cost,
    pub(crate) dma: Option<Dma>,
}

impl Facts {
    pub(crate) fn report(self) -> Report {
        let Self { operation, bytes, cost, moved, .. } = self;
        let asked = moved.direct.min(bytes);
        let (mut mode, evidence) = judge(operation, bytes, asked, self.unallocated, &cost);
        let copies = self.copies.filter(|_| asked > 0);
        if mode == Mode::Direct {
            mode = match copies {
                Some(Copies::Declined | Copies::Looped) => Mode::Buffered,
                Some(Copies::Checksummed) => past_dirty_pages(bytes, &cost),
                None => mode,
            };
        }
        // Requested is not done: file systems silently fall back to the page cache.
        let copied = if copies.is_some() { bytes } else { bytes - asked + moved.copied.min(asked) };
        let copied = copied.max(through_cache(mode, bytes, self.unallocated, &cost));
        let seconds = cost.elapsed.as_secs_f64();
        let mut notes = moved.notes;
        notes.extend(copies.map(|copies| copies.note().to_owned()));
        if self.backend != Some(Backend::Buffered) {
            notes.extend(self.why_buffered.map(|why| format!("buffered: {why}")));
        }
        Report {
            operation,
            backend: self.backend,
            buffer: self.buffer,
            mode,
            evidence,
            bytes,
            copied_bytes: copied,
            seconds,
            cpu_seconds: cost.cpu.as_secs_f64(),
            gb_per_second: if seconds > 0.0 { bytes as f64 / seconds / 1e9 } else { 0.0 },
            page_cache_grown: cost.cache_growth,
            storage_bytes: cost.storage,
            page_size: moved.pages.map(|pages| pages.page_size),
            huge_bytes: moved.pages.map(|pages| pages.huge_bytes),
            numa: None,
            nodes: moved.nodes,
            locked: false,
            segments: moved.segments,
            dma: self.dma,
            fetched: None,
            notes,
            refusals: self.refusals,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// How many of 100,000 bytes requested with `O_DIRECT` are reported as copied.
    fn copied(growth: i64, storage: u64, copied: u64) -> u64 {
        report(Duration::ZERO, growth, storage, copied).copied_bytes
    }

    fn report(elapsed: Duration, growth: i64, storage: u64, copied: u64) -> Report {
        facts(elapsed, growth, storage, copied).report()
    }

    fn facts(elapsed: Duration, growth: i64, storage: u64, copied: u64) -> Facts {
        Facts {
            operation: Direction::Load,
            backend: Some(Backend::Memfd),
            buffer: Some(Kind::Memfd),
            bytes: 100_000,
            unallocated: 0,
            why_buffered: None,
            copies: None,
            moved: Transferred { direct: 100_000, copied, ..Transferred::default() },
            refusals: Vec::new(),
            cost: Cost {
                elapsed,
                cpu: Duration::ZERO,
                cached: Some(4096),
                cache_growth: Some(growth),
                storage: Some(storage),
                served: false,
                dirtied: None,
            },
            dma: None,
        }
    }

    #[test]
    fn hidden_copies_are_reported() {
        let report = |copies, asked, dirtied| {
            let direct = facts(Duration::ZERO, 0, 100_000_000, 0);
            let cost = Cost { dirtied, ..direct.cost };
            let moved = Transferred { direct: asked, ..Transferred::default() };
            let bytes = 100_000_000;
            let report = Facts { bytes, copies, moved, cost, ..direct }.report();
            (report.mode, report.copied_bytes == bytes, report.notes.len())
        };
        let all = 100_000_000;
        assert_eq!(report(None, all, None), (Mode::Direct, false, 0));
        assert_eq!(report(Some(Copies::Looped), all, None), (Mode::Buffered, true, 1));
        assert_eq!(report(Some(Copies::Declined), all, None), (Mode::Buffered, true, 1));
        assert_eq!(report(Some(Copies::Looped), 0, None), (Mode::Buffered, true, 0));
        let btrfs = Some(Copies::Checksummed);
        assert_eq!(report(btrfs, all, Some(all)), (Mode::Buffered, true, 1));
        assert_eq!(report(btrfs, all, None), (Mode::Unknown, true, 1));
    }

    #[test]
    fn bytes_from_the_page_cache_count_as_copied() {
        assert_eq!(copied(0, 100_000, 0), 0, "direct");
        assert_eq!(copied(0, 100_000, 700), 700, "direct, but for less than a block");
        assert_eq!(copied(102_400, 100_000, 0), 100_000, "buffered");
        assert_eq!(copied(0, 0, 0), 100_000, "it was there already");
        assert_eq!(copied(8192, 100_000, 700), 8192, "mixed: the cache grew");
        assert_eq!(copied(0, 60_000, 700), 40_000, "mixed: storage gave less");
        assert_eq!(copied(0, 60_000, 100_000), 100_000, "all by way of a stage");
    }

    #[test]
    fn the_rate_is_in_bytes_per_second() {
        let rate = |elapsed| report(elapsed, 0, 100_000, 0).gb_per_second;
        assert!((rate(Duration::from_micros(10)) - 10.0).abs() < 1e-6);
        assert!(rate(Duration::ZERO).abs() < 1e-6);
    }
}
