// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small disk parts of which fail on demand: the device mapper over the guest's raw disk. Its
//! size is not a multiple of a page.

use std::ops::Range;
use std::path::PathBuf;

use crate::mapper::{Mapped, SECTOR, Target};

/// Bytes.
pub(crate) const SIZE: usize = (256 << 10) + 1536;

/// The disk; its users close it first.
pub(crate) struct Disk {
    device: Mapped,
    below: String,
    /// Its node.
    pub(crate) path: PathBuf,
    /// The part that fails.
    pub(crate) broken: Range<usize>,
}

impl Disk {
    /// `None` without a raw disk or the device mapper.
    pub(crate) fn create() -> Option<Self> {
        let below = std::env::var("DMABUF_DIO_RAW_DISK").ok()?;
        let device = Mapped::create("dio-torture").ok()?;
        let path = device.path.clone();
        let mut disk = Self { device, below, path, broken: 0..0 };
        disk.fail(0..0).ok()?;
        Some(disk)
    }

    /// Makes a part fail, in whole sectors; an empty one: none.
    pub(crate) fn fail(&mut self, broken: Range<usize>) -> Result<(), String> {
        let mut targets = Vec::new();
        let mut part = |range: Range<usize>, works: bool| {
            if !range.is_empty() {
                let start = range.start as u64 / SECTOR;
                let (kind, arguments) = if works {
                    ("linear", format!("{} {start}", self.below))
                } else {
                    ("error", String::new())
                };
                targets.push(Target {
                    start,
                    length: range.len() as u64 / SECTOR,
                    kind,
                    arguments,
                });
            }
        };
        part(0..broken.start, true);
        part(broken.clone(), false);
        part(broken.end..SIZE, true);
        self.device.load(&targets)?;
        self.broken = broken;
        Ok(())
    }

    /// Makes all requests wait, or go on.
    pub(crate) fn stall(&self, stall: bool) -> Result<(), String> {
        self.device.suspend(stall)
    }
}
