// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that grows while it is read.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::OFlags;

use super::memory::BLOCK;
use crate::buffer::mapping::{Mapping, Pages};
use crate::disk::DiskFile;
use crate::outcome::{Result, Status, Trouble, failed};

/// Appends a block before every `every`th read, by a direct write, which adds to the mappings of the file. The file gets
/// its size back when this is dropped.
pub(crate) struct Appends {
    file: File,
    block: Mapping,
    size: u64,
    end: u64,
    every: u32,
    reads: u32,
}

impl Appends {
    pub(crate) fn new(disk: &DiskFile, every: u32) -> Result<Self> {
        let (Some(path), Some(_)) = (disk.path(), disk.content()) else {
            return Err(Trouble::new(Status::Unavailable, "a block device does not grow"));
        };
        let mut options = OpenOptions::new();
        let file = options.write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path);
        let file = file.map_err(failed("opening it for writing"))?;
        let block = Mapping::anonymous(BLOCK, Pages::Small).map_err(failed("mmap"))?;
        Ok(Self { file, block, size: disk.len(), end: disk.len(), every, reads: 0 })
    }

    /// To be called before each read.
    pub(crate) fn before_read(&mut self) -> Result<()> {
        self.reads += 1;
        if self.reads < self.every {
            return Ok(());
        }
        self.reads = 0;
        // SAFETY: the mapping is this one's own, and nothing else refers to it.
        let block = unsafe { self.block.bytes() };
        self.file.write_all_at(block, self.end).map_err(failed("appending"))?;
        self.end += BLOCK;
        Ok(())
    }
}

impl Drop for Appends {
    fn drop(&mut self) {
        let _ = self.file.set_len(self.size);
    }
}
