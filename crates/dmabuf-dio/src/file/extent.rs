// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of a transfer, and the parts of them that direct I/O can move.

use crate::file::alignment::Alignment;

/// A range of bytes in the file and its counterpart in the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) file: u64,
    pub(crate) buf: u64,
    pub(crate) len: u64,
}

impl Extent {
    pub(crate) fn buf_end(&self) -> u64 {
        self.buf + self.len
    }

    /// The part of at most `len` bytes starting at `from`, relative to the extent's start.
    fn part(&self, from: u64, len: u64) -> Self {
        Self { file: self.file + from, buf: self.buf + from, len }
    }
}

/// An extent, split into up to three parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// Less than a block before the core.
    pub(crate) head: Option<Extent>,
    /// Whole blocks.
    pub(crate) core: Option<Extent>,
    /// Less than a block after the core.
    pub(crate) tail: Option<Extent>,
}

impl Split {
    /// An extent that moves as a whole.
    pub(crate) fn whole(extent: Extent) -> Self {
        Self { head: None, core: Some(extent), tail: None }
    }

    /// Splits an extent at block boundaries of the file. `None` if the resulting buffer offset does
    /// not meet the device's alignment.
    pub(crate) fn new(extent: Extent, align: Alignment) -> Option<Self> {
        let head = (align.offset - extent.file % align.offset) % align.offset;
        if head >= extent.len {
            return Some(Self { head: Some(extent), core: None, tail: None });
        }
        if (extent.buf + head) % align.memory != 0 {
            return None;
        }
        let core = (extent.len - head) / align.offset * align.offset;
        let tail = extent.len - head - core;
        let some = |from, len| (len > 0).then(|| extent.part(from, len));
        Some(Self { head: some(0, head), core: some(head, core), tail: some(head + core, tail) })
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = Extent> {
        self.head.into_iter().chain(self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Alignment = Alignment { offset: 512, memory: 4 };

    fn extent(file: u64, buf: u64, len: u64) -> Extent {
        Extent { file, buf, len }
    }

    #[test]
    fn buffer_end_is_offset_plus_length() {
        assert_eq!(extent(7, 100, 30).buf_end(), 130);
        assert_eq!(extent(7, 100, 0).buf_end(), 100);
    }

    #[test]
    fn aligned_extent_is_all_core() {
        let whole = extent(4096, 0, 8192);
        assert_eq!(Split::new(whole, BLOCK), Some(Split::whole(whole)));
    }

    #[test]
    fn unaligned_edges_are_split_off() {
        let split = Split::new(extent(100, 100, 2000), BLOCK).expect("congruent");
        assert_eq!(split.head, Some(extent(100, 100, 412)));
        assert_eq!(split.core, Some(extent(512, 512, 1536)));
        assert_eq!(split.tail, Some(extent(2048, 2048, 52)));
    }

    #[test]
    fn extent_within_one_block_has_no_core() {
        let small = extent(1, 7, 511);
        assert_eq!(
            Split::new(small, BLOCK),
            Some(Split { head: Some(small), core: None, tail: None })
        );
    }

    #[test]
    fn edges_cover_all_but_the_core() {
        let edges = |file, len| {
            let split = Split::new(extent(file, file, len), BLOCK).expect("congruent");
            split.edges().map(|edge| (edge.file, edge.len)).collect::<Vec<_>>()
        };
        assert_eq!(edges(100, 2000), [(100, 412), (2048, 52)]);
        assert_eq!(edges(1, 5), [(1, 5)]);
        assert_eq!(edges(0, 513), [(512, 1)]);
        assert_eq!(edges(512, 512), []);
    }

    #[test]
    fn incongruent_extents_cannot_be_split() {
        assert_eq!(Split::new(extent(0, 2, 1024), BLOCK), None);
        assert!(Split::new(extent(0, 4, 1024), BLOCK).is_some());
    }

    #[test]
    fn every_split_covers_its_extent() {
        for file in [0, 1, 511, 512, 513] {
            for len in [1, 2, 511, 512, 513, 1023, 1024, 5000] {
                let split = Split::new(extent(file, file, len), BLOCK).expect("congruent");
                let parts: Vec<_> =
                    [split.head, split.core, split.tail].into_iter().flatten().collect();
                let mut at = file;
                for part in parts {
                    assert_eq!(part.file, at);
                    at += part.len;
                }
                assert_eq!(at, file + len);
            }
        }
    }
}
