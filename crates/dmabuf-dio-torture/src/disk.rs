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
        self.with_part(broken.clone(), "error", |_| String::new())?;
        self.broken = broken;
        Ok(())
    }

    /// Makes a part answer so much later, until a part fails, or none.
    pub(crate) fn slow(&mut self, part: Range<usize>, milliseconds: u64) -> Result<(), String> {
        let later = |below: &str| format!("{below} {milliseconds}");
        self.with_part(part, "delay", later)?;
        self.broken = 0..0;
        Ok(())
    }

    /// A part is of another target, whose arguments are made from the place below.
    fn with_part(
        &mut self,
        other: Range<usize>,
        kind: &'static str,
        arguments: impl Fn(&str) -> String,
    ) -> Result<(), String> {
        let mut targets = Vec::new();
        let mut part = |range: Range<usize>, plain: bool| {
            if !range.is_empty() {
                let start = range.start as u64 / SECTOR;
                let below = format!("{} {start}", self.below);
                let (kind, arguments) =
                    if plain { ("linear", below) } else { (kind, arguments(&below)) };
                targets.push(Target {
                    start,
                    length: range.len() as u64 / SECTOR,
                    kind,
                    arguments,
                });
            }
        };
        part(0..other.start, true);
        part(other.clone(), false);
        part(other.end..SIZE, true);
        self.device.load(&targets)
    }

    /// Makes all requests wait, or go on.
    pub(crate) fn stall(&self, stall: bool) -> Result<(), String> {
        self.device.suspend(stall)
    }
}
