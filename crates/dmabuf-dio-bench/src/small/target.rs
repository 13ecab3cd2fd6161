// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file or device that is read, and may grow meanwhile.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dmabuf_dio_terminal::exit::{FAILED, Failure};
use rustix::fs::{Advice, OFlags, fadvise};

use crate::buffer::mapping::{Mapping, Pages};
use crate::disk::{DiskFile, IoMode};
use crate::outcome::{Status, Trouble, failed};
use crate::pattern::{Pattern, compare};

/// Bytes per read.
pub(crate) const BLOCK: u64 = 4096;

/// A file created for the measurement, or a block device.
#[derive(Debug)]
pub(crate) struct Target {
    /// The file system, or "raw".
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    kind: TargetKind,
}

#[derive(Debug)]
enum TargetKind {
    File { file: Box<DiskFile>, content: Pattern },
    Device { buffered: File, direct: File },
}

fn direct() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::DIRECT.bits() as i32);
    options
}

impl Target {
    /// Creates the file, or opens the device.
    pub(crate) fn open(path: &Path, size: u64, number: u64) -> Result<Self, Failure> {
        if path.metadata().is_ok_and(|facts| facts.file_type().is_block_device()) {
            return Self::device(path, size);
        }
        let file = DiskFile::create_named(path, "", size)?;
        let content = Pattern::new(number);
        file.write(|bytes, at| content.fill(bytes, at))?;
        Ok(Self {
            name: file.file_system().unwrap_or_else(|| "file".into()),
            path: file.path().unwrap_or(path).to_owned(),
            kind: TargetKind::File { file: Box::new(file), content },
        })
    }

    fn device(path: &Path, size: u64) -> Result<Self, Failure> {
        let fail = |error: std::io::Error| {
            let what = format!("{}: cannot be read: {error}", path.display());
            Failure::new(FAILED, what, "run as root, or choose another device: --on PATH")
        };
        let buffered = File::open(path).map_err(fail)?;
        let direct = direct().read(true).open(path).map_err(fail)?;
        let len = rustix::fs::seek(&buffered, rustix::fs::SeekFrom::End(0))
            .map_err(|errno| fail(errno.into()))?;
        if len < size {
            let what = format!("{}: has {len} bytes, of {size}", path.display());
            return Err(Failure::new(FAILED, what, "choose a smaller --size"));
        }
        let kind = TargetKind::Device { buffered, direct };
        Ok(Self { name: "raw".into(), path: path.to_owned(), kind })
    }

    /// The descriptor for direct reads.
    pub(crate) fn direct(&self) -> Result<&File, Trouble> {
        match &self.kind {
            TargetKind::File { file, .. } => file.open(IoMode::Direct),
            TargetKind::Device { direct, .. } => Ok(direct),
        }
    }

    /// Compares data that was read from `offset`.
    pub(crate) fn check(&self, bytes: &[u8], offset: u64) -> Result<(), Trouble> {
        let found = match &self.kind {
            TargetKind::File { content, .. } => content.check(bytes, offset),
            TargetKind::Device { buffered, .. } => {
                let mut expected = vec![0; bytes.len()];
                buffered.read_exact_at(&mut expected, offset).map_err(failed("reading"))?;
                compare(bytes, &expected, offset)
            }
        };
        found.map_err(Trouble::different)
    }

    /// Removes pages that the comparison left in the page cache, where direct reads look first.
    pub(crate) fn forget(&self) {
        match &self.kind {
            TargetKind::File { file, .. } => file.forget(),
            TargetKind::Device { buffered, .. } => {
                let _ = fadvise(buffered, 0, None, Advice::DontNeed);
            }
        }
    }
}

/// A file that grows while it is read: a block is appended before every `every`th read, by a direct write, which adds to its
/// mappings. The file gets its size back when this is dropped.
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
        if let TargetKind::Device { .. } = target.kind {
            return Err(Trouble::new(Status::Unavailable, "a block device does not grow"));
        }
        let file = direct().write(true).open(&target.path);
        let file = file.map_err(failed("opening it for writing"))?;
        let size = file.metadata().map_err(failed("stat"))?.len();
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
