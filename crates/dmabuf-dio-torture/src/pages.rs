// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model of memory: pages whose every byte is known. Buffers, memfds and slots that have a page
//! in common share its model.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

pub(crate) const PAGE: usize = 4096;

pub(crate) fn is_multiple(number: u64, of: u64) -> bool {
    number % of == 0
}

/// A page's bytes.
pub(crate) type Page = Rc<RefCell<[u8; PAGE]>>;

pub(crate) fn zero_page() -> Page {
    Rc::new(RefCell::new([0; PAGE]))
}

pub(crate) fn zero_pages(count: u64) -> Vec<Page> {
    (0..count).map(|_| zero_page()).collect()
}

/// The parts of pages that a range consists of: a page's number, and where in it.
pub(crate) fn parts(range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        (at < range.end).then(|| {
            let start = at % PAGE;
            let end = PAGE.min(start + range.end - at);
            let part = (at / PAGE, start..end);
            at += end - start;
            part
        })
    })
}

pub(crate) fn bytes(pages: &[Page], range: Range<usize>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(range.len());
    for (page, part) in parts(range) {
        bytes.extend_from_slice(&pages[page].borrow()[part]);
    }
    bytes
}

pub(crate) fn store(pages: &[Page], at: usize, bytes: &[u8]) {
    let mut rest = bytes;
    for (page, part) in parts(at..at + bytes.len()) {
        let (now, later) = rest.split_at(part.len());
        pages[page].borrow_mut()[part].copy_from_slice(now);
        rest = later;
    }
}

/// Bytes that no two places of a round have in common for long. They are neither zero nor what
/// the kernel poisons freed memory with.
pub(crate) fn stamp(stamp: u64, at: u64, length: usize) -> Vec<u8> {
    (at..at + length as u64)
        .map(|at| {
            let mixed = at + (at >> 8) * 7 + (at >> 12) * 31 + stamp * 37;
            match (mixed % 251) as u8 + 1 {
                0xaa => 0xfc,
                0x6b => 0xfd,
                byte => byte,
            }
        })
        .collect()
}

/// Where two sequences first differ, in words.
pub(crate) fn difference(what: &str, actual: &[u8], expected: &[u8]) -> Result<(), String> {
    if actual == expected {
        return Ok(());
    }
    if actual.len() != expected.len() {
        return Err(format!("{what}: {} bytes in place of {}", actual.len(), expected.len()));
    }
    let wrong = |at: usize| actual[at] != expected[at];
    let first = (0..actual.len()).find(|at| wrong(*at)).unwrap_or_default();
    let count = (first..actual.len()).filter(|at| wrong(*at)).count();
    let memory = match actual[first] {
        0xaa => ", freed memory",
        0x6b => ", a freed object",
        _ => "",
    };
    Err(format!(
        "{what}: {count} wrong bytes, the first at {first:#x}: {:#04x}{memory} in place of {:#04x}",
        actual[first], expected[first]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_pages() {
        let pages = zero_pages(3);
        store(&pages, PAGE - 2, &[1, 2, 3]);
        assert_eq!(bytes(&pages, PAGE - 3..PAGE + 2), [0, 1, 2, 3, 0]);
        assert_eq!(parts(0..0).count(), 0);
    }

    #[test]
    fn stamps_are_not_poison() {
        let bytes = stamp(3, 5, 4 * PAGE);
        assert!(!bytes.iter().any(|byte| [0, 0xaa, 0x6b].contains(byte)));
        assert_ne!(bytes, stamp(4, 5, 4 * PAGE));
    }

    #[test]
    fn differences_are_described() {
        assert_eq!(difference("x", &[1, 2], &[1, 2]), Ok(()));
        assert_eq!(
            difference("x", &[1, 0xaa, 3], &[1, 2, 4]).unwrap_err(),
            "x: 2 wrong bytes, the first at 0x1: 0xaa, freed memory in place of 0x02"
        );
    }
}
