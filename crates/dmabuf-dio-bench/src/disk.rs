// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file on disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dmabuf_dio::Errno;
use dmabuf_dio::probe;
use dmabuf_dio_terminal::exit::{FAILED, Failure};
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::size::show_size;
use rustix::fs::{Advice, OFlags, fadvise};

use crate::outcome::Trouble;

const PIECE: u64 = 1 << 20;
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Through the page cache, or direct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IoMode {
    Buffer,
    Direct,
}

/// A file that is removed when this is dropped, and its description.
#[derive(Debug)]
pub(crate) struct TemporaryPath(PathBuf);

fn own_path(dir: &Path, ending: &str) -> PathBuf {
    dir.join(format!(".dmabuf-dio-bench-{}{ending}", std::process::id()))
}

impl TemporaryPath {
    /// A file that is yet to be made.
    pub(crate) fn new(dir: &Path, ending: &str) -> Self {
        Self(own_path(dir, ending))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.0.with_extension("sigmf-meta"));
    }
}

/// A temporary file.
#[derive(Debug)]
pub(crate) struct DiskFile {
    name: Option<TemporaryPath>,
    buffer: File,
    direct: Result<File, Errno>,
    len: u64,
    file_system: Option<String>,
}

impl DiskFile {
    /// Creates an empty file in `dir`, which must have room for `len` bytes. The file has no name, so
    /// it disappears when the program exits, even if it is killed.
    pub(crate) fn create(dir: &Path, len: u64) -> Result<Self, Failure> {
        let mut file = Self::create_named(dir, "", len)?;
        file.name = None;
        Ok(file)
    }

    /// The same with a name that other programs can open. The file is removed when this is dropped.
    pub(crate) fn create_named(dir: &Path, ending: &str, len: u64) -> Result<Self, Failure> {
        let fail = |error: io::Error| {
            let what = format!("{}: no file can be created there: {error}", dir.display());
            Failure::new(FAILED, what, "choose another folder: --dir DIR")
        };
        let path = own_path(dir, ending);
        let mut options = OpenOptions::new();
        let buffer = options.read(true).write(true).create_new(true).open(&path).map_err(fail)?;
        let name = TemporaryPath(path);
        // A block is there while the file's abilities are tried.
        buffer.write_all_at(&[0; 4096], 0).map_err(fail)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32);
        let direct = options.open(name.path()).map_err(|error| Errno::from(&error));
        let file_system = probe::file(name.path())?.file_system;
        Self { name: Some(name), buffer, direct, len, file_system }.with_room(len)
    }

    /// Fails if fewer bytes are free in its folder.
    pub(crate) fn with_room(self, room: u64) -> Result<Self, Failure> {
        let space = rustix::fs::fstatvfs(&self.buffer).map_err(io::Error::from)?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < room {
            let what =
                format!("{} do not fit on the disk, {} are free", show_size(room), show_size(free));
            return Err(Failure::new(
                FAILED,
                what,
                "choose another folder, --dir DIR, or smaller sizes",
            ));
        }
        Ok(self)
    }

    /// Writes the content to the disk: `fill` makes that of a position. Position and length are multiples of eight.
    pub(crate) fn write(&self, fill: impl Fn(&mut [u8], u64)) -> Result<(), Failure> {
        let fail = |error: io::Error| {
            let what = format!("the file cannot be written: {error}");
            Failure::new(FAILED, what, "choose another folder, --dir DIR, or smaller sizes")
        };
        let bar = Bar::new("writing the file");
        let mut bytes = vec![0; PIECE as usize];
        for at in (0..self.len).step_by(PIECE as usize) {
            Failure::if_interrupted()?;
            let len = PIECE.min(self.len - at);
            fill(&mut bytes[..len as usize], at);
            self.buffer.write_all_at(&bytes[..len as usize], at).map_err(fail)?;
            bar.update(at + len, self.len);
        }
        self.buffer.sync_all().map_err(fail)?;
        bar.finish();
        Ok(())
    }

    /// The descriptor for a mode, if the file system offers it.
    pub(crate) fn open(&self, mode: IoMode) -> Result<&File, Trouble> {
        match (mode, &self.direct) {
            (IoMode::Buffer, _) => Ok(&self.buffer),
            (IoMode::Direct, Ok(file)) => Ok(file),
            (IoMode::Direct, Err(errno)) => Err(no_direct(*errno)),
        }
    }

    /// Removes the file, which has been written back, from the page cache.
    pub(crate) fn forget(&self) {
        let _ = fadvise(&self.buffer, 0, None, Advice::DontNeed);
    }

    /// Its name, if it has one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.name.as_ref().map(TemporaryPath::path)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn file_system(&self) -> Option<String> {
        self.file_system.clone()
    }

    /// The name in `/dev` of the disk that contains it, not of a partition.
    pub(crate) fn device(&self) -> Option<String> {
        let device = rustix::fs::fstat(&self.buffer).ok()?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let link = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        let is_partition = link.join("partition").exists();
        let disk = if is_partition { link.parent()? } else { &link };
        Some(disk.file_name()?.to_str()?.to_owned())
    }
}

/// Why a file is not open with `O_DIRECT`.
pub(crate) fn no_direct(errno: Errno) -> Trouble {
    let why = "this file system does not support it; choose another: --dir DIR";
    Trouble::unavailable("open with O_DIRECT", errno, why)
}

/// Caches dropped before a row besides the file's: all of the kernel's, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caches {
    all: bool,
}

impl Caches {
    /// All of them, if the user wants it and has the permission.
    pub(crate) fn new(keep: bool) -> Self {
        // Opening changes nothing.
        Self { all: !keep && OpenOptions::new().write(true).open(DROP_CACHES).is_ok() }
    }

    pub(crate) fn drop(self, file: &DiskFile) {
        file.forget();
        if self.all {
            // What is not on the disk yet would stay.
            rustix::fs::sync();
            let _ = std::fs::write(DROP_CACHES, "3");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_files_leave_no_name_and_have_to_fit() {
        let folder = tempfile::tempdir().expect("a folder");
        let count = || std::fs::read_dir(folder.path()).expect("list").count();
        let file = DiskFile::create(folder.path(), 3 << 20).expect("a file");
        assert_eq!(count(), 0);
        file.write(|bytes, _| bytes.fill(1)).expect("written");
        let named = DiskFile::create_named(folder.path(), ".name", 4096).expect("a file");
        named.write(|bytes, _| bytes.fill(1)).expect("written");
        let path = named.path().expect("a name");
        assert_eq!(path.metadata().expect("it is there").len(), 4096);
        drop(named);
        assert!(DiskFile::create(folder.path(), 1 << 60).is_err());
        assert!(DiskFile::create(&folder.path().join("missing"), 4096).is_err());
        assert_eq!(count(), 0);
    }
}
