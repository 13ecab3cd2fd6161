// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must stay flat while the same is done again and again.

use std::fmt;
use std::time::Duration;

use crate::procfs::{dma_bufs, number};

/// Memory that may go over a whole part, in bytes: caches of the kernel and of the allocator fill up.
const MEMORY: i64 = 16 << 20;
/// Looks before something counts as grown.
const TRIES: usize = 200;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauge {
    /// In bytes, without caches.
    available: i64,
    /// Of the kernel, which cannot be reclaimed; in bytes.
    slab: i64,
    descriptors: i64,
    /// Pages that are pinned.
    pinned: i64,
    /// dma-bufs in the system.
    buffers: i64,
}

impl Gauge {
    pub(crate) fn look() -> Self {
        let _ = std::fs::write("/proc/sys/vm/stat_refresh", "1");
        let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
        let vmstat = |name| number("/proc/vmstat", name);
        Self {
            available: number("/proc/meminfo", "MemAvailable:") << 10,
            slab: number("/proc/meminfo", "SUnreclaim:") << 10,
            descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as i64,
            pinned: vmstat("nr_foll_pin_acquired ") - vmstat("nr_foll_pin_released "),
            buffers: dma_bufs(),
        }
    }

    /// Looks until nothing has grown since an earlier look: some is freed a moment later.
    pub(crate) fn await_flat_since(before: &Self) -> Result<Self, String> {
        let mut grown = Ok(());
        for _ in 0..TRIES {
            let now = Self::look();
            grown = now.is_flat_since(before);
            if grown.is_ok() {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        grown.map(|()| *before)
    }

    fn is_flat_since(&self, before: &Self) -> Result<(), String> {
        let same = |what: &str, then: i64, now: i64| {
            if then == now { Ok(()) } else { Err(format!("{what}: {now} in place of {then}")) }
        };
        same("descriptors", before.descriptors, self.descriptors)?;
        same("pinned pages", before.pinned, self.pinned)?;
        same("dma-bufs", before.buffers, self.buffers)?;
        if before.available - self.available > MEMORY {
            return Err(format!(
                "{} KiB of memory are gone",
                (before.available - self.available) >> 10
            ));
        }
        if self.slab - before.slab > MEMORY {
            return Err(format!(
                "the kernel's slabs grew by {} KiB",
                (self.slab - before.slab) >> 10
            ));
        }
        Ok(())
    }
}

impl fmt::Display for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { available, slab, descriptors, pinned, buffers } = self;
        write!(
            f,
            "available={available} slab={slab} descriptors={descriptors} pinned={pinned} buffers={buffers}"
        )
    }
}
