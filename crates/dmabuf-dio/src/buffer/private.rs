// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of this process: of one buffer, or split into parts that go one by one.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

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
    states: Mutex<Vec<State>>,
    /// The process that split the memory.
    process: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Lives,
    /// Dropped, with memory that is not freed yet.
    Waits,
    Freed,
}

/// Less than this is not freed by itself: each time is a system call, and may split a huge page.
const WORTH_FREEING: u64 = 64 << 10;

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
        let states = Mutex::new(vec![State::Lives; ranges.len()]);
        let parts = Parts { ranges: ranges.to_vec(), states, process: std::process::id() };
        let ends = ranges.iter().map(|range| range.end);
        let starts = ranges.iter().map(|range| range.start);
        // Its last huge page may be longer than the memory.
        let whole = self.mapping.whole() as u64;
        for (from, to) in std::iter::once(0).chain(ends).zip(starts.chain([whole])) {
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
        let frees = self.mapping.can_release() && Arc::strong_count(&self.mapping) > 1;
        if let Some(part) = self.part.as_ref().filter(|_| frees) {
            self.mapping.release(part.parts.end(part.number));
        }
    }
}

impl Parts {
    /// Notes that a part is gone. Returns the pages to free: its own, and those of gone parts
    /// beside it.
    fn end(&self, number: usize) -> Range<u64> {
        let Some(mut states) = self.lock() else { return 0..0 };
        states[number] = State::Waits;
        let waits = |part: &usize| states[*part] == State::Waits;
        let first = (0..number).rev().take_while(waits).last().unwrap_or(number);
        let last = (number..states.len()).take_while(waits).last().unwrap_or(number);
        let run = self.ranges[first].start..self.ranges[last].end;
        let grows = first > 0 && states[first - 1] == State::Lives
            || states.get(last + 1) == Some(&State::Lives);
        if run.end - run.start < WORTH_FREEING && grows {
            return 0..0;
        }
        // Pages at the ends may have bytes of others.
        let is_used = |part: usize| states[part] == State::Lives;
        let pages = down(run.start)..up(run.end);
        let mut before = (0..first).rev().take_while(|&part| self.ranges[part].end > pages.start);
        let start = if before.any(is_used) { up(run.start) } else { pages.start };
        let mut behind =
            (last + 1..states.len()).take_while(|&part| self.ranges[part].start < pages.end);
        let end = if behind.any(is_used) { down(run.end) } else { pages.end };
        states[first..=last].fill(State::Freed);
        start..end
    }

    /// `None` in a child of fork(2), if a thread that the child does not have may hold the lock:
    /// the memory is then freed with the last part.
    fn lock(&self) -> Option<MutexGuard<'_, Vec<State>>> {
        if std::process::id() == self.process {
            return Some(self.states.lock().unwrap_or_else(PoisonError::into_inner));
        }
        match self.states.try_lock() {
            Ok(states) => Some(states),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
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
    use crate::memory::page::huge_page;

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
        let page = page_size();
        // Large enough to be freed alone
        let large = WORTH_FREEING.next_multiple_of(page);
        let whole = memory(6 + 3 * large / page);
        let mapping = Arc::clone(&whole.mapping);
        let all = |ranges: &[Range<u64>]| ranges.iter().cloned().flatten().collect::<Vec<_>>();
        let pages = large / page;
        let bounds = [
            page + 100..page + 200,
            page + 200..large + page + 300,
            large + page + 300..2 * large + 2 * page,
            2 * large + 3 * page..2 * large + 3 * page + 1,
            2 * large + 4 * page..3 * large + 4 * page,
        ];
        let mut parts: Vec<_> = whole.split(&bounds).into_iter().map(Some).collect();
        // The pages that no part has bytes in are free.
        let (third, fourth) = (2 * pages + 3, 2 * pages + 4);
        assert_eq!(
            resident(&mapping),
            all(&[1..2 * pages + 2, third..third + 1, fourth..fourth + pages])
        );
        parts[1] = None;
        let shared = [1..2, pages + 1..2 * pages + 2];
        assert_eq!(
            resident(&mapping),
            all(&[&shared[..], &[third..third + 1, fourth..fourth + pages]].concat())
        );
        // Its page is not worth a call, until its neighbour goes.
        parts[3] = None;
        assert_eq!(
            resident(&mapping),
            all(&[&shared[..], &[third..third + 1, fourth..fourth + pages]].concat())
        );
        parts[2] = None;
        assert_eq!(resident(&mapping), all(&[1..2, fourth..fourth + pages]));
        let last = parts[4].as_ref().expect("a part");
        assert_eq!(last.mapping.to_vec(last.own.start, 3).expect("read"), [7, 7, 7]);
        parts[4] = None;
        assert_eq!(resident(&mapping), [1]);
    }

    #[test]
    fn memory_behind_the_last_part_is_freed() {
        let page = page_size() as usize;
        for len in [huge_page() + page_size(), 2 * huge_page() + 100] {
            let mapping = Arc::new(Mapping::anonymous(len).expect("memory"));
            let (used, mapped) =
                ((len as usize).next_multiple_of(page), mapping.whole() / page * page);
            assert!(mapped > used, "there is room to align it");
            // SAFETY: this is mapped, for nobody else.
            let all = unsafe { std::slice::from_raw_parts_mut(mapping.as_ptr(), mapped) };
            all.fill(7);
            let parts = Private::new(mapping).split(&[0..100, 100..len]);
            assert!(all[..used].iter().all(|byte| *byte == 7), "parts have these pages");
            assert!(all[used..].iter().all(|byte| *byte == 0));
            drop(parts);
        }
    }

    #[test]
    fn small_parts_are_freed_together() {
        let whole = memory(1);
        let mapping = Arc::clone(&whole.mapping);
        let size = 1000;
        let count = 3 * WORTH_FREEING / size;
        let bounds: Vec<_> = (0..count).map(|part| part * size..(part + 1) * size).collect();
        let mut parts = whole.split(&bounds);
        let kept = parts.remove(count as usize / 2);
        drop(parts);
        let left = resident(&mapping);
        assert!(left.contains(&(kept.own.start / page_size())));
        assert!((left.len() as u64) * page_size() < WORTH_FREEING + 2 * page_size(), "{left:?}");
    }

    #[test]
    fn small_part_between_parts_that_were_freed_is_freed() {
        let page = page_size();
        let large = WORTH_FREEING.next_multiple_of(page);
        let whole = memory(5 * large / page);
        let mapping = Arc::clone(&whole.mapping);
        let bounds = [
            0..large,
            large..large + page,
            large + page..3 * large,
            3 * large..3 * large + page,
            3 * large + page..3 * large + 2 * page,
        ];
        let mut parts: Vec<_> = whole.split(&bounds).into_iter().map(Some).collect();
        for part in [0, 2, 1, 3] {
            parts[part] = None;
        }
        let last = 3 * large / page;
        assert_eq!(resident(&mapping), [last, last + 1], "one waits for its neighbour");
        parts[4] = None;
        assert_eq!(resident(&mapping), [0; 0]);
    }

    #[test]
    fn child_of_fork_drops_parts_while_a_thread_of_its_parent_does() {
        let large = WORTH_FREEING.next_multiple_of(page_size());
        let mut parts = memory(1).split(&[0..large, large..2 * large, 2 * large..3 * large]);
        let shared = Arc::clone(&parts[0].part.as_ref().expect("a part").parts);
        let held = shared.states.lock().expect("free");
        // SAFETY: the child frees memory and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child if it hangs.
            unsafe { libc::alarm(60) };
            parts.truncate(2);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: there is room for the status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child waits for a lock that nobody releases");
        drop(held);
    }

    #[test]
    fn parts_of_locked_memory_are_freed() {
        let large = WORTH_FREEING.next_multiple_of(page_size());
        let whole = memory(1);
        let mapping = Arc::clone(&whole.mapping);
        // SAFETY: a range of the mapping, which keeps its content.
        let locked = unsafe { libc::mlock(mapping.as_ptr().cast(), mapping.len() as usize) };
        if locked != 0 {
            return println!("skipped: memory cannot be locked");
        }
        let mut parts = whole.split(&[0..large, large..2 * large]);
        parts.truncate(1);
        assert_eq!(resident(&mapping), (0..large / page_size()).collect::<Vec<_>>());
    }

    #[test]
    fn parts_of_the_allocator_are_not_looked_for() {
        let count = 1000;
        let mapping = Mapping::anonymous(count).expect("memory");
        let bounds: Vec<_> = (0..count).map(|at| at..at + 1).collect();
        let parts = Private::new(Arc::new(mapping)).split(&bounds);
        let shared = Arc::clone(&parts[0].part.as_ref().expect("a part").parts);
        drop(parts);
        let states = shared.states.lock().expect("free");
        assert!(states.iter().all(|state| *state == State::Lives), "many are, each time");
    }
}
