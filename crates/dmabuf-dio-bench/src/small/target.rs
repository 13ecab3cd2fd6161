// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file or device that is read.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dmabuf_dio_terminal::exit::{FAILED, Failure};
use rustix::fs::{Advice, OFlags, fadvise};

use crate::disk::{DiskFile, IoMode};
use crate::measure::outcome::{Status, Trouble, failed, io_failed};
use crate::pattern::{Difference, Pattern};

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

impl Target {
    /// Creates the file, or opens the device.
    pub(crate) fn open(path: &Path, size: u64, number: usize) -> Result<Self, Failure> {
        if path.metadata().is_ok_and(|facts| facts.file_type().is_block_device()) {
            return Self::device(path, size);
        }
        let name = format!(".dmabuf-dio-bench-{}", std::process::id());
        let file = DiskFile::create_named(path, &name, size, size)?;
        let content = Pattern::new(number as u64);
        file.write(&content)?;
        Ok(Self {
            name: file.facts().file_system.clone().unwrap_or_else(|| "file".into()),
            path: file.path().unwrap_or(path).to_owned(),
            kind: TargetKind::File { file: Box::new(file), content },
        })
    }

    fn device(path: &Path, size: u64) -> Result<Self, Failure> {
        let fail = |error: std::io::Error| {
            let what = format!("{}: cannot be read: {error}", path.display());
            Failure::new(FAILED, what, "run as root, or choose another device: --on PATH")
        };
        let mut options = OpenOptions::new();
        let buffered = options.read(true).open(path).map_err(fail)?;
        let direct = options.custom_flags(OFlags::DIRECT.bits() as i32).open(path).map_err(fail)?;
        let len = rustix::fs::seek(&buffered, rustix::fs::SeekFrom::End(0))
            .map_err(|errno| fail(errno.into()))?;
        if len < size {
            let what = format!("{}: has {len} bytes, of {size}", path.display());
            return Err(Failure::new(FAILED, what, "choose a smaller --size"));
        }
        Ok(Self {
            name: "raw".into(),
            path: path.to_owned(),
            kind: TargetKind::Device { buffered, direct },
        })
    }

    /// The descriptor for direct reads.
    pub(crate) fn direct(&self) -> Result<&File, Trouble> {
        match &self.kind {
            TargetKind::File { file, .. } => file.open(IoMode::Direct),
            TargetKind::Device { direct, .. } => Ok(direct),
        }
    }

    /// The file, to append to it.
    pub(crate) fn growing(&self) -> Result<&Path, Trouble> {
        match &self.kind {
            TargetKind::File { .. } => Ok(&self.path),
            TargetKind::Device { .. } => {
                Err(Trouble::new(Status::Unavailable, "a block device does not grow"))
            }
        }
    }

    /// Compares data that was read from `offset`.
    pub(crate) fn check(&self, bytes: &[u8], offset: u64) -> Result<(), Trouble> {
        let found = match &self.kind {
            TargetKind::File { content, .. } => content.check(bytes, offset),
            TargetKind::Device { buffered, .. } => {
                let mut expected = vec![0; bytes.len()];
                buffered.read_exact_at(&mut expected, offset).map_err(io_failed("reading"))?;
                let wrong = bytes.iter().zip(&expected).position(|(is, should)| is != should);
                wrong.map_or(Ok(()), |at| {
                    Err(Difference::byte(offset + at as u64, bytes[at], expected[at]))
                })
            }
        };
        found.map_err(|difference| Trouble::different(&difference))
    }

    /// Removes pages that the comparison left in the page cache, where direct reads look first.
    pub(crate) fn forget(&self) -> Result<(), Trouble> {
        match &self.kind {
            TargetKind::File { file, .. } => {
                file.forget();
                Ok(())
            }
            TargetKind::Device { buffered, .. } => {
                fadvise(buffered, 0, None, Advice::DontNeed).map_err(failed("fadvise"))
            }
        }
    }
}
