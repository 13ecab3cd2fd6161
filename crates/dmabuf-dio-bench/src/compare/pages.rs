// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page sizes of this process's memory.

use super::contract::PagesGot;
use crate::buffer::mapping::huge_page;

/// The page sizes of `len` bytes at an address, from `/proc/self/smaps`.
pub(crate) fn got(address: *const u8, len: u64) -> Option<PagesGot> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    Some(parse(&smaps, address as u64, len))
}

/// Adds up all mappings that overlap the range.
fn parse(smaps: &str, address: u64, len: u64) -> PagesGot {
    let small = rustix::param::page_size() as u64;
    let (mut inside, mut huge, mut size) = (false, 0, 0);
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(first), Some(second)) = (words.next(), words.next()) else { continue };
        let bytes = second.parse::<u64>().unwrap_or(0) * 1024;
        match first {
            "Size:" => size = bytes,
            "KernelPageSize:" if inside && bytes > small => huge += size,
            "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:" if inside => huge += bytes,
            _ => {
                if let Some((start, end)) = range(first) {
                    inside = start < address + len && end > address;
                }
            }
        }
    }
    let huge = huge.min(len);
    PagesGot { page_size: if huge * 2 > len { huge_page() } else { small }, huge_bytes: huge }
}

/// Parses the addresses at the start of a mapping's first line.
fn range(word: &str) -> Option<(u64, u64)> {
    let (start, end) = word.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "10000000-10600000 rw-p 00000000 00:00 0\n\
        Size: 6144 kB\nKernelPageSize: 4 kB\nAnonHugePages: 4096 kB\nVmFlags: rd wr\n\
        20000000-20400000 rw-s 00000000 00:01 8 /memfd:y (deleted)\n\
        Size: 4096 kB\nKernelPageSize: 2048 kB\nShmemPmdMapped: 0 kB\nVmFlags: rd\n\
        20400000-20800000 rw-p 00000000 00:00 0\n\
        Size: 4096 kB\nKernelPageSize: 4 kB\nAnonHugePages: 0 kB\n";

    #[test]
    fn pages_are_summed_over_all_mappings_of_the_range() {
        let pages = |address, len| {
            let got = parse(SMAPS, address, len);
            (got.page_size >> 10, got.huge_bytes >> 20)
        };
        assert_eq!(pages(0x1000_0000, 6 << 20), (2048, 4), "transparent");
        assert_eq!(pages(0x2000_0000, 4 << 20), (2048, 4), "reserved");
        assert_eq!(pages(0x2000_0000, 8 << 20), (4, 4), "one half is not most");
        assert_eq!(pages(0x2040_0000, 4 << 20), (4, 0));
    }

    #[test]
    fn own_memory_is_found_in_smaps() {
        let bytes = vec![1_u8; 1 << 20];
        assert!(got(bytes.as_ptr(), 1 << 20).is_some());
    }
}
