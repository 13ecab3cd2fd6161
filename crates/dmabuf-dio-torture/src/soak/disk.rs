// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices: `null_blk`, which moves nothing, and one that has memory, whose bytes are compared.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

/// A block device, and what it had counted when it was opened.
pub(crate) struct Disk {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    name: &'static str,
    before: Counted,
}

/// What the kernel has counted of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Requests, also those of adjacent blocks that were merged.
    pub(crate) reads: u64,
    /// In bytes.
    pub(crate) read: u64,
    /// In bytes.
    pub(crate) written: u64,
}

fn counted(name: &str) -> Result<Counted, String> {
    let path = format!("/sys/block/{name}/stat");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let numbers: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
    // Documentation/block/stat.rst: sectors of 512 bytes.
    match numbers[..] {
        [reads, merged, read, _, _, _, written, ..] => {
            Ok(Counted { reads: reads + merged, read: read << 9, written: written << 9 })
        }
        _ => Err(format!("{path}: {text}")),
    }
}

impl Disk {
    /// `name`: in /dev and in /sys/block.
    pub(crate) fn open(name: &'static str) -> Result<Self, String> {
        let path = PathBuf::from(format!("/dev/{name}"));
        let mut options = File::options();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(&path);
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { file, path, name, before: counted(name)? })
    }

    /// Since it was opened.
    pub(crate) fn counted(&self) -> Result<Counted, String> {
        let now = counted(self.name)?;
        Ok(Counted {
            reads: now.reads - self.before.reads,
            read: now.read - self.before.read,
            written: now.written - self.before.written,
        })
    }
}
