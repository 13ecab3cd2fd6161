// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test content: words that encode their position.
//!
//! The 8-byte little-endian word at index i is `i * 0x9e3779b97f4a7c15 + seed`, modulo 2^64, so that
//! other programs can compute it, too. The factor is odd, which makes this a bijection; seeds are
//! 2^47 indices apart. Therefore no word occurs twice, not even in two files, none is zero, and the
//! origin of a misplaced word can be computed.

use std::fmt;

/// Content of buffers before and after a transfer, so that reused memory is never correct.
pub(crate) const POISON: u8 = 0xa5;

const WORD: usize = size_of::<u64>();
/// 2^64 divided by the golden ratio: odd, and without a regular pattern.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Maximum number of words in a file: 1 PiB. Foreign data decodes to any number.
const MOST: u64 = 1 << 47;

/// Content as a function of the position; each number gives a different one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    seed: u64,
}

/// The first wrong byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) at: u64,
    found: FoundContent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoundContent {
    /// Whether it is zero or poison.
    Untouched,
    /// The expected word at this byte.
    From(u64),
    Other {
        is: u8,
        should_be: u8,
    },
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

    fn word(self, index: u64) -> u64 {
        index.wrapping_mul(FACTOR).wrapping_add(self.seed)
    }

    /// Writes the content of position `at`. Position and length are multiples of eight.
    pub(crate) fn fill(self, bytes: &mut [u8], at: u64) {
        let first = at / WORD as u64;
        for (word, index) in bytes.chunks_exact_mut(WORD).zip(first..) {
            word.copy_from_slice(&self.word(index).to_le_bytes());
        }
    }

    /// Compares every byte with the content of position `at`. Position and length are as for `fill`.
    pub(crate) fn check(self, bytes: &[u8], at: u64) -> Result<(), Difference> {
        let first = at / WORD as u64;
        for (word, index) in bytes.chunks_exact(WORD).zip(first..) {
            if word != self.word(index).to_le_bytes() {
                return Err(self.difference(word, index));
            }
        }
        Ok(())
    }

    fn difference(self, word: &[u8], index: u64) -> Difference {
        let expected = self.word(index).to_le_bytes();
        let mut found = [0; WORD];
        found.copy_from_slice(word);
        let byte = found.iter().zip(expected).position(|(a, b)| *a != b).unwrap_or(0);
        let origin = u64::from_le_bytes(found).wrapping_sub(self.seed).wrapping_mul(INVERSE);
        let found = match found {
            _ if found == [0; WORD] || found == [POISON; WORD] => FoundContent::Untouched,
            _ if origin < MOST => FoundContent::From(origin * WORD as u64 + byte as u64),
            _ => FoundContent::Other { is: found[byte], should_be: expected[byte] },
        };
        Difference { at: index * WORD as u64 + byte as u64, found }
    }
}

impl Difference {
    pub(crate) fn untouched(at: u64) -> Self {
        Self { at, found: FoundContent::Untouched }
    }

    pub(crate) fn byte(at: u64, is: u8, should_be: u8) -> Self {
        Self { at, found: FoundContent::Other { is, should_be } }
    }

    /// The same where the pattern begins at byte `start`.
    pub(crate) fn after(mut self, start: u64) -> Self {
        self.at += start;
        if let FoundContent::From(origin) = &mut self.found {
            *origin += start;
        }
        self
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.found {
            FoundContent::Untouched => write!(f, "byte {at} is wrong: it was not written"),
            FoundContent::From(origin) => {
                write!(f, "byte {at} is wrong: it is the content of byte {origin}")
            }
            FoundContent::Other { is, should_be } => {
                write!(f, "byte {at} is wrong: {is:#04x} instead of {should_be:#04x}")
            }
        }
    }
}

/// The inverse of the factor modulo 2^64; each step doubles the number of correct bits.
const INVERSE: u64 = {
    let mut inverse = FACTOR;
    let mut step = 0;
    while step < 6 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
};

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: Pattern = Pattern { seed: 77 << 47 };
    const PAGE: usize = 4096;

    fn content() -> Vec<u8> {
        let mut bytes = vec![0; 8 * PAGE];
        PATTERN.fill(&mut bytes, 0);
        bytes
    }

    fn said(bytes: &[u8]) -> String {
        PATTERN.check(bytes, 0).expect_err("a difference").to_string()
    }

    #[test]
    fn filled_pattern_checks_in_any_pieces() {
        let bytes = content();
        assert_eq!(PATTERN.check(&bytes, 0), Ok(()));
        for at in (0..bytes.len()).step_by(PAGE) {
            assert_eq!(PATTERN.check(&bytes[at..at + PAGE], at as u64), Ok(()));
        }
    }

    #[test]
    fn swapped_blocks_are_found_with_their_origin() {
        for block in [512, PAGE, 2 * PAGE] {
            let mut bytes = content();
            let (a, b) = bytes.split_at_mut(block);
            a.swap_with_slice(&mut b[..block]);
            let byte = PATTERN.check(&bytes, 0).expect_err("a difference").at;
            assert!(byte < 8, "the first word");
            let origin = block as u64 + byte;
            let told = format!("byte {byte} is wrong: it is the content of byte {origin}");
            assert_eq!(said(&bytes), told);
        }
        let mut bytes = content();
        bytes.copy_within(PAGE..2 * PAGE, 3 * PAGE);
        assert_eq!(said(&bytes), "byte 12289 is wrong: it is the content of byte 4097");
    }

    #[test]
    fn shifted_content_is_found() {
        for shift in [1, 7, 8, 512] {
            let mut bytes = content();
            bytes.copy_within(0..PAGE, shift);
            let difference = PATTERN.check(&bytes, 0).expect_err("a difference");
            assert!((shift as u64..shift as u64 + 8).contains(&difference.at), "{difference}");
        }
    }

    #[test]
    fn flipped_bit_and_untouched_memory_are_found() {
        for at in [0, 1, 4095, 4096, 8 * PAGE - 1] {
            let mut bytes = content();
            bytes[at] ^= 0x10;
            assert_eq!(PATTERN.check(&bytes, 0).expect_err("a difference").at, at as u64);
        }
        for byte in [0, POISON] {
            let mut bytes = content();
            bytes[PAGE..2 * PAGE].fill(byte);
            let at = PATTERN.check(&bytes, 0).expect_err("a difference").at;
            assert!((PAGE as u64..PAGE as u64 + 8).contains(&at), "{at}");
            assert_eq!(said(&bytes), format!("byte {at} is wrong: it was not written"));
        }
    }

    #[test]
    fn two_patterns_differ_in_every_word() {
        let (one, two) = (Pattern::new(1), Pattern::new(2));
        assert!((0..10_000).all(|index| one.word(index) != two.word(index)));
        assert_eq!(Pattern::from_seed(one.seed()), one);
    }

    #[test]
    fn no_pattern_word_equals_zero_or_poison() {
        let poison = u64::from_le_bytes([POISON; WORD]);
        for number in [0, 1, 2, 500, 1 << 20, u64::MAX] {
            let pattern = Pattern::new(number);
            for word in [0, poison] {
                let index = word.wrapping_sub(pattern.seed).wrapping_mul(INVERSE);
                assert!(index > 1 << 40, "not within 8 TiB: {index} of {number}");
            }
        }
    }

    /// The values in the documentation, for other implementations.
    #[test]
    fn pattern_words_match_the_documented_formula() {
        let mut bytes = [0; 16];
        Pattern::from_seed(5).fill(&mut bytes, 8);
        assert_eq!(bytes[..8], (0x9e37_79b9_7f4a_7c15_u64 + 5).to_le_bytes());
        assert_eq!(bytes[8..], (0x3c6e_f372_fe94_f82a_u64 + 5).to_le_bytes());
        assert_eq!(INVERSE.wrapping_mul(FACTOR), 1);
    }
}
