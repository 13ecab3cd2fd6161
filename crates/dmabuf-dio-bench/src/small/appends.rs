// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that grows while it is read: each direct write at its end adds blocks to its mappings.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::OFlags;

use super::target::BLOCK;
use super::target::Target;
use crate::buffer::mapping::{Mapping, Pages};
use crate::measure::outcome::{Trouble, failed, io_failed};

/// Appends a block before every `every`th read. The file gets its size back when this is dropped.
pub(crate) struct Appends {
    file: File,
    block: Mapping,
    size: u64,
    end: u64,
    every: u32,
    reads: u32,
}

impl Appends {
    pub(crate) fn new(target: &Target, every: u32) -> Result<Self, Trouble> {
        let path = target.growing()?;
        let direct = OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().write(true).custom_flags(direct).open(path);
        let file = file.map_err(io_failed("opening it for writing"))?;
        let size = file.metadata().map_err(io_failed("stat"))?.len();
        let block = Mapping::anonymous(BLOCK, Pages::Small).map_err(failed("mmap"))?;
        Ok(Self { file, block, size, end: size, every, reads: 0 })
    }

    /// To be called before each read.
    pub(crate) fn before_read(&mut self) -> Result<(), Trouble> {
        self.reads += 1;
        if self.reads < self.every {
            return Ok(());
        }
        self.reads = 0;
        // SAFETY: the mapping is this one's own, and nothing else refers to it.
        let block = unsafe { self.block.bytes() };
        self.file.write_all_at(block, self.end).map_err(io_failed("appending"))?;
        self.end += BLOCK;
        Ok(())
    }
}

impl Drop for Appends {
    fn drop(&mut self) {
        let _ = self.file.set_len(self.size);
    }
}
