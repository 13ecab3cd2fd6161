// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test content: words that encode their position.
//!
//! The 8-byte little-endian word at index i is `i * 0x9e3779b97f4a7c15 + seed`, modulo 2^64, so that
//! other programs can compute it, too. The factor is odd, which makes this a bijection; seeds are
//! 2^47 indices apart. Therefore no word occurs twice, not even in two files, and none is zero.

use std::fmt;

/// Content of buffers before and after a transfer, so that reused memory is never correct.
pub(crate) const POISON: u8 = 0xa5;

const WORD: usize = size_of::<u64>();
/// 2^64 divided by the golden ratio: odd, and without a regular pattern.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Maximum number of words in a file: 1 PiB.
const MOST: u64 = 1 << 47;

/// Content as a function of the position; each number gives a different one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    seed: u64,
}

impl Pattern {
    pub(crate) fn new(number: u64) -> Self {
        // From 1 to 2^17 - 1, times the most words: neither wraps nor is zero.
        let place = 1 + number % (u64::MAX / MOST);
        Self { seed: (place * MOST).wrapping_mul(FACTOR) }
    }

    pub(crate) fn from_seed(seed: u64) -> Self {
        Self { seed }
    }

    pub(crate) fn seed(self) -> u64 {
        self.seed
    }

    fn word(self, index: u64) -> [u8; WORD] {
        index.wrapping_mul(FACTOR).wrapping_add(self.seed).to_le_bytes()
    }

    /// Writes the content of position `at`. Position and length are multiples of eight.
    pub(crate) fn fill(self, bytes: &mut [u8], at: u64) {
        for (word, index) in bytes.chunks_exact_mut(WORD).zip(at / WORD as u64..) {
            word.copy_from_slice(&self.word(index));
        }
    }

    /// Compares every byte with the content of position `at`. Position and length are as for `fill`.
    pub(crate) fn check(self, bytes: &[u8], at: u64) -> Result<(), Difference> {
        for (word, index) in bytes.chunks_exact(WORD).zip(at / WORD as u64..) {
            if word != self.word(index) {
                compare(word, &self.word(index), index * WORD as u64)?;
            }
        }
        Ok(())
    }
}

/// The first wrong byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) at: u64,
    is: Option<u8>,
    should_be: u8,
}

impl Difference {
    /// The same where the pattern begins at byte `start`.
    pub(crate) fn after(self, start: u64) -> Self {
        Self { at: self.at + start, ..self }
    }

    /// The content ends before this byte.
    pub(crate) fn missing(at: u64) -> Self {
        Self { at, is: None, should_be: 0 }
    }
}

/// Compares bytes of position `at`.
pub(crate) fn compare(bytes: &[u8], expected: &[u8], at: u64) -> Result<(), Difference> {
    let mut pairs = (at..).zip(bytes.iter().zip(expected));
    match pairs.find(|(_, (is, should_be))| is != should_be) {
        None => Ok(()),
        Some((at, (is, should_be))) => Err(Difference { at, is: Some(*is), should_be: *should_be }),
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, is, should_be } = self;
        match is {
            Some(is) => write!(f, "byte {at} is wrong: {is:#04x} instead of {should_be:#04x}"),
            None => write!(f, "byte {at} is missing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: Pattern = Pattern { seed: 77 << 47 };
    const PAGE: usize = 4096;

    #[test]
    fn any_wrong_byte_is_found_and_pieces_are_right() {
        let mut bytes = vec![0; 8 * PAGE];
        PATTERN.fill(&mut bytes, 0);
        for at in (0..bytes.len()).step_by(PAGE) {
            assert_eq!(PATTERN.check(&bytes[at..at + PAGE], at as u64), Ok(()));
        }
        for at in [0, 1, 4095, 4096, 8 * PAGE - 1] {
            bytes[at] ^= 0x10;
            assert_eq!(PATTERN.check(&bytes, 0).expect_err("a difference").at, at as u64);
            bytes[at] ^= 0x10;
        }
        for (from, to) in [(0, 1), (0, 512), (PAGE, 3 * PAGE)] {
            let mut moved = bytes.clone();
            moved.copy_within(from..from + PAGE, to);
            let at = PATTERN.check(&moved, 0).expect_err("a difference").at;
            assert!((to as u64..to as u64 + 8).contains(&at), "{at}");
        }
    }

    #[test]
    fn two_patterns_differ_in_every_word_and_none_is_zero_or_poison() {
        let (one, two) = (Pattern::new(1), Pattern::new(2));
        for index in 0..10_000 {
            let word = one.word(index);
            assert!(word != two.word(index) && word != [0; WORD] && word != [POISON; WORD]);
        }
        assert_eq!(Pattern::from_seed(one.seed()), one);
    }

    /// The values in the documentation, for other implementations.
    #[test]
    fn pattern_words_match_the_documented_formula() {
        let mut bytes = [0; 16];
        Pattern::from_seed(5).fill(&mut bytes, 8);
        assert_eq!(bytes[..8], (0x9e37_79b9_7f4a_7c15_u64 + 5).to_le_bytes());
        assert_eq!(bytes[8..], (0x3c6e_f372_fe94_f82a_u64 + 5).to_le_bytes());
    }
}
