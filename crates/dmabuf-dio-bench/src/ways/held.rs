// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a way has filled.

use std::os::fd::OwnedFd;

use crate::buffer::Buffer;
use crate::buffer::mapping::Mapping;
use crate::outcome::Trouble;
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
    pub(super) fn of(memory: Memory) -> Self {
        let (mappings, context, unmeasured) = (Vec::new(), None, None);
        Self { memory, mappings, context, registered: false, filled: true, unmeasured }
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
            Memory::Buffer(buffer) => buffer.look(|bytes| bytes.fill(POISON))?,
            Memory::Nothing | Memory::Mapping(_) => {}
        }
        let found = found.and(if held < len { Err(Difference::missing(held)) } else { Ok(()) });
        found.map_err(Trouble::different)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::memfd;
    use crate::outcome::Status;

    #[test]
    fn comparison_reports_a_wrong_byte_and_destroys_the_content() {
        let content = Pattern::new(3);
        let mut bytes = vec![0; 8192];
        content.fill(&mut bytes, 0);
        let buffer = memfd(8192).expect("a memfd");
        buffer.look(|bytes| content.fill(bytes, 0)).expect("filled");
        let short = Held::of(Memory::Vec(bytes[..4096].to_vec()));
        for mut held in [Held::buffer(buffer, vec![]), Held::of(Memory::Vec(bytes))] {
            assert_eq!(held.compare(content, 8192), Ok(()));
            let trouble = held.compare(content, 8192).expect_err("destroyed");
            assert_eq!(trouble.status, Status::Different);
        }
        assert!({ short }.compare(content, 8192).is_err());
    }
}
