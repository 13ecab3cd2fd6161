// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a save goes: a new file that takes the target's place when it is complete, or in place.

use std::cell::Cell;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{self, Advice, AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno as Os;

use crate::error::{Direction, Error, Result};
use crate::file::{self, File, Spec};
use crate::memory::page_size;

/// The file that a save writes.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) file: File,
    replace: Option<Replace>,
}

/// A file that is to take another's place.
#[derive(Debug)]
struct Replace {
    path: PathBuf,
    /// The name it has until then. `linked` says whether it has it already: a file made with
    /// `O_TMPFILE` has no name, and so cannot be left behind even by `SIGKILL`.
    partial: PathBuf,
    linked: Cell<bool>,
}

impl Target {
    /// Opens the target of a save. A path that names nothing or a regular file will be replaced;
    /// block devices and descriptors are written in place.
    pub(crate) fn open(spec: &Spec<'_>, direct: bool, length: u64) -> Result<Self> {
        if let Spec::Path(path) = spec {
            match fs::stat(path) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                    return Self::create(&path, Some(stat.st_mode), direct, length);
                }
                Err(Os::NOENT) => return Self::create(path, None, direct, length),
                Ok(stat) => file::check_type(path, FileType::from_raw_mode(stat.st_mode))?,
                Err(errno) => {
                    let direction = Direction::Save;
                    return Err(Error::Open { path: path.clone(), direction, errno: errno.into() });
                }
            }
        }
        Ok(Self { file: File::open(spec, Direction::Save, direct)?, replace: None })
    }

    fn create(path: &Path, mode: Option<u32>, direct: bool, length: u64) -> Result<Self> {
        let step = |step: &'static str| {
            let path = path.to_owned();
            move |errno: Os| Error::Target { path, step, errno: errno.into() }
        };
        let (folder, partial) = beside(path).ok_or(Os::ISDIR).map_err(step("create it"))?;
        let create = Mode::from_raw_mode(0o666);
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let (fd, linked) = match fs::open(&folder, unnamed, create) {
            Ok(fd) => (fd, false),
            Err(Os::OPNOTSUPP | Os::ISDIR | Os::INVAL) => {
                (Self::create_named(&partial).map_err(step("create a file beside it"))?, true)
            }
            Err(errno) => return Err(step("create a file beside it")(errno)),
        };
        let replace = Some(Replace { path: path.to_owned(), partial, linked: Cell::new(linked) });
        let target =
            Self { file: File::from_owned(path.to_owned(), fd, Direction::Save, direct)?, replace };
        if let Some(mode) = mode {
            let _ = fs::fchmod(target.file.fd(), Mode::from_raw_mode(mode & 0o7777));
        }
        match fs::fallocate(target.file.fd(), FallocateFlags::empty(), 0, length) {
            Ok(()) | Err(Os::OPNOTSUPP | Os::NOSYS | Os::INVAL) => Ok(target),
            Err(errno) => Err(step("reserve space for it")(errno)),
        }
    }

    fn create_named(partial: &Path) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        match fs::open(partial, flags, mode) {
            Err(Os::EXIST) => {
                // Left by a process that had our number and was killed.
                fs::unlink(partial)?;
                fs::open(partial, flags, mode)
            }
            result => result,
        }
    }

    /// Whether a path is being replaced, rather than a file written in place.
    pub(crate) fn replaces(&self) -> bool {
        self.replace.is_some()
    }

    /// Makes the content durable and puts the file in its place.
    pub(crate) fn commit(&self, offset: u64, length: u64) -> Result<()> {
        let path = self.file.path.clone();
        let step = |step: &'static str| {
            let path = path.clone();
            move |errno: Os| Error::Target { path, step, errno: errno.into() }
        };
        if self.replaces() {
            fs::ftruncate(self.file.fd(), length).map_err(step("set the length of it"))?;
        }
        fs::fdatasync(self.file.fd()).map_err(step("make it durable"))?;
        if self.file.is_direct() {
            // Less than a block at either edge went through the page cache: it is not needed there.
            for edge in [offset, offset + length] {
                let start = edge / page_size() * page_size();
                let len = NonZeroU64::new(page_size());
                let _ = fs::fadvise(self.file.fd(), start, len, Advice::DontNeed);
            }
        }
        let Some(replace) = &self.replace else { return Ok(()) };
        if !replace.linked.get() {
            let fd = format!("/proc/self/fd/{}", self.file.fd().as_raw_fd());
            let link =
                || fs::linkat(fs::CWD, &*fd, fs::CWD, &replace.partial, AtFlags::SYMLINK_FOLLOW);
            match link() {
                Err(Os::EXIST) => fs::unlink(&replace.partial).and_then(|()| link()),
                result => result,
            }
            .map_err(step("name the finished file"))?;
            replace.linked.set(true);
        }
        fs::rename(&replace.partial, &replace.path)
            .map_err(step("rename the finished file to it"))?;
        replace.linked.set(false);
        Ok(())
    }
}

impl Drop for Replace {
    fn drop(&mut self) {
        if self.linked.get() {
            let _ = fs::unlink(&self.partial);
        }
    }
}

/// Tells the saves of one process apart.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The folder of a path, and the name that the new file has in it until it is complete.
fn beside(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".partial-{}-{count}", std::process::id()));
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    Some((folder.clone(), folder.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_name_lies_beside() {
        let (folder, partial) = beside(Path::new("a/b.bin")).expect("a name");
        assert_eq!(folder, Path::new("a"));
        let name = format!("a/.b.bin.partial-{}-", std::process::id());
        assert!(partial.to_str().expect("text").starts_with(&name), "{}", partial.display());
        assert_eq!(beside(Path::new("b")).expect("a name").0, Path::new("."));
        assert!(beside(Path::new("/")).is_none());
    }

    #[test]
    fn dropped_target_leaves_nothing() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "before").expect("write");
        let target = Target::open(&Spec::Path(path.clone()), false, 4096).expect("open");
        assert!(target.replaces());
        drop(target);
        assert_eq!(std::fs::read(&path).expect("read"), b"before");
        assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1);
    }
}
