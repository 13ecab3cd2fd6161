// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that a seed determines on every machine and in every version, as kept seeds depend on it.

use std::ops::Range;

/// `SplitMix64`
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of one round of a campaign.
    pub(crate) fn of_round(seed: u64, round: u64) -> Self {
        let mut random = Self(seed);
        let mixed = random.next() ^ round.wrapping_mul(0xd134_2543_de82_ef95);
        Self(mixed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of a range, its start if the range is empty.
    pub(crate) fn in_range(&mut self, range: Range<u64>) -> u64 {
        let drawn = self.next();
        let many = range.end.saturating_sub(range.start).max(1);
        range.start + drawn % many
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.in_range(0..many) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.in_range(0..from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_mean_the_same_for_ever() {
        let mut random = Random::of_round(1, 2);
        let drawn: Vec<u64> = (0..3).map(|_| random.in_range(0..1000)).collect();
        assert_eq!(drawn, [297, 61, 696]);
    }

    #[test]
    fn rounds_differ() {
        assert_ne!(Random::of_round(1, 2).next(), Random::of_round(1, 3).next());
        assert_ne!(Random::of_round(1, 2).next(), Random::of_round(2, 2).next());
    }
}
