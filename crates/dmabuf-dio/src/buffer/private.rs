// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of this process: of one buffer, or split into parts that go one by one.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::memory::Mapping;
use crate::memory::page::page_size;

/// A range of memory that one buffer owns.
#[derive(Debug)]
pub(super) struct Private {
    mapping: Arc<Mapping>,
    own: Range<u64>,
    /// `None`: the buffer owns all of the memory.
    part: Option<Part>,
}

/// One of the parts of memory that was split.
#[derive(Debug)]
struct Part {
    number: usize,
    parts: Arc<Parts>,
}

/// The parts of memory: disjoint, none of them empty, in the order of their bytes.
#[derive(Debug)]
struct Parts {
    ranges: Vec<Range<u64>>,
    lives: Mutex<Vec<bool>>,
}

impl Private {
    pub(super) fn new(mapping: Arc<Mapping>) -> Self {
        Self { own: 0..mapping.len(), mapping, part: None }
    }

    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Where its bytes are in the mapping.
    pub(super) fn own(&self) -> Range<u64> {
        self.own.clone()
    }

    pub(super) fn len(&self) -> u64 {
        self.own.end - self.own.start
    }

    /// Whether it is all of some memory, and may be split.
    pub(super) fn is_whole(&self) -> bool {
        self.part.is_none()
    }

    /// Parts of memory that is whole: disjoint ranges of it in ascending order, none of them empty.
    /// Memory outside them is freed here, that of a part when the part is dropped, in whole pages.
    pub(super) fn split(self, ranges: &[Range<u64>]) -> Vec<Self> {
        let parts = Parts { ranges: ranges.to_vec(), lives: Mutex::new(vec![true; ranges.len()]) };
        let ends = ranges.iter().map(|range| range.end);
        let starts = ranges.iter().map(|range| range.start);
        for (from, to) in std::iter::once(0).chain(ends).zip(starts.chain([self.mapping.len()])) {
            self.mapping.release(up(from)..down(to));
        }
        let parts = Arc::new(parts);
        let part = |(number, own): (usize, &Range<u64>)| Self {
            mapping: Arc::clone(&self.mapping),
            own: own.clone(),
            part: Some(Part { number, parts: Arc::clone(&parts) }),
        };
        ranges.iter().enumerate().map(part).collect()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // The last owner unmaps everything.
        if let Some(part) = self.part.as_ref().filter(|_| Arc::strong_count(&self.mapping) > 1) {
            self.mapping.release(part.parts.end(part.number));
        }
    }
}

impl Parts {
    /// Notes that a part is gone: the pages that no other part needs.
    fn end(&self, number: usize) -> Range<u64> {
        let own = &self.ranges[number];
        let (mut first, mut last) = (down(own.start), up(own.end));
        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        lives[number] = false;
        // Small parts may share the first page and the last one with this.
        for other in (0..number).rev().take_while(|&other| self.ranges[other].end > first) {
            if lives[other] {
                first = up(own.start);
                break;
            }
        }
        for other in (number + 1..lives.len()).take_while(|&other| self.ranges[other].start < last)
        {
            if lives[other] {
                last = down(own.end);
                break;
            }
        }
        first..last
    }
}

fn down(at: u64) -> u64 {
    at / page_size() * page_size()
}

fn up(at: u64) -> u64 {
    at.next_multiple_of(page_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(pages: u64) -> Private {
        // Less comes from the allocator, which keeps it.
        let mapping = Mapping::anonymous((pages * page_size()).max(4 << 20)).expect("memory");
        mapping.advise(false);
        mapping.fill(0, mapping.len(), 7).expect("filled");
        Private::new(Arc::new(mapping))
    }

    /// Which pages of the memory are allocated.
    fn resident(mapping: &Mapping) -> Vec<u64> {
        let pages = mapping.len() / page_size();
        let mut found = vec![0_u8; pages as usize];
        // SAFETY: there is a byte for each page of the mapping.
        let result = unsafe {
            libc::mincore(mapping.as_ptr().cast(), mapping.len() as usize, found.as_mut_ptr())
        };
        assert_eq!(result, 0);
        (0..pages).filter(|page| found[*page as usize] & 1 != 0).collect()
    }

    #[test]
    fn pages_are_freed_with_the_last_part_in_them() {
        let (page, whole) = (page_size(), memory(8));
        let mapping = Arc::clone(&whole.mapping);
        let bounds = [
            page + 100..page + 200,
            page + 200..3 * page + 1,
            3 * page + 1..3 * page + 2,
            3 * page + 2..5 * page,
            6 * page..7 * page,
        ];
        let parts = whole.split(&bounds);
        let mut parts: Vec<_> = parts.into_iter().map(Some).collect();
        assert_eq!(resident(&mapping), [1, 2, 3, 4, 6]);
        parts[1] = None;
        assert_eq!(resident(&mapping), [1, 3, 4, 6]);
        parts[0] = None;
        assert_eq!(resident(&mapping), [3, 4, 6]);
        parts[3] = None;
        assert_eq!(resident(&mapping), [3, 6]);
        parts[2] = None;
        assert_eq!(resident(&mapping), [6]);
        let last = parts[4].as_ref().expect("a part");
        assert_eq!(last.mapping.to_vec(last.own.start, 3).expect("read"), [7, 7, 7]);
    }
}
