// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request size and queue depth suited to a disk.

use std::path::Path;

use crate::memory::page::page_size;

/// Bytes per request if the disk reports no preference. With [`IN_FLIGHT`] bytes in flight, this
/// size kept every disk busy, whatever its largest request (docs/notes/performance.md).
pub(crate) const DEFAULT_CHUNK: u64 = 4 << 20;
/// Bytes in flight.
const IN_FLIGHT: u64 = 32 << 20;
/// The largest preferred size that is honoured.
const MAX_CHUNK: u64 = 64 << 20;

/// Bytes per request, and requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) chunk: u64,
    pub(crate) depth: u32,
}

impl Queue {
    /// For the disk with this device number, or a partition of it. File systems that span several
    /// disks have their own device numbers, about which nothing is known.
    pub(crate) fn of(major: u32, minor: u32) -> Self {
        let device = format!("/sys/dev/block/{major}:{minor}");
        let optimal = ["queue", "../queue"].iter().find_map(|queue| {
            let file = Path::new(&device).join(queue).join("optimal_io_size");
            std::fs::read_to_string(file).ok()?.trim().parse().ok()
        });
        Self::suited(optimal.unwrap_or(0))
    }

    /// For a disk that prefers multiples of `optimal` bytes, such as a RAID's stripe; 0 for no
    /// preference.
    fn suited(optimal: u64) -> Self {
        let whole = optimal > 0 && optimal <= MAX_CHUNK && optimal % page_size() == 0;
        let chunk = if whole { DEFAULT_CHUNK.next_multiple_of(optimal) } else { DEFAULT_CHUNK };
        Self { chunk, depth: (IN_FLIGHT / chunk).max(2) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_whole_stripes() {
        let suited = |optimal| {
            let queue = Queue::suited(optimal);
            (queue.chunk >> 10, queue.depth)
        };
        assert_eq!(suited(0), (4096, 8), "no wish");
        assert_eq!(suited(512 << 10), (4096, 8));
        assert_eq!(suited(3 << 20), (6144, 5), "three disks of 1 MiB");
        assert_eq!(suited(24 << 20), (24576, 2), "never one at a time");
        assert_eq!(suited(1 << 30), (4096, 8), "more than is sensible");
        assert_eq!(suited(33_553_920), (4096, 8), "of sectors, as USB bridges say");
    }

    #[test]
    fn missing_disk_gets_default_queue() {
        assert_eq!(Queue::of(u32::MAX, u32::MAX), Queue::suited(0));
    }
}
