// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a way has filled.

use std::os::fd::OwnedFd;

use crate::buffer::Buffer;
use crate::buffer::mapping::Mapping;
use crate::outcome::{Result, Trouble};
use crate::pattern::POISON;

/// The content of the file, kept until it is released.
#[derive(Debug, Default)]
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

#[derive(Debug, Default)]
pub(super) enum Memory {
    #[default]
    Nothing,
    Unfilled(#[expect(dead_code, reason = "held until it is freed")] Buffer),
    Library(dmabuf_dio::Buffer),
    Vec(Vec<u8>),
    Buffer(Buffer),
    /// Of the file, or anonymous.
    Mapping(Mapping),
}

impl From<Memory> for Held {
    fn from(memory: Memory) -> Self {
        Self { memory, ..Self::default() }
    }
}

impl From<Buffer> for Held {
    fn from(buffer: Buffer) -> Self {
        Memory::Buffer(buffer).into()
    }
}

impl Held {
    /// How many bytes of a file of `len` bytes it holds.
    pub(crate) fn len(&self, len: u64) -> u64 {
        match &self.memory {
            Memory::Library(loaded) => loaded.data_len(),
            Memory::Vec(bytes) => bytes.len() as u64,
            // These are made for the whole file, and filling them fails before it ends.
            _ => len,
        }
    }

    /// Compares the first `len` bytes of the file by `check`. With `poison` it overwrites every byte, so that the next
    /// run does not find correct data; not those of a mapping, which may be the file.
    pub(crate) fn check(
        &mut self,
        len: u64,
        poison: bool,
        check: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let held = self.len(len);
        match &mut self.memory {
            Memory::Nothing | Memory::Unfilled(_) => return Ok(()),
            Memory::Library(loaded) => {
                let range = loaded.range();
                let mut view = loaded.map_mut()?;
                // SAFETY: the buffer is this process's own, and nothing is being moved now.
                let bytes = unsafe { view.as_mut_slice() };
                look(&mut bytes[range.start as usize..range.end as usize], poison, check)?;
                view.finish()?;
            }
            Memory::Vec(bytes) => look(bytes, poison, check)?,
            Memory::Buffer(buffer) => buffer.look(|bytes| look(bytes, poison, check))??,
            // SAFETY: the memory is this process's own; nobody else knows the file.
            Memory::Mapping(mapping) => check(&unsafe { mapping.content() }[..len as usize])?,
        }
        if held < len { Err(Trouble::different(format!("byte {held} is missing"))) } else { Ok(()) }
    }
}

fn look(bytes: &mut [u8], poison: bool, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
    let found = check(bytes);
    if poison {
        bytes.fill(POISON);
    }
    found
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
        let mut short = Held::from(Memory::Vec(bytes[..4096].to_vec()));
        assert_eq!(short.check(8192, true, check), Err(Trouble::different("byte 4096 is missing")));
        for mut held in [Held::from(buffer), Memory::Vec(bytes).into()] {
            assert_eq!(held.check(8192, true, check), Ok(()));
            let trouble = held.check(8192, true, check).expect_err("destroyed");
            assert_eq!(trouble.status, Status::Different);
        }
    }
}
