// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages and their sizes.

use crate::known::Known;

/// The size of a huge page that is one entry of a page middle directory, in bytes: 2 MiB with pages
/// of 4 KiB, 32 MiB with 16 KiB, 512 MiB with 64 KiB.
pub(crate) fn huge_page() -> u64 {
    static SIZE: Known = Known::new();
    SIZE.get_or_find(|| {
        let told = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
        told.map_or_else(|_| directory(page_size()), |text| parse(&text, page_size()))
    })
}

/// The number from the kernel, if it is a multiple of the page that addresses can be aligned to.
pub(crate) fn parse(text: &str, page: u64) -> u64 {
    let told = text.trim().parse::<u64>().ok();
    told.filter(|size| size.is_power_of_two() && *size > page).unwrap_or_else(|| directory(page))
}

/// The bytes that a directory of one page maps. Its entries have 8 bytes.
fn directory(page: u64) -> u64 {
    page * (page / 8)
}

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
    fn huge_page_size_follows_the_page_size() {
        let sizes = [4 << 10, 16 << 10, 64 << 10].map(directory);
        assert_eq!(sizes, [2 << 20, 32 << 20, 512 << 20]);
        assert_eq!(parse("33554432\n", 16 << 10), 32 << 20);
        for odd in ["", "0", "4096", "x", "3000000"] {
            assert_eq!(parse(odd, 4096), 2 << 20, "{odd:?}");
        }
        assert!(huge_page() > page_size() && huge_page().is_power_of_two());
    }

    #[test]
    fn round_up_checks_for_overflow() {
        assert_eq!(round_up(0, 4096), Some(0));
        assert_eq!(round_up(1, 4096), Some(4096));
        assert_eq!(round_up(u64::MAX, 4096), None);
    }
}
