// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages and their sizes.

/// The size of a huge page that is one entry of a page middle directory.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;

/// The size of a page, in bytes.
pub(crate) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// Rounds up to a multiple of `to`, a power of two; `None` if that overflows.
pub(crate) fn round_up(value: u64, to: u64) -> Option<u64> {
    Some(value.checked_add(to - 1)? & !(to - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding() {
        assert_eq!(round_up(0, 4096), Some(0));
        assert_eq!(round_up(1, 4096), Some(4096));
        assert_eq!(round_up(u64::MAX, 4096), None);
    }
}
