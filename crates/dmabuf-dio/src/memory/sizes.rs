// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page sizes of memory.

use std::fs::File;
use std::io::{BufRead, BufReader};

use super::Mapping;
use super::page::{huge_page, page_size};

/// The page sizes of a buffer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PageSizes {
    /// The page size of most of the memory, in bytes.
    pub page_size: u64,
    /// Bytes of the memory in huge pages.
    pub huge_bytes: u64,
}

impl PageSizes {
    /// Reads from `/proc/self/smaps` which pages a mapping has. Pages not touched through this
    /// mapping do not count.
    pub(crate) fn of(mapping: &Mapping) -> Option<Self> {
        if mapping.len() < huge_page() {
            return Some(Self { page_size: page_size(), huge_bytes: 0 });
        }
        let smaps = BufReader::new(File::open("/proc/self/smaps").ok()?);
        Some(Self::parse(smaps, mapping.as_ptr() as u64, mapping.len()))
    }

    /// Reads no further than necessary: the kernel walks the pages of every mapping that it
    /// describes, which takes 15 ms in a process that has imported torch.
    pub(crate) fn parse(smaps: impl BufRead, address: u64, len: u64) -> Self {
        let start = format!("{address:08x}-");
        let lines = smaps.lines().map_while(Result::ok);
        let (mut kernel_page, mut mapped) = (page_size(), 0);
        for line in lines.skip_while(|line| !line.starts_with(&start)).skip(1) {
            let mut words = line.split_ascii_whitespace();
            let (Some(key), Some(value)) = (words.next(), words.next()) else { break };
            let Some(key) = key.strip_suffix(':') else { break };
            let bytes = value.parse::<u64>().unwrap_or(0).saturating_mul(1024);
            match key {
                "KernelPageSize" => kernel_page = bytes,
                "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => {
                    mapped = u64::saturating_add(mapped, bytes);
                }
                _ => {}
            }
        }
        if kernel_page > page_size() {
            return Self { page_size: kernel_page, huge_bytes: len };
        }
        let huge_bytes = mapped.min(len);
        let most = if huge_bytes > len / 2 { huge_page() } else { page_size() };
        Self { page_size: most, huge_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "7f0000000000-7f0000600000 rw-s 00000000 00:01 7 /memfd:x (deleted)\n\
        Size: 6144 kB\nKernelPageSize: 4 kB\nShmemPmdMapped: 4096 kB\nVmFlags: rd wr\n\
        7f0000600000-7f0000a00000 rw-s 00000000 00:01 8 /memfd:y (deleted)\n\
        KernelPageSize: 1048576 kB\nVmFlags: rd\n";

    #[test]
    fn smaps_shows_transparent_and_reserved_huge_pages() {
        assert_eq!(
            PageSizes::parse(SMAPS.as_bytes(), 0x7f00_0000_0000, 6 << 20),
            PageSizes { page_size: huge_page(), huge_bytes: 4 << 20 }
        );
        assert_eq!(
            PageSizes::parse(SMAPS.as_bytes(), 0x7f00_0060_0000, 4 << 20),
            PageSizes { page_size: 1 << 30, huge_bytes: 4 << 20 }
        );
        // No kernel says that, but a container may have another file there.
        let odd =
            format!("00000000-1 rw-s\nShmemPmdMapped: {0} kB\nAnonHugePages: {0} kB\n", u64::MAX);
        let most = PageSizes { page_size: huge_page(), huge_bytes: 4096 };
        assert_eq!(PageSizes::parse(odd.as_bytes(), 0, 4096), most);
        // Half of the memory is not most of it.
        assert_eq!(
            PageSizes::parse(SMAPS.as_bytes(), 0x7f00_0000_0000, 8 << 20),
            PageSizes { page_size: page_size(), huge_bytes: 4 << 20 }
        );
    }

    #[test]
    fn untouched_memory_has_no_huge_pages() {
        let sizes = |len| PageSizes::of(&Mapping::anonymous(len).expect("memory"));
        assert_eq!(sizes(4096), Some(PageSizes { page_size: page_size(), huge_bytes: 0 }));
        // Nothing was touched.
        assert_eq!(sizes(4 << 20), Some(PageSizes { page_size: page_size(), huge_bytes: 0 }));
    }
}
