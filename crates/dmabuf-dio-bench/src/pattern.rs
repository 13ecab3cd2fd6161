// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test content: words that encode their position.
//!
//! The 8-byte little-endian word at index i is `i * 0x9e3779b97f4a7c15 + seed`, modulo 2^64, so that
//! other programs can compute it, too. The factor is odd, which makes this a bijection; seeds are
//! 2^47 indices apart. Therefore no word occurs twice, not even in two files, and none is zero.

use crate::outcome::{Result, Trouble};

/// Content of buffers before and after a transfer, so that reused memory is never correct.
pub(crate) const POISON: u8 = 0xa5;

const WORD: usize = size_of::<u64>();
const PIECE: usize = 64 << 10;
/// 2^64 divided by the golden ratio: odd, and without a regular pattern.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Maximum number of words in a file: 1 PiB.
const MOST: u64 = 1 << 47;

/// Content as a function of the position; each number gives a different one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    seed: u64,
    /// What comes before the first word: a multiple of eight bytes.
    head: Vec<u8>,
}

impl Pattern {
    pub(crate) fn new(number: u64) -> Self {
        // From 1 to 2^17 - 1, times the most words: neither wraps nor is zero.
        let place = 1 + number % (u64::MAX / MOST);
        Self::from_seed((place * MOST).wrapping_mul(FACTOR))
    }

    pub(crate) fn from_seed(seed: u64) -> Self {
        Self { seed, head: Vec::new() }
    }

    /// The same words after other bytes.
    pub(crate) fn after(self, head: Vec<u8>) -> Self {
        Self { head, ..self }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The position of the first word.
    pub(crate) fn start(&self) -> u64 {
        self.head.len() as u64
    }

    fn word(&self, index: u64) -> [u8; WORD] {
        index.wrapping_mul(FACTOR).wrapping_add(self.seed).to_le_bytes()
    }

    /// Writes the content of position `at`. Position and length are multiples of eight.
    pub(crate) fn fill(&self, bytes: &mut [u8], at: u64) {
        let head = self.head.get(at as usize..).unwrap_or_default();
        let (first, words) = bytes.split_at_mut(head.len().min(bytes.len()));
        first.copy_from_slice(&head[..first.len()]);
        let index = at.saturating_sub(self.start()) / WORD as u64;
        for (word, index) in words.chunks_exact_mut(WORD).zip(index..) {
            word.copy_from_slice(&self.word(index));
        }
    }

    /// Compares every byte with the content of position `at`. Position and length are as for `fill`.
    pub(crate) fn check(&self, bytes: &[u8], at: u64) -> Result<()> {
        let mut expected = vec![0; PIECE];
        for (piece, at) in bytes.chunks(PIECE).zip((at..).step_by(PIECE)) {
            let expected = &mut expected[..piece.len()];
            self.fill(expected, at);
            compare(piece, expected, at)?;
        }
        Ok(())
    }
}

/// Compares bytes of position `at`.
pub(crate) fn compare(bytes: &[u8], expected: &[u8], at: u64) -> Result<()> {
    if bytes == expected {
        return Ok(());
    }
    let mut pairs = (at..).zip(bytes.iter().zip(expected));
    let wrong = pairs.find(|(_, (is, should_be))| is != should_be);
    let wrong = wrong.map(|(at, (is, wanted))| {
        format!("byte {at} is wrong: {is:#04x} instead of {wanted:#04x}")
    });
    Err(Trouble::different(wrong.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    #[test]
    fn any_wrong_byte_is_found_and_pieces_are_right() {
        for pattern in [Pattern::new(77), Pattern::new(77).after(vec![7; 24])] {
            let mut bytes = vec![0; 8 * PAGE];
            pattern.fill(&mut bytes, 0);
            for at in (0..bytes.len()).step_by(PAGE) {
                assert_eq!(pattern.check(&bytes[at..at + PAGE], at as u64), Ok(()));
            }
            for at in [0, 1, 23, 24, 4095, 4096, 8 * PAGE - 1] {
                bytes[at] ^= 0x10;
                let reason = pattern.check(&bytes, 0).expect_err("a difference").reason;
                assert!(reason.starts_with(&format!("byte {at} is wrong: ")), "{reason}");
                bytes[at] ^= 0x10;
            }
            for (from, to) in [(0, 1), (0, 512), (PAGE, 3 * PAGE)] {
                let mut moved = bytes.clone();
                moved.copy_within(from..from + PAGE, to);
                assert!(pattern.check(&moved, 0).is_err(), "{from} at {to}");
            }
        }
    }

    /// Also for other implementations, as in the documentation.
    #[test]
    fn words_match_the_formula_and_differ() {
        let mut bytes = [0; 16];
        Pattern::from_seed(5).fill(&mut bytes, 8);
        assert_eq!(bytes[..8], (0x9e37_79b9_7f4a_7c15_u64 + 5).to_le_bytes());
        assert_eq!(bytes[8..], (0x3c6e_f372_fe94_f82a_u64 + 5).to_le_bytes());
        let (one, two) = (Pattern::new(1), Pattern::new(2));
        for index in 0..10_000 {
            let word = one.word(index);
            assert!(word != two.word(index) && word != [0; WORD] && word != [POISON; WORD]);
        }
        assert_eq!(Pattern::from_seed(one.seed()), one);
    }
}
