// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is moved: words that say where they belong.
//!
//! The word at an index is a bijection of that index and a seed. So no word is there twice, none
//! is zero, and of one that is in the wrong place it can be told where it came from.

use std::fmt;

/// What buffers hold before and after, so that nothing right is in memory that is used again.
pub(crate) const POISON: u8 = 0xa5;

const WORD: usize = size_of::<u64>();
const FACTORS: [u64; 2] = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53];

/// Content as a function of the position, different for each number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    seed: u64,
}

/// The first byte that is not what it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) at: u64,
    found: Found,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Zeroes or poison.
    Untouched,
    /// The word that belongs at this byte.
    From(u64),
    Other {
        is: u8,
        should_be: u8,
    },
}

impl Pattern {
    pub(crate) fn new(number: u64) -> Self {
        // Below 2^63, and an index is below 2^61: their sum neither wraps nor is zero.
        Self { seed: mix(number.wrapping_add(1)) >> 1 | 1 }
    }

    fn word(self, index: u64) -> u64 {
        mix(self.seed + index)
    }

    /// Writes what belongs at `at`. Position and length are multiples of eight.
    pub(crate) fn fill(self, bytes: &mut [u8], at: u64) {
        let first = at / WORD as u64;
        for (word, index) in bytes.chunks_exact_mut(WORD).zip(first..) {
            word.copy_from_slice(&self.word(index).to_le_bytes());
        }
    }

    /// Compares every byte with what belongs at `at`. Position and length as in `fill`.
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
        let origin = unmix(u64::from_le_bytes(found)).wrapping_sub(self.seed);
        let found = match found {
            _ if found == [0; WORD] || found == [POISON; WORD] => Found::Untouched,
            // Up to 1 PiB: what is not of this pattern decodes to anything.
            _ if origin < 1 << 47 => Found::From(origin * WORD as u64),
            _ => Found::Other { is: found[byte], should_be: expected[byte] },
        };
        Difference { at: index * WORD as u64 + byte as u64, found }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.found {
            Found::Untouched => write!(f, "byte {at} is wrong: nothing was put there"),
            Found::From(origin) => {
                write!(f, "byte {at} is wrong: what belongs at byte {origin} is there")
            }
            Found::Other { is, should_be } => {
                write!(f, "byte {at} is wrong: {is:#04x} instead of {should_be:#04x}")
            }
        }
    }
}

/// The finalizer of `MurmurHash3`. Only zero becomes zero.
fn mix(mut word: u64) -> u64 {
    for factor in FACTORS {
        word = (word ^ (word >> 33)).wrapping_mul(factor);
    }
    word ^ (word >> 33)
}

/// The inverse of `mix`: a shift by more than half of the bits is its own inverse.
fn unmix(mut word: u64) -> u64 {
    for factor in FACTORS.into_iter().rev() {
        word = (word ^ (word >> 33)).wrapping_mul(inverse(factor));
    }
    word ^ (word >> 33)
}

/// The inverse of an odd number modulo 2^64; each step doubles the number of right bits.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: Pattern = Pattern { seed: 77 };
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
    fn what_is_filled_is_right_in_any_pieces() {
        let bytes = content();
        assert_eq!(PATTERN.check(&bytes, 0), Ok(()));
        for at in (0..bytes.len()).step_by(PAGE) {
            assert_eq!(PATTERN.check(&bytes[at..at + PAGE], at as u64), Ok(()));
        }
    }

    #[test]
    fn swapped_blocks_are_told_and_whence() {
        for block in [512, PAGE, 2 * PAGE] {
            let mut bytes = content();
            let (a, b) = bytes.split_at_mut(block);
            a.swap_with_slice(&mut b[..block]);
            let told = format!("byte 0 is wrong: what belongs at byte {block} is there");
            assert_eq!(said(&bytes), told);
        }
        let mut bytes = content();
        bytes.copy_within(PAGE..2 * PAGE, 3 * PAGE);
        assert_eq!(said(&bytes), "byte 12288 is wrong: what belongs at byte 4096 is there");
    }

    #[test]
    fn shifted_content_is_told() {
        for shift in [1, 7, 8, 512] {
            let mut bytes = content();
            bytes.copy_within(0..PAGE, shift);
            let difference = PATTERN.check(&bytes, 0).expect_err("a difference");
            assert!((shift as u64..shift as u64 + 2).contains(&difference.at), "{difference}");
        }
    }

    #[test]
    fn one_bit_and_untouched_memory_are_told() {
        for at in [0, 1, 4095, 4096, 8 * PAGE - 1] {
            let mut bytes = content();
            bytes[at] ^= 0x10;
            assert_eq!(PATTERN.check(&bytes, 0).expect_err("a difference").at, at as u64);
        }
        for byte in [0, POISON] {
            let mut bytes = content();
            bytes[PAGE..2 * PAGE].fill(byte);
            assert_eq!(said(&bytes), "byte 4096 is wrong: nothing was put there");
        }
    }

    #[test]
    fn patterns_differ_everywhere() {
        let (one, two) = (Pattern::new(1), Pattern::new(2));
        assert!((0..10_000).all(|index| one.word(index) != two.word(index)));
        assert!(Pattern::new(u64::MAX).seed > 0);
    }

    #[test]
    fn mixing_can_be_undone() {
        for word in [0, 1, 77, 1 << 40, u64::MAX] {
            assert_eq!(unmix(mix(word)), word);
        }
        assert_eq!(mix(0), 0);
    }
}
