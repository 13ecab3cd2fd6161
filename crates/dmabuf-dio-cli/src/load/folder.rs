// SPDX-License-Identifier: MIT OR Apache-2.0
//! The private folder of links through which a command opens its files.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use dmabuf_dio_terminal::exit::{FAILED, Failure, say};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::{Errno as Os, FdFlags};

const PREFIX: &str = "dmabuf-dio-path-";
/// The link that distinguishes such a folder from others with the same prefix.
pub(crate) const MARK: &str = ".dmabuf-dio-links";

/// A folder that only this user can enter. Dropping it removes it.
///
/// It is locked as long as this process or its command runs. If this process was killed and the
/// command has ended, the lock is gone, and the next such process removes the folder.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Held; the kernel unlocks it once no process has it open.
    lock: OwnedFd,
}

impl Folder {
    /// Creates an empty folder, and removes the folders of killed processes.
    pub(crate) fn create() -> Result<Self, Failure> {
        let parent = parent();
        remove_stale(&parent);
        Self::create_in(&parent).map_err(|error| {
            Failure::new(
                FAILED,
                format!("{}: cannot create a folder for links: {error}", parent.display()),
                match error.raw_os_error() {
                    Some(libc::EPERM | libc::ENOSYS) => {
                        "allow the system calls mkdir, flock and symlink, for example in the seccomp profile of the \
                         container, or name another folder: TMPDIR=FOLDER, and unset XDG_RUNTIME_DIR"
                    }
                    _ => "name another folder: TMPDIR=FOLDER, and unset XDG_RUNTIME_DIR",
                },
            )
        })
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        loop {
            let mut builder = tempfile::Builder::new();
            let builder = builder.prefix(PREFIX).permissions(Permissions::from_mode(0o700));
            let path = builder.tempdir_in(parent)?.keep();
            // Until it is locked, another process may remove it.
            let lock = match open(&path) {
                Err(Os::NOENT) if parent.exists() => continue,
                lock => lock?,
            };
            rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
            if is_same(&path, &lock) {
                symlink("by-path", path.join(MARK))?;
                return Ok(Self { path, lock });
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the next command inherit the lock, so that its links stay if this process is killed.
    pub(crate) fn outlive(&self) -> rustix::io::Result<()> {
        rustix::io::fcntl_setfd(&self.lock, FdFlags::empty())
    }

    /// Creates a folder in it.
    pub(crate) fn folder(&self, place: &Path) -> Result<(), Failure> {
        let path = self.path.join(place);
        fs::create_dir(&path).map_err(|error| cannot(&path, &error))?;
        let private = Permissions::from_mode(0o700);
        fs::set_permissions(&path, private).map_err(|error| cannot(&path, &error))
    }

    /// Creates a link in it.
    pub(crate) fn link(&self, target: &Path, place: &Path) -> Result<(), Failure> {
        let path = self.path.join(place);
        symlink(target, &path).map_err(|error| cannot(&path, &error))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if remove(&self.path) {
            return;
        }
        // Links also remain if the folder cannot be listed.
        let listed = fs::read_dir(&self.path).and_then(|mut list| list.next().transpose());
        if let Err(error) = listed {
            say(&format!(
                "dmabuf-dio: {0}: cannot remove its links: {error}\n            remove the folder: rm -r {0}",
                self.path.display()
            ));
        } else {
            say(&format!(
                "dmabuf-dio: COMMAND has written files into {0}\n            \
                 they were kept: move them elsewhere, then: rm -r {0}",
                self.path.display()
            ));
        }
    }
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    let what = format!("{}: cannot create it: {error}", path.display());
    Failure::new(FAILED, what, "free space there, or name another folder: TMPDIR=FOLDER")
}

/// The parent of private folders: the user's own temporary folder in memory, or another temporary
/// folder.
fn parent() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| {
        let us = rustix::process::geteuid().as_raw();
        let is_own = fs::metadata(path).is_ok_and(|stat| stat.is_dir() && stat.uid() == us);
        path.is_absolute() && is_own
    });
    let temporary = std::env::var_os("TMPDIR").filter(|path| !path.is_empty());
    let parent = own.or_else(|| temporary.map(PathBuf::from)).unwrap_or_else(|| "/tmp".into());
    std::path::absolute(&parent).unwrap_or(parent)
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

fn is_same(path: &Path, fd: &OwnedFd) -> bool {
    let (Ok(ours), Ok(there)) = (rustix::fs::fstat(fd), fs::symlink_metadata(path)) else {
        return false;
    };
    (ours.st_dev, ours.st_ino) == (there.dev(), there.ino())
}

/// Removes the private folders of this user whose processes and commands are gone.
fn remove_stale(parent: &Path) {
    let us = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = open(&path) else { continue };
        let is_ours = rustix::fs::fstat(&lock).is_ok_and(|stat| stat.st_uid == us);
        if is_ours && rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove(&path);
        }
    }
}

/// Removes a private folder, but no file in it. Returns whether the folder is gone.
fn remove(path: &Path) -> bool {
    if fs::symlink_metadata(path.join(MARK)).is_ok() {
        remove_links(path);
    }
    fs::remove_dir(path).is_ok()
}

/// Removes the links in a folder, and the folders in it that are empty then.
fn remove_links(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_symlink() => {
                let _ = fs::remove_file(entry.path());
            }
            Ok(kind) if kind.is_dir() => {
                remove_links(&entry.path());
                let _ = fs::remove_dir(entry.path());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(folder: &Folder) {
        folder.folder(Path::new("model")).expect("a folder");
        folder.link(Path::new("/proc/1/fd/9"), Path::new("model/a")).expect("a link");
        folder.link(Path::new("/etc"), Path::new("model/etc")).expect("a link");
    }

    #[test]
    fn folder_is_private_and_removed_on_drop() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = Folder::create_in(parent.path()).expect("a folder");
        let mode = |path: &Path| fs::metadata(path).expect("stat").permissions().mode() & 0o777;
        fill(&folder);
        let path = folder.path().to_owned();
        assert_eq!((mode(&path), mode(&path.join("model"))), (0o700, 0o700));
        drop(folder);
        assert!(!path.exists() && Path::new("/etc/passwd").exists());
    }

    #[test]
    fn kept_folder_keeps_its_files() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = Folder::create_in(parent.path()).expect("a folder");
        fill(&folder);
        let path = folder.path().to_owned();
        fs::write(path.join("model/result"), "result").expect("write");
        drop(folder);
        assert_eq!(fs::read(path.join("model/result")).expect("kept"), b"result");
        assert!(fs::symlink_metadata(path.join("model/a")).is_err());
        // From then on it is somebody else's.
        symlink("x", path.join("link")).expect("a link");
        remove_stale(parent.path());
        assert!(fs::symlink_metadata(path.join("link")).is_ok());
    }

    #[test]
    fn only_stale_folders_are_removed() {
        let parent = tempfile::tempdir().expect("a folder");
        let held = Folder::create_in(parent.path()).expect("a folder");
        fill(&held);
        let left = Folder::create_in(parent.path()).expect("a folder");
        fill(&left);
        let path = left.path().to_owned();
        // The kernel would unlock it in the same way if its process were killed.
        rustix::fs::flock(&left.lock, FlockOperation::Unlock).expect("unlock");
        std::mem::forget(left);
        let other = parent.path().join(format!("{PREFIX}other"));
        fs::create_dir(&other).expect("a folder");
        symlink("x", other.join("link")).expect("a link");
        remove_stale(parent.path());
        assert!(!path.exists());
        assert!(fs::symlink_metadata(held.path().join("model/a")).is_ok());
        assert!(fs::symlink_metadata(other.join("link")).is_ok());
    }

    #[test]
    fn concurrent_cleanup_never_fails_creation() {
        let parent = tempfile::tempdir().expect("a folder");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    remove_stale(parent.path());
                }
            });
            let failed = (0..2000).find_map(|_| Folder::create_in(parent.path()).err());
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
    }
}
