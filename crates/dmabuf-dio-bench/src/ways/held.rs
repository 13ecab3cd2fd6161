// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a way has filled.

use std::os::fd::OwnedFd;

use crate::buffer::Buffer;
use crate::buffer::mapping::Mapping;
use crate::outcome::Trouble;
use crate::pattern::POISON;

/// The content of the file, kept until it is released.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) memory: Memory,
    /// The mapping used to fill it.
    pub(super) mapping: Option<Mapping>,
    /// The module's, to which it is attached.
    pub(super) context: Option<OwnedFd>,
    /// Whether a ring has its pages.
    pub(super) registered: bool,
    /// A buffer that is not part of what is measured.
    pub(super) unmeasured: Option<Buffer>,
}

#[derive(Debug)]
pub(super) enum Memory {
    /// Nothing is loaded.
    Unfilled(#[expect(dead_code, reason = "held until it is freed")] Option<Buffer>),
    Library(dmabuf_dio::Buffer),
    Vec(Vec<u8>),
    Buffer(Buffer),
    /// Of the file, or anonymous.
    Mapping(Mapping),
}

impl Held {
    pub(super) fn of(memory: Memory) -> Self {
        Self { memory, mapping: None, context: None, registered: false, unmeasured: None }
    }

    pub(super) fn buffer(buffer: Buffer) -> Self {
        Self::of(Memory::Buffer(buffer))
    }

    pub(super) fn mapped(buffer: Buffer, mapping: Mapping) -> Self {
        Self { mapping: Some(mapping), ..Self::buffer(buffer) }
    }

    pub(super) fn in_context(self, context: OwnedFd) -> Self {
        Self { context: Some(context), ..self }
    }

    /// How many bytes of a file of `len` bytes it holds.
    pub(crate) fn len(&self, len: u64) -> u64 {
        match &self.memory {
            Memory::Library(loaded) => loaded.data_len(),
            Memory::Vec(bytes) => bytes.len() as u64,
            // These are made for the whole file, and filling them fails before it ends.
            Memory::Unfilled(_) | Memory::Buffer(_) | Memory::Mapping(_) => len,
        }
    }

    /// Compares the first `len` bytes of the file by `check`.
    pub(crate) fn check(
        &self,
        len: u64,
        check: impl FnOnce(&[u8]) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let held = self.len(len);
        match &self.memory {
            Memory::Unfilled(_) => return Ok(()),
            Memory::Library(loaded) => {
                let view = loaded.map().map_err(Trouble::of_library)?;
                let range = loaded.range();
                // SAFETY: the buffer is this process's own, and nothing is being moved now.
                let bytes = unsafe { view.as_slice() };
                check(&bytes[range.start as usize..range.end as usize])?;
                view.finish().map_err(Trouble::of_library)?;
            }
            Memory::Vec(bytes) => check(bytes)?,
            Memory::Buffer(buffer) => buffer.look(|bytes| check(&bytes[..len as usize]))??,
            // SAFETY: the memory is this process's own; nobody else knows the file.
            Memory::Mapping(mapping) => check(&unsafe { mapping.content() }[..len as usize])?,
        }
        if held < len { Err(Trouble::different(format!("byte {held} is missing"))) } else { Ok(()) }
    }

    /// The same, and overwrites every byte, so that the next run does not find correct data.
    pub(crate) fn compare(
        &mut self,
        len: u64,
        check: impl FnOnce(&[u8]) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let found = self.check(len, check);
        match &mut self.memory {
            Memory::Library(loaded) => {
                let (start, len) = (loaded.data_offset(), loaded.data_len());
                let filled = loaded.map_mut().and_then(|mut map| map.fill_at(start, len, POISON));
                filled.map_err(Trouble::of_library)?;
            }
            Memory::Vec(bytes) => bytes.fill(POISON),
            Memory::Buffer(buffer) => buffer.look(|bytes| bytes.fill(POISON))?,
            Memory::Unfilled(_) | Memory::Mapping(_) => {}
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::memfd;
    use crate::outcome::Status;
    use crate::pattern::Pattern;

    #[test]
    fn comparison_reports_a_wrong_byte_and_destroys_the_content() {
        let content = Pattern::new(3);
        let mut bytes = vec![0; 8192];
        content.fill(&mut bytes, 0);
        let buffer = memfd(8192).expect("a memfd");
        buffer.look(|bytes| content.fill(bytes, 0)).expect("filled");
        let check = |bytes: &[u8]| content.check(bytes, 0);
        let mut short = Held::of(Memory::Vec(bytes[..4096].to_vec()));
        for mut held in [Held::buffer(buffer), Held::of(Memory::Vec(bytes))] {
            assert_eq!(held.compare(8192, check), Ok(()));
            let trouble = held.compare(8192, check).expect_err("destroyed");
            assert_eq!(trouble.status, Status::Different);
        }
        assert_eq!(short.compare(8192, check), Err(Trouble::different("byte 4096 is missing")));
    }
}
