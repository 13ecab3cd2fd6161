// SPDX-License-Identifier: MIT OR Apache-2.0
//! LOAD of 64 KiB of a RAM disk into a new dma-buf, every byte of which is compared.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;

use dmabuf_dio_sys::dio;

use crate::load::request;
use crate::mapping::Mapping;
use crate::pages::{difference, stamp};
use crate::soak::Part;
use crate::soak::disk::Disk;

const LENGTH: u64 = 64 << 10;
const FILES: u64 = 64;

pub(crate) struct Loads {
    disk: Disk,
    context: OwnedFd,
    bytes: Vec<u8>,
    turns: u64,
}

impl Loads {
    pub(crate) fn new() -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("the RAM disk: {error}");
        let bytes = stamp(9, 0, (FILES * LENGTH) as usize);
        let plain = std::fs::File::options().write(true).open("/dev/nullb1").map_err(failed)?;
        plain.write_all_at(&bytes, 0).map_err(failed)?;
        plain.sync_all().map_err(failed)?;
        let context = dio::open().map_err(|errno| format!("a context: {errno}"))?;
        Ok(Self { disk: Disk::open("nullb1")?, context, bytes, turns: 0 })
    }
}

impl Part for Loads {
    fn name(&self) -> &'static str {
        "loads"
    }

    fn turn(&mut self) -> Result<u64, String> {
        let at = self.turns % FILES * LENGTH;
        let loaded = request(self.context.as_fd(), self.disk.file.as_fd(), at, LENGTH);
        let loaded = loaded.map_err(|errno| format!("LOAD number {}: {errno}", self.turns))?;
        self.turns += 1;
        let map = Mapping::whole(loaded.as_fd(), LENGTH as usize, false)?;
        difference("the buffer", &map.bytes(), &self.bytes[at as usize..(at + LENGTH) as usize])?;
        Ok(1)
    }

    fn judge(&mut self) -> Result<String, String> {
        let bytes = self.turns * LENGTH;
        let counted = self.disk.counted()?;
        if (counted.read, counted.written) != (bytes, 0) {
            return Err(format!("the RAM disk counted {counted:?}, {bytes} were loaded"));
        }
        Ok(format!("bytes={bytes}"))
    }
}
