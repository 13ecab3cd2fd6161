// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a way has filled.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::buffer::Buffer;
use crate::buffer::mapping::{Mapping, huge_page};
use crate::measure::outcome::Trouble;
use crate::pattern::{Difference, POISON, Pattern};

/// The content of the file, kept until it is released.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) memory: Memory,
    /// The mappings used to fill it.
    pub(super) mappings: Vec<Mapping>,
    /// The module's, to which it is attached.
    pub(super) context: Option<OwnedFd>,
    /// Whether a ring has its pages.
    pub(super) registered: bool,
    filled: bool,
    /// A buffer that is not part of what is measured.
    pub(super) unmeasured: Option<Buffer>,
}

#[derive(Debug)]
pub(super) enum Memory {
    Nothing,
    Library(dmabuf_dio::Buffer),
    Vec(Vec<u8>),
    Buffer(Buffer),
    /// Of the file, or anonymous.
    Mapping(Mapping),
}

impl Held {
    fn of(memory: Memory) -> Self {
        Self {
            memory,
            mappings: Vec::new(),
            context: None,
            registered: false,
            filled: true,
            unmeasured: None,
        }
    }

    pub(super) fn library(loaded: dmabuf_dio::Buffer) -> Self {
        Self::of(Memory::Library(loaded))
    }

    pub(super) fn vec(bytes: Vec<u8>) -> Self {
        Self::of(Memory::Vec(bytes))
    }

    pub(super) fn mapping(mapping: Mapping) -> Self {
        Self::of(Memory::Mapping(mapping))
    }

    pub(super) fn buffer(buffer: Buffer, mappings: Vec<Mapping>) -> Self {
        Self { mappings, ..Self::of(Memory::Buffer(buffer)) }
    }

    pub(super) fn unfilled(buffer: Buffer) -> Self {
        Self { filled: false, ..Self::buffer(buffer, vec![]) }
    }

    pub(super) fn attached(buffer: Buffer, context: OwnedFd) -> Self {
        let held = Self { filled: false, ..Self::of(Memory::Nothing) };
        Self { unmeasured: Some(buffer), ..held.in_context(context) }
    }

    pub(super) fn in_context(self, context: OwnedFd) -> Self {
        Self { context: Some(context), ..self }
    }

    pub(super) fn registered(self) -> Self {
        Self { registered: true, ..self }
    }

    /// The buffer, if it is one made by system calls.
    pub(crate) fn as_buffer(&self) -> Option<&Buffer> {
        match &self.memory {
            Memory::Buffer(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// How many bytes of a file of `len` bytes it holds.
    pub(crate) fn len(&self, len: u64) -> u64 {
        match &self.memory {
            Memory::Library(loaded) => loaded.data_len(),
            Memory::Vec(bytes) => bytes.len() as u64,
            // These are made for the whole file, and filling them fails before it ends.
            Memory::Nothing | Memory::Buffer(_) | Memory::Mapping(_) => len,
        }
    }

    /// Passes the first `len` bytes of the file to `what`.
    pub(crate) fn look<T>(&self, len: u64, what: impl FnOnce(&[u8]) -> T) -> Result<T, Trouble> {
        match &self.memory {
            Memory::Nothing => Ok(what(&[])),
            Memory::Library(loaded) => {
                let view = loaded.map().map_err(Trouble::of_library)?;
                let range = loaded.range();
                // SAFETY: the buffer is this process's own, and nothing is being moved now.
                let bytes = unsafe { view.as_slice() };
                let result = what(&bytes[range.start as usize..range.end as usize]);
                view.finish().map_err(Trouble::of_library)?;
                Ok(result)
            }
            Memory::Vec(bytes) => Ok(what(bytes)),
            Memory::Buffer(buffer) => buffer.look(|bytes| what(&bytes[..len as usize])),
            // SAFETY: the memory is this process's own; nobody else knows the file.
            Memory::Mapping(mapping) => Ok(what(&unsafe { mapping.content() }[..len as usize])),
        }
    }

    /// Compares every byte, and overwrites it, so that the next run does not find correct data.
    pub(crate) fn compare(&mut self, content: Pattern, len: u64) -> Result<(), Trouble> {
        if !self.filled {
            return Ok(());
        }
        let held = self.len(len);
        let found = self.look(len, |bytes| content.check(bytes, 0))?;
        match &mut self.memory {
            Memory::Library(loaded) => {
                let (start, len) = (loaded.data_offset(), loaded.data_len());
                let filled = loaded.map_mut().and_then(|mut map| map.fill_at(start, len, POISON));
                filled.map_err(Trouble::of_library)?;
            }
            Memory::Vec(bytes) => bytes.fill(POISON),
            Memory::Buffer(buffer) => buffer.poison()?,
            Memory::Nothing | Memory::Mapping(_) => {}
        }
        let found = found.and(if held < len { Err(Difference::untouched(held)) } else { Ok(()) });
        found.map_err(|difference| Trouble::different(&difference))
    }

    /// Its page sizes, if known.
    pub(crate) fn pages(&self, len: u64) -> Option<PagesGot> {
        let address = match &self.memory {
            Memory::Nothing => return None,
            Memory::Library(loaded) => {
                let pages = loaded.page_sizes()?;
                let huge_bytes = pages.huge_bytes.min(len);
                return Some(PagesGot { page_size: pages.page_size, huge_bytes });
            }
            Memory::Vec(bytes) => bytes.as_ptr(),
            // Of a dma-buf the process does not see them.
            Memory::Buffer(buffer) if buffer.is_dmabuf() => return None,
            Memory::Buffer(_) => self.mappings.first()?.address(),
            Memory::Mapping(mapping) => mapping.address(),
        };
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        Some(parse(&smaps, address as u64, len))
    }
}

/// Page sizes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PagesGot {
    /// The most frequent page size in bytes.
    pub(crate) page_size: u64,
    /// Bytes that are in huge pages.
    pub(crate) huge_bytes: u64,
}

/// Adds up all mappings of `/proc/self/smaps` that overlap the range.
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
    use crate::buffer::memfd;
    use crate::measure::outcome::Status;

    #[test]
    fn comparison_reports_a_wrong_byte_and_destroys_the_content() {
        let content = Pattern::new(3);
        let mut bytes = vec![0; 8192];
        content.fill(&mut bytes, 0);
        let buffer = memfd(8192).expect("a memfd");
        buffer.fill(content, 0).expect("filled");
        for mut held in [Held::buffer(buffer, vec![]), Held::vec(bytes)] {
            assert_eq!(held.compare(content, 8192), Ok(()));
            let trouble = held.compare(content, 8192).expect_err("destroyed");
            assert_eq!(trouble.status, Status::Different);
        }
        let mut short = vec![0; 4096];
        content.fill(&mut short, 0);
        assert!(Held::vec(short).compare(content, 8192).is_err());
    }

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
        assert!(Held::vec(vec![1; 1 << 20]).pages(1 << 20).is_some(), "own memory");
    }
}
