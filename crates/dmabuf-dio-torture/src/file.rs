// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the file system, and the disk, whose every byte is known.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};

use crate::pages::{difference, stamp};

/// A file and its model.
pub(crate) struct Known {
    pub(crate) plain: File,
    /// With `O_DIRECT`, if that can be.
    direct: Option<File>,
    pub(crate) bytes: Vec<u8>,
    /// Its length cannot change.
    pub(crate) disk: bool,
}

/// Folders whose files the file system encrypts, or compresses; `tests/torture/in-guest` makes them if it can.
const SECRET: &str = "secret";
const PACKED: &str = "packed";

/// The folder of a special kind of file, if there is one.
pub(crate) fn special(folder: &Path, kind: u64) -> Option<PathBuf> {
    let name = match kind {
        3 => SECRET,
        4 => PACKED,
        _ => return None,
    };
    Some(folder.join(name)).filter(|folder| folder.exists())
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{what}: {error}")
}

impl Known {
    fn open(path: &Path, new: bool) -> Result<Self, String> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let plain = options.clone().create(new).truncate(new).open(path).map_err(failed("open"))?;
        let direct = options.custom_flags(libc::O_DIRECT).open(path).ok();
        Ok(Self { plain, direct, bytes: Vec::new(), disk: false })
    }

    /// A new file without a name.
    pub(crate) fn create(
        folder: &Path,
        length: u64,
        kind: u64,
        number: u64,
    ) -> Result<Self, String> {
        let path = special(folder, kind).unwrap_or(folder.into()).join("torture-file");
        let mut file = Self::open(&path, true)?;
        std::fs::remove_file(&path).map_err(failed("unlink"))?;
        match kind {
            1 => file.truncate(length)?,
            2 => file.allocate(0, length)?,
            _ => file.write(0, &stamp(number, 0, length as usize))?,
        }
        Ok(file)
    }

    pub(crate) fn on_disk(path: &Path, length: usize) -> Result<Self, String> {
        let mut file = Self::again(path, Vec::new())?;
        file.write(0, &stamp(77, 0, length))?;
        Ok(file)
    }

    /// A disk that has these bytes.
    pub(crate) fn again(path: &Path, bytes: Vec<u8>) -> Result<Self, String> {
        Ok(Self { bytes, disk: true, ..Self::open(path, false)? })
    }

    pub(crate) fn fd(&self, direct: u64) -> BorrowedFd<'_> {
        match &self.direct {
            Some(file) if direct != 0 => file.as_fd(),
            _ => self.plain.as_fd(),
        }
    }

    pub(crate) fn is_direct(&self, direct: u64) -> bool {
        direct != 0 && self.direct.is_some()
    }

    /// The known bytes of a range, fewer if the file ends.
    pub(crate) fn range(&self, at: u64, length: u64) -> &[u8] {
        let end = self.bytes.len();
        &self.bytes[(at as usize).min(end)..((at + length) as usize).min(end)]
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.plain.write_all_at(bytes, at).map_err(failed("pwrite"))?;
        self.note(at, bytes);
        Ok(())
    }

    /// Bytes that somebody has stored.
    pub(crate) fn note(&mut self, at: u64, bytes: &[u8]) {
        let end = at as usize + bytes.len();
        if !bytes.is_empty() && self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        if !bytes.is_empty() {
            self.bytes[at as usize..end].copy_from_slice(bytes);
        }
    }

    pub(crate) fn truncate(&mut self, length: u64) -> Result<(), String> {
        self.plain.set_len(length).map_err(failed("ftruncate"))?;
        self.bytes.resize(length as usize, 0);
        Ok(())
    }

    pub(crate) fn allocate(&mut self, at: u64, length: u64) -> Result<(), String> {
        fallocate(&self.plain, FallocateFlags::empty(), at, length.max(1))
            .map_err(|errno| format!("fallocate: {errno}"))?;
        let end = (at + length.max(1)) as usize;
        self.bytes.resize(self.bytes.len().max(end), 0);
        Ok(())
    }

    pub(crate) fn punch(&mut self, at: u64, length: u64) -> Result<(), String> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.plain, flags, at, length.max(1))
            .map_err(|errno| format!("punch: {errno}"))?;
        let end = self.bytes.len();
        let range = (at as usize).min(end)..((at + length.max(1)) as usize).min(end);
        self.bytes[range].fill(0);
        Ok(())
    }

    /// What is dirty stays in the page cache.
    pub(crate) fn uncache(&self) -> Result<(), String> {
        self.plain.sync_data().map_err(failed("fdatasync"))?;
        fadvise(&self.plain, 0, None, Advice::DontNeed).map_err(|errno| format!("fadvise: {errno}"))
    }

    /// The bytes in fact.
    pub(crate) fn actual(&self) -> Result<Vec<u8>, String> {
        let length = if self.disk {
            self.bytes.len()
        } else {
            self.plain.metadata().map_err(failed("fstat"))?.len() as usize
        };
        if length > self.bytes.len() + (64 << 20) {
            return Err(format!("the file has {length} bytes in place of {}", self.bytes.len()));
        }
        let mut bytes = vec![0; length];
        self.plain.read_exact_at(&mut bytes, 0).map_err(failed("pread"))?;
        Ok(bytes)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        difference("the file", &self.actual()?, &self.bytes)
    }
}

/// Freezes the file system of a folder, or thaws it.
pub(crate) fn freeze(folder: &Path, freeze: bool) -> Result<(), String> {
    // `FIFREEZE`, `FITHAW`: `_IOWR('X', 119, int)` and the next
    let request = if freeze { 0xc004_5877 } else { 0xc004_5878 };
    let folder = File::open(folder).map_err(failed("the folder"))?;
    // SAFETY: the calls do not use their argument.
    if unsafe { libc::ioctl(folder.as_raw_fd(), request, 0) } < 0 {
        return Err(failed("freezing a file system")(std::io::Error::last_os_error()));
    }
    Ok(())
}
