// SPDX-License-Identifier: MIT OR Apache-2.0
//! The target of a save: a new file that replaces the old one when complete, or a file written in
//! place.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    self, Advice, AtFlags, FallocateFlags, FileType, Mode, OFlags, Timespec, Timestamps,
};
use rustix::io::Errno as Os;

use crate::direction::Direction;
use crate::errno::IntoErrno;
use crate::error::{DURABLE_NAME, Error, Result};
use crate::fd::FileSystem;
use crate::file;
use crate::file::{File, Spec};
use crate::memory::page::page_size;

/// The file that a save writes.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) file: File,
    replace: Option<Replace>,
}

/// A file that will replace another one.
#[derive(Debug)]
struct Replace {
    path: PathBuf,
    /// Its temporary name. `linked` says whether the file already has it: a file created with
    /// `O_TMPFILE` (which needs file system support and `/proc`) has no name, so not even `SIGKILL`
    /// can leave it behind.
    partial: PathBuf,
    linked: Cell<bool>,
    /// Whether there was no file of that path.
    is_new: bool,
}

impl Target {
    /// Opens the target of a save. A path that names a regular file or nothing is replaced; for a
    /// symbolic link, its target is, if that exists. Block devices and descriptors are written in
    /// place.
    pub(crate) fn open(spec: &Spec<'_>, direct: bool, length: u64) -> Result<Self> {
        if let Spec::Path(path) = spec {
            let error =
                |errno| Error::Open { path: path.clone(), direction: Direction::Save, errno };
            match fs::stat(path) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                    let path = std::fs::canonicalize(path).map_err(|none| error((&none).into()))?;
                    return Self::create(&path, Some(stat.st_mode), direct, length);
                }
                Err(Os::NOENT) => {
                    if let Ok(leads_to) = std::fs::read_link(path) {
                        return Err(Error::DanglingLink { path: path.clone(), leads_to });
                    }
                    return Self::create(path, None, direct, length);
                }
                Ok(stat) => file::check_type(path, FileType::from_raw_mode(stat.st_mode))?,
                Err(errno) => return Err(error(errno.into_errno())),
            }
        }
        Ok(Self { file: File::open(spec, Direction::Save, direct)?, replace: None })
    }

    fn create(path: &Path, mode: Option<u32>, direct: bool, length: u64) -> Result<Self> {
        let step = |step| move |errno| failed(path, step, errno);
        file::check_size(length).map_err(step("make it as long as the buffer"))?;
        let (folder, partial) =
            beside(path).ok_or(Os::ISDIR).map_err(step("create a file of that name"))?;
        // A replacement gets the old file's permissions before it has content.
        let create = Mode::from_raw_mode(if mode.is_some() { 0o600 } else { 0o666 });
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let (fd, linked) = match fs::open(&folder, unnamed, create) {
            // The file is named through /proc.
            Ok(fd) if fs::stat(in_proc(&fd)).is_ok() => (fd, false),
            Ok(_) | Err(Os::OPNOTSUPP | Os::ISDIR | Os::INVAL) => {
                let named = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
                let fd = fs::open(&partial, named, create);
                (fd.map_err(step("create a file next to it"))?, true)
            }
            Err(errno) => return Err(step("create a file next to it")(errno)),
        };
        let (path_of, linked, is_new) = (path.to_owned(), Cell::new(linked), mode.is_none());
        let replace = Some(Replace { path: path_of, partial, linked, is_new });
        let target =
            Self { file: File::from_owned(path.to_owned(), fd, Direction::Save, direct)?, replace };
        if let Some(mode) = mode {
            // Without setuid and the like: the content is new.
            let _ = fs::fchmod(target.file.fd(), Mode::from_raw_mode(mode & 0o777));
        }
        match fs::fallocate(target.file.fd(), FallocateFlags::empty(), 0, length) {
            Ok(()) | Err(Os::OPNOTSUPP | Os::NOSYS | Os::INVAL) => Ok(target),
            Err(errno) => Err(step("reserve space for it")(errno)),
        }
    }

    /// Whether a path is replaced, rather than a file written in place.
    pub(crate) fn replaces(&self) -> bool {
        self.replace.is_some()
    }

    /// Makes the content durable, and gives the file its length.
    pub(crate) fn make_durable(&self, offset: u64, length: u64) -> Result<()> {
        if self.replaces() {
            fs::ftruncate(self.file.fd(), length)
                .map_err(|errno| failed(&self.file.path, "set its length", errno))?;
        }
        self.touch_on_f2fs();
        rustix::io::retry_on_intr(|| fs::fdatasync(self.file.fd()))
            .map_err(|errno| failed(&self.file.path, "make it durable", errno))?;
        if self.file.is_direct() {
            // The partial blocks at the edges went through the page cache, which does not need them
            // any more.
            for edge in [offset, offset + length] {
                let start = edge / page_size() * page_size();
                let len = NonZeroU64::new(page_size());
                let _ = fs::fadvise(self.file.fd(), start, len, Advice::DontNeed);
            }
        }
        Ok(())
    }

    /// Without another change f2fs does not flush the disk after direct writes that were asynchronous: only
    /// those that it waited for set `FI_UPDATE_WRITE` (`f2fs_dio_write_iter()` up to Linux 7.3).
    fn touch_on_f2fs(&self) {
        if self.file.system == FileSystem::F2fs {
            let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
            let times = Timestamps {
                last_access: time(fs::UTIME_OMIT),
                last_modification: time(fs::UTIME_NOW),
            };
            let _ = fs::futimens(self.file.fd(), &times);
        }
    }

    /// Closes the file and gives it its final name, durably.
    pub(crate) fn commit(self) -> Result<()> {
        self.commit_by(|from, to| fs::rename(from, to))
    }

    fn commit_by(self, rename: impl FnOnce(&Path, &Path) -> rustix::io::Result<()>) -> Result<()> {
        let Self { file, replace } = self;
        let Some(replace) = replace else { return Ok(()) };
        let Replace { path, partial, linked, is_new } = &replace;
        let step = |step| move |errno| failed(path, step, errno);
        if !linked.get() {
            fs::linkat(fs::CWD, in_proc(&file.fd()), fs::CWD, partial, AtFlags::SYMLINK_FOLLOW)
                .map_err(step("name the finished file"))?;
            linked.set(true);
            // btrfs of Linux 6.12 logs no file without a name, and then, with its folder, one of length 0.
            rustix::io::retry_on_intr(|| fs::fdatasync(file.fd()))
                .map_err(step("make it durable"))?;
        }
        // An SMB server may refuse to rename a file that is open. Linux then removes the file of the
        // new name and tries again (cifs_rename2() in fs/smb/client/inode.c).
        drop(file);
        match rename(partial, path) {
            Ok(()) => linked.set(false),
            Err(errno) if !is_new && fs::stat(path).is_err() => {
                linked.set(false);
                let (path, kept, errno) = (path.clone(), partial.clone(), errno.into_errno());
                return Err(Error::OldFileGone { path, kept, errno });
            }
            Err(errno) => return Err(failed(path, "rename the finished file to it", errno)),
        }
        sync_folder(path).map_err(step(DURABLE_NAME))
    }
}

fn failed(path: &Path, step: &'static str, errno: Os) -> Error {
    Error::Target { path: path.to_owned(), step, errno: errno.into_errno() }
}

/// The `/proc` path of an unnamed open file.
fn in_proc(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Makes a file's name durable, if the file system supports it and this user may.
fn sync_folder(path: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = fs::open(folder_of(path), flags, Mode::empty()) else { return Ok(()) };
    match rustix::io::retry_on_intr(|| fs::fsync(&folder)) {
        Err(Os::INVAL | Os::OPNOTSUPP | Os::NOSYS | Os::ACCESS | Os::PERM) => Ok(()),
        result => result,
    }
}

impl Drop for Replace {
    fn drop(&mut self) {
        if self.linked.get() {
            let _ = fs::unlink(&self.partial);
        }
    }
}

/// The folder of a path, and the temporary name of the new file in it. The name is random because
/// processes of other containers and hosts may have the same PID. `None` if the path ends with a
/// slash or dots and can only be a folder.
fn beside(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let name = path.file_name()?;
    if !path.as_os_str().as_bytes().ends_with(name.as_bytes()) {
        return None;
    }
    let folder = folder_of(path).to_owned();
    // The keys of hash maps are the standard library's source of randomness.
    let random = RandomState::new().hash_one(std::process::id());
    let name = format!(".dmabuf-dio-partial-{random:016x}");
    Some((folder.clone(), folder.join(name)))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_file_is_beside_the_target() {
        let names: Vec<_> = (0..2).map(|_| beside(Path::new("a/b.bin")).expect("a name")).collect();
        assert_eq!(names[0].0, Path::new("a"));
        assert_ne!(names[0].1, names[1].1);
        let name = names[0].1.to_str().expect("text");
        assert!(name.starts_with("a/.dmabuf-dio-partial-"), "{name}");
        assert_eq!(beside(Path::new("b")).expect("a name").0, Path::new("."));
        for folder in ["/", "..", "a/", "a//", "a/.", "a/..", "a/a/"] {
            assert!(beside(Path::new(folder)).is_none(), "{folder}");
        }
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

    /// SMB replaces files in this way: see `commit`.
    #[test]
    fn finished_file_is_kept_when_the_old_one_is_gone() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("file");
        let refused = |from: &Path, to: &Path| {
            assert_eq!(std::fs::metadata(from).expect("it has a name").len(), 5);
            let open = std::fs::read_dir("/proc/self/fd").expect("list");
            let open = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
            assert!(open.into_iter().all(|open| !open.starts_with(folder.path())), "it is closed");
            let _ = std::fs::remove_file(to);
            Err(Os::ACCESS)
        };
        let finished = || {
            let target = Target::open(&Spec::Path(path.clone()), false, 4096).expect("open");
            rustix::io::write(target.file.fd(), b"after").expect("write");
            target.make_durable(0, 5).expect("durable");
            target
        };
        std::fs::write(&path, "before").expect("write");
        let error = finished().commit_by(refused).expect_err("refused");
        let Error::OldFileGone { path: found, kept, errno } = &error else { panic!("{error}") };
        assert_eq!((found, errno.raw()), (&path, libc::EACCES));
        assert_eq!(std::fs::read(kept).expect("read"), b"after");
        std::fs::remove_file(kept).expect("remove");

        // Nothing is lost if there was no file, or if it is still there.
        let error = finished().commit_by(refused).expect_err("refused");
        assert!(matches!(error, Error::Target { .. }), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0);
        std::fs::write(&path, "before").expect("write");
        let error = finished().commit_by(|_, _| Err(Os::ACCESS)).expect_err("refused");
        assert!(matches!(error, Error::Target { .. }), "{error}");
        assert_eq!(std::fs::read(&path).expect("read"), b"before");
        assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1);
    }

    #[test]
    fn new_file_does_not_inherit_setuid() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("file");
        for (before, after) in [(0o4755, 0o755), (0o2640, 0o640), (0o600, 0o600)] {
            std::fs::write(&path, "before").expect("write");
            let permissions = std::fs::Permissions::from_mode(before);
            std::fs::set_permissions(&path, permissions).expect("chmod");
            let target = Target::open(&Spec::Path(path.clone()), false, 4096).expect("open");
            target.make_durable(0, 4096).expect("durable");
            target.commit().expect("commit");
            let found = std::fs::metadata(&path).expect("stat").permissions().mode();
            assert_eq!(found & 0o7777, after);
        }
    }
}
