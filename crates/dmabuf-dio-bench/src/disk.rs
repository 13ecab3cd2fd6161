// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file on disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dmabuf_dio::probe::{self, FileFacts};
use dmabuf_dio_sys::cachestat::cachestat;
use dmabuf_dio_terminal::exit::{FAILED, Failure};
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::size::show_size;
use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::Errno as Os;

use crate::measure::outcome::{Trouble, os};
use crate::pattern::{Difference, Pattern};

const PIECE: u64 = 1 << 20;
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Through the page cache, or direct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IoMode {
    Buffer,
    Direct,
}

impl IoMode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Buffer => "buffer",
            Self::Direct => "direct",
        }
    }
}

/// The content of a file.
pub(crate) trait Content {
    /// Writes the content of position `at`. Position and length are multiples of eight.
    fn fill(&self, bytes: &mut [u8], at: u64);
}

impl Content for Pattern {
    fn fill(&self, bytes: &mut [u8], at: u64) {
        Self::fill(*self, bytes, at);
    }
}

/// A temporary file.
#[derive(Debug)]
pub(crate) struct DiskFile {
    name: Option<Name>,
    buffer: File,
    direct: Result<File, Os>,
    len: u64,
    facts: FileFacts,
}

/// Removes the named file, and its description, when it is dropped.
#[derive(Debug)]
pub(crate) struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.0.with_extension("sigmf-meta"));
    }
}

impl Name {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// A file that is yet to be made.
#[derive(Debug)]
pub(crate) struct TemporaryPath(PathBuf);

impl TemporaryPath {
    pub(crate) fn new(dir: &Path) -> Self {
        Self(dir.join(format!(".dmabuf-dio-bench-{}.bin", std::process::id())))
    }

    pub(crate) fn until_dropped(&self) -> Name {
        Name(self.0.clone())
    }
}

impl DiskFile {
    /// Creates an empty file in `dir`, which must have room for `len` bytes. The file has no name, so
    /// it disappears when the program exits, even if it is killed.
    pub(crate) fn create(dir: &Path, len: u64) -> Result<Self, Failure> {
        let name = format!(".dmabuf-dio-bench-{}", std::process::id());
        let mut file = Self::create_named(dir, &name, len, len)?;
        file.name = None;
        Ok(file)
    }

    /// The same with a name that other programs can open. The file is removed when this is dropped.
    /// `room` bytes must be free.
    pub(crate) fn create_named(
        dir: &Path,
        name: &str,
        len: u64,
        room: u64,
    ) -> Result<Self, Failure> {
        let fail = |error: io::Error| {
            Failure::new(
                FAILED,
                format!("{}: no file can be created there: {error}", dir.display()),
                "choose another folder: --dir DIR",
            )
        };
        let path = dir.join(name);
        let mut options = OpenOptions::new();
        let buffer = options.read(true).write(true).create_new(true).open(&path).map_err(fail)?;
        let name = Name(path);
        // A block is there while the file's abilities are tried.
        buffer.write_all_at(&[0; 4096], 0).map_err(fail)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32);
        let direct = options.open(&name.0).map_err(|error| os(&error));
        let facts = probe::file(&name.0)?;
        let space = rustix::fs::fstatvfs(&buffer).map_err(|errno| fail(errno.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < room {
            return Err(Failure::new(
                FAILED,
                format!(
                    "{}: {} do not fit, {} are free",
                    dir.display(),
                    show_size(room),
                    show_size(free)
                ),
                "choose another folder, --dir DIR, or smaller sizes",
            ));
        }
        Ok(Self { name: Some(name), buffer, direct, len, facts })
    }

    /// Writes the content to the disk.
    pub(crate) fn write(&self, content: &impl Content) -> Result<(), Failure> {
        let fail = |error: io::Error| {
            Failure::new(
                FAILED,
                format!("the file cannot be written: {error}"),
                "choose another folder, --dir DIR, or smaller sizes",
            )
        };
        let bar = Bar::new("writing the file");
        let mut bytes = vec![0; PIECE as usize];
        for (at, len) in pieces(self.len) {
            Failure::if_interrupted()?;
            content.fill(&mut bytes[..len], at);
            self.buffer.write_all_at(&bytes[..len], at).map_err(fail)?;
            bar.update(at + len as u64, self.len);
        }
        self.buffer.sync_all().map_err(fail)?;
        bar.finish();
        Ok(())
    }

    /// Compares the first `len` bytes on the disk.
    pub(crate) fn check(&self, pattern: Pattern, len: u64) -> Result<Result<(), Difference>, Os> {
        self.forget();
        let mut bytes = vec![0; PIECE as usize];
        for (at, len) in pieces(len) {
            let bytes = &mut bytes[..len];
            self.buffer.read_exact_at(bytes, at).map_err(|error| os(&error))?;
            if let Err(difference) = pattern.check(bytes, at) {
                return Ok(Err(difference));
            }
        }
        Ok(Ok(()))
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
        // That it worked is seen in `cached`.
        let _ = fadvise(&self.buffer, 0, None, Advice::DontNeed);
    }

    /// Bytes of the file in the page cache, if known.
    pub(crate) fn cached(&self) -> Option<u64> {
        let stat = cachestat(self.buffer.as_fd(), 0, 0).ok()?;
        Some(stat.cached * rustix::param::page_size() as u64)
    }

    /// Its name, if it has one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.name.as_ref().map(Name::path)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The type of its file system.
    pub(crate) fn facts(&self) -> &FileFacts {
        &self.facts
    }

    /// The device that contains it, as `major:minor`.
    pub(crate) fn device(&self) -> Option<(u32, u32)> {
        let device = rustix::fs::fstat(&self.buffer).ok()?.st_dev;
        Some((rustix::fs::major(device), rustix::fs::minor(device)))
    }
}

/// Why a file is not open with `O_DIRECT`.
pub(crate) fn no_direct(errno: Os) -> Trouble {
    let why = "this file system does not support it; choose another: --dir DIR";
    Trouble::unavailable("open with O_DIRECT", errno, why)
}

fn pieces(len: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..len).step_by(PIECE as usize).map(move |at| (at, PIECE.min(len - at) as usize))
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

    /// A description for the result.
    pub(crate) fn how(self) -> &'static str {
        if self.all {
            "POSIX_FADV_DONTNEED and /proc/sys/vm/drop_caches"
        } else {
            "POSIX_FADV_DONTNEED on the file"
        }
    }
}

#[cfg(test)]
impl DiskFile {
    /// Modifies a byte.
    pub(crate) fn damage(&self, at: u64) {
        let mut byte = [0];
        self.buffer.read_exact_at(&mut byte, at).expect("read");
        self.buffer.write_all_at(&[!byte[0]], at).expect("write");
        self.buffer.sync_all().expect("sync");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_file_leaves_no_name_and_reports_differences() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = DiskFile::create(folder.path(), 3 << 20).expect("a file");
        assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0);
        file.write(&Pattern::new(1)).expect("written");
        assert_eq!(file.check(Pattern::new(1), 3 << 20), Ok(Ok(())));
        assert!(file.check(Pattern::new(2), 3 << 20).expect("read").is_err());
        file.damage((1 << 20) + 5);
        let difference =
            file.check(Pattern::new(1), 3 << 20).expect("read").expect_err("a difference");
        assert_eq!(difference.at, (1 << 20) + 5);
    }

    #[test]
    fn named_disk_file_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = DiskFile::create_named(folder.path(), "name", 4096, 4096).expect("a file");
        file.write(&Pattern::new(1)).expect("written");
        assert_eq!(
            std::fs::metadata(file.path().expect("a name")).expect("it is there").len(),
            4096
        );
        drop(file);
        assert!(DiskFile::create_named(folder.path(), "large", 4096, 1 << 60).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0);
    }

    #[test]
    fn disk_file_too_large_fails_at_creation() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(DiskFile::create(folder.path(), 1 << 60).is_err());
        assert!(DiskFile::create(&folder.path().join("missing"), 4096).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0);
    }
}
