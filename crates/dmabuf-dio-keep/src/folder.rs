// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder on a tmpfs that kept files are in.
//!
//! Its visible entries are what is kept. `.dmabuf-dio` has, by the same names: in `lock` the locks, in
//! `source` the records, and in `new` and `write` what is about to replace another entry. Everything else
//! that is not complete has no name, so that the kernel frees it if this process is killed.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Where the system's kept files are, for all users.
pub const SYSTEM: &str = "/run/dmabuf-dio";
/// A variable that names another folder.
pub const VARIABLE: &str = "DMABUF_DIO_KEEP";

/// The folder of what is not kept itself.
const OWN: &str = ".dmabuf-dio";
const TMPFS: u32 = 0x0102_1994;

/// The folders that are searched for a name, in this order: the one that `DMABUF_DIO_KEEP` names, or the
/// user's own, `$XDG_RUNTIME_DIR/dmabuf-dio`, and the system's, [`SYSTEM`]. The first is where files are kept.
pub fn folders() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return vec![named.into()];
    }
    let user = rustix::process::geteuid();
    // What root keeps is for all, also if a variable of another user is still set.
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !user.is_root()).map(PathBuf::from);
    let own = own.filter(|path| {
        let stat = rustix::fs::stat(path);
        path.is_absolute() && stat.is_ok_and(|stat| stat.st_uid == user.as_raw())
    });
    own.map(|path| path.join("dmabuf-dio")).into_iter().chain([SYSTEM.into()]).collect()
}

/// An open folder of kept files.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    fd: OwnedFd,
}

/// The folders in [`OWN`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Lock,
    Source,
    New,
    Write,
}

impl Part {
    const ALL: [Self; 4] = [Self::Lock, Self::Source, Self::New, Self::Write];

    fn path(self) -> PathBuf {
        Path::new(OWN).join(match self {
            Self::Lock => "lock",
            Self::Source => "source",
            Self::New => "new",
            Self::Write => "write",
        })
    }

    /// The place of an entry.
    pub(crate) fn place(self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

impl Folder {
    /// Opens a folder to keep files in, and creates it if its parent exists.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let path = &std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let is_new = match fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(Error::Io { path: path.clone(), step: "create it", error }),
        };
        let folder = Self::open(path)?;
        if is_new {
            folder.chmod(0o755)?;
        }
        if let Err(error) = folder.check() {
            if is_new {
                let _ = fs::remove_dir(path);
            }
            return Err(error);
        }
        for part in [PathBuf::from(OWN)].into_iter().chain(Part::ALL.map(Part::path)) {
            if folder.stat(&part)?.is_some() {
                continue;
            }
            match folder.mkdir(&part, 0o755) {
                // Another process was faster.
                Err(Error::Io { error, .. }) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        Ok(folder)
    }

    /// Opens a folder to look at what is kept there.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { path: path.to_owned(), fd }),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                Err(refused(path, "it is not a folder, or a link".into(), "name the folder itself"))
            }
            Err(errno) => {
                Err(Error::Io { path: path.to_owned(), step: "open it", error: errno.into() })
            }
        }
    }

    /// Fails if files cannot be kept there, or if others could put their own in their place.
    fn check(&self) -> Result<()> {
        let fail = |errno: Errno| self.failed(Path::new(""), "look at it", errno);
        if rustix::fs::fstatfs(&self.fd).map_err(fail)?.f_type as u32 != TMPFS {
            return Err(refused(
                &self.path,
                "it is not on a tmpfs, so that they would be on a disk".into(),
                "name a folder on a tmpfs (--dir), or mount one there: mount -t tmpfs",
            ));
        }
        let stat = rustix::fs::fstat(&self.fd).map_err(fail)?;
        let user = rustix::process::geteuid().as_raw();
        if stat.st_uid != user {
            return Err(refused(
                &self.path,
                format!("it belongs to user {}", stat.st_uid),
                "name a folder of your own: --dir",
            ));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(refused(
                &self.path,
                "others may write it, and could replace what is kept".into(),
                "create a folder in it and name that, or take away the right: chmod go-w",
            ));
        }
        Ok(())
    }

    fn chmod(&self, mode: u32) -> Result<()> {
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(mode))
            .map_err(|errno| self.failed(Path::new(""), "set its mode", errno))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of an entry.
    pub(crate) fn at(&self, place: impl AsRef<Path>) -> PathBuf {
        self.path.join(place)
    }

    fn failed(&self, place: &Path, step: &'static str, errno: Errno) -> Error {
        Error::Io { path: self.at(place), step, error: errno.into() }
    }

    /// Bytes and files that are free on the tmpfs; `None` where it has no limit.
    pub(crate) fn free(&self) -> (Option<u64>, Option<u64>) {
        let Ok(found) = rustix::fs::fstatvfs(&self.fd) else { return (None, None) };
        let bytes = found.f_bavail.saturating_mul(found.f_frsize);
        ((found.f_blocks > 0).then_some(bytes), (found.f_files > 0).then_some(found.f_favail))
    }

    /// A new file without a name, which is freed with its last descriptor.
    pub(crate) fn nameless(&self) -> Result<OwnedFd> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, ".", flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| self.failed(Path::new(""), "create a file in it", errno))
    }

    /// Opens a file for reading; a link is not followed.
    pub(crate) fn read(&self, place: impl AsRef<Path>) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::openat(&self.fd, place.as_ref(), flags, Mode::empty())
            .map_err(|errno| self.failed(place.as_ref(), "open it", errno))
    }

    /// Opens a file for a lock, and creates it if it is missing.
    pub(crate) fn lock_file(&self, place: &Path) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, place, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| self.failed(place, "open it", errno))
    }

    /// What an entry is; `None` if there is none. A link is not followed.
    pub(crate) fn stat(&self, place: impl AsRef<Path>) -> Result<Option<Stat>> {
        match rustix::fs::statat(&self.fd, place.as_ref(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(self.failed(place.as_ref(), "look at it", errno)),
        }
    }

    /// Gives a file a name that is free. Returns whether it was.
    pub(crate) fn link(&self, file: &OwnedFd, place: &Path) -> Result<bool> {
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let linked = rustix::fs::linkat(CWD, own, &self.fd, place, AtFlags::SYMLINK_FOLLOW);
        // Without /proc
        let linked = linked.or_else(|errno| match errno {
            Errno::NOENT => rustix::fs::linkat(file, "", &self.fd, place, AtFlags::EMPTY_PATH),
            errno => Err(errno),
        });
        match linked {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(self.failed(place, "name it", errno)),
        }
    }

    /// Creates a folder.
    pub(crate) fn mkdir(&self, place: &Path, mode: u32) -> Result<()> {
        rustix::fs::mkdirat(&self.fd, place, Mode::from_raw_mode(0o700))
            .and_then(|()| {
                rustix::fs::chmodat(&self.fd, place, Mode::from_raw_mode(mode), AtFlags::empty())
            })
            .map_err(|errno| self.failed(place, "create it", errno))
    }

    /// Puts the entry `new` in the place of another, at once. If one of them is a folder, they are exchanged.
    pub(crate) fn replace(&self, new: &Path, old: &Path) -> Result<()> {
        let is_folder = |stat: &Stat| FileType::from_raw_mode(stat.st_mode).is_dir();
        let (first, second) = (self.stat(new)?, self.stat(old)?);
        let exchange =
            second.is_some_and(|old| is_folder(&old) || first.is_some_and(|new| is_folder(&new)));
        let flags = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
        rustix::fs::renameat_with(&self.fd, new, &self.fd, old, flags)
            .map_err(|errno| self.failed(old, "replace it", errno))?;
        if exchange { self.remove(new) } else { Ok(()) }
    }

    /// Removes a file, or a folder with what is in it. There may be none.
    pub(crate) fn remove(&self, place: &Path) -> Result<()> {
        remove_all(self.fd.as_fd(), place).map_err(|errno| self.failed(place, "remove it", errno))
    }

    /// The names of the entries of a part, or of what is kept.
    pub(crate) fn names(&self, part: Option<Part>) -> Result<Vec<String>> {
        let place = part.map_or_else(|| PathBuf::from("."), Part::path);
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let list = match rustix::fs::openat(&self.fd, &place, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened.and_then(Dir::new),
        };
        let list = list.map_err(|errno| self.failed(&place, "list it", errno))?;
        let names =
            list.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        Ok(names)
    }

    /// Whether a file still is the entry at a place.
    pub(crate) fn is_at(&self, file: &OwnedFd, place: &Path) -> bool {
        let (Ok(own), Ok(Some(there))) = (rustix::fs::fstat(file.as_fd()), self.stat(place)) else {
            return false;
        };
        (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)
    }
}

/// Removes an entry of a folder, and what is in it. Links are not followed. There may be none.
fn remove_all(folder: BorrowedFd<'_>, place: &Path) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(folder, place, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        done => return done,
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(folder, place, flags, Mode::empty())?;
    let entries = Dir::read_from(&inner)?.collect::<Result<Vec<_>, _>>()?;
    for name in entries.iter().map(|entry| entry.file_name().to_bytes()) {
        if !matches!(name, b"." | b"..") {
            remove_all(inner.as_fd(), Path::new(OsStr::from_bytes(name)))?;
        }
    }
    rustix::fs::unlinkat(folder, place, AtFlags::REMOVEDIR)
}

fn refused(folder: &Path, what: String, remedy: &'static str) -> Error {
    Error::Folder { folder: folder.to_owned(), what, remedy }
}
