// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries on file descriptors.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};

/// Whether a descriptor is a dma-buf: only dma-bufs have an exporter.
pub(crate) fn is_dmabuf(fd: BorrowedFd<'_>) -> bool {
    fdinfo(fd, "exp_name").is_some()
}

/// Whether a descriptor is a file on a tmpfs without a name.
pub(crate) fn is_nameless_tmpfs(fd: BorrowedFd<'_>) -> bool {
    let nameless = rustix::fs::fstat(fd).is_ok_and(|stat| {
        stat.st_nlink == 0 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
    });
    nameless && is_tmpfs(fd)
}

/// Whether a descriptor is a file on a tmpfs that is only read: open for reading alone, and with a mode
/// that lets nobody write. Other files with a name are no memory to share: their owners write them.
pub(crate) fn is_kept(fd: BorrowedFd<'_>) -> bool {
    let only_read = rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| {
        flags & OFlags::ACCMODE == OFlags::RDONLY && !flags.contains(OFlags::PATH)
    });
    let locked = rustix::fs::fstat(fd).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o222 == 0
    });
    only_read && locked && is_tmpfs(fd)
}

/// The file systems that make a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Btrfs,
    F2fs,
    Fuse,
    Hugetlbfs,
    /// Its files have no pages: those are another file's.
    Overlay,
    /// Another machine has the files, or a server of this one: AFS, Ceph, NFS, SMB. Files on 9p tell
    /// the type that they have there: see [`is_9p`].
    Remote,
    Tmpfs,
    Other,
}

impl FileSystem {
    /// The file system of a file.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Self {
        Self::told_by(rustix::fs::fstatfs(fd))
    }

    /// The file system of a file, or of its folder if the call fails. SMB asks the server by the
    /// file's name, which a new file may not have yet.
    pub(crate) fn of_file_or_folder(fd: BorrowedFd<'_>, path: &Path) -> Self {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let of_folder = |_| rustix::fs::statfs(folder.unwrap_or(Path::new(".")));
        Self::told_by(rustix::fs::fstatfs(fd).or_else(of_folder))
    }

    fn told_by(found: rustix::io::Result<rustix::fs::StatFs>) -> Self {
        // linux/magic.h
        match found.map_or(0, |fs| fs.f_type as u32) {
            0x9123_683e => Self::Btrfs,
            0xf2f5_2010 => Self::F2fs,
            0x6573_5546 => Self::Fuse,
            0x9584_58f6 => Self::Hugetlbfs,
            0x794c_7630 => Self::Overlay,
            0x5346_414f | 0x00c3_6400 | 0x6969 | 0xfe53_4d42 | 0xff53_4d42 => Self::Remote,
            0x0102_1994 => Self::Tmpfs,
            _ => Self::Other,
        }
    }

    /// Whether another program or machine moves the data. The kernel does not count all that a
    /// process reads and writes there.
    pub(crate) fn is_served(self) -> bool {
        matches!(self, Self::Fuse | Self::Remote)
    }
}

/// Whether a descriptor is a file on 9p, by the list of mounts.
pub(crate) fn is_9p(fd: BorrowedFd<'_>) -> bool {
    let Ok(stat) = rustix::fs::fstat(fd) else { return false };
    let device = format!("{}:{}", rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| {
        line.split(' ').nth(2) == Some(&device)
            && line.split_once(" - ").is_some_and(|(_, kind)| kind.starts_with("9p "))
    })
}

/// Whether a descriptor is a file on a tmpfs.
pub(crate) fn is_tmpfs(fd: BorrowedFd<'_>) -> bool {
    FileSystem::of(fd) == FileSystem::Tmpfs
}

/// Whether a descriptor is a memfd in reserved huge pages.
pub(crate) fn is_hugetlbfs(fd: BorrowedFd<'_>) -> bool {
    FileSystem::of(fd) == FileSystem::Hugetlbfs
}

/// A field of `/proc/self/fdinfo`.
pub(crate) fn fdinfo(fd: BorrowedFd<'_>, field: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// The target of the descriptor's link in `/proc/self/fd`.
pub(crate) fn proc_link(fd: BorrowedFd<'_>) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// The path of the descriptor for other processes.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> PathBuf {
    // The link has the number in the PID namespace that /proc is mounted for.
    let process = std::fs::read_link("/proc/self");
    let process = process.unwrap_or_else(|_| std::process::id().to_string().into());
    Path::new("/proc").join(process).join("fd").join(fd.as_raw_fd().to_string())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn only_nameless_tmpfs_files_become_buffers() {
        for (folder, in_memory) in [("/dev/shm", true), (env!("CARGO_MANIFEST_DIR"), false)] {
            let Ok(stat) = rustix::fs::statfs(folder) else { continue };
            // Anything may be mounted there.
            if (stat.f_type as u64 == 0x0102_1994) != in_memory {
                continue;
            }
            let Ok(named) = tempfile::NamedTempFile::new_in(folder) else { continue };
            assert_eq!(is_tmpfs(named.as_file().as_fd()), in_memory, "{folder}");
            assert!(!is_nameless_tmpfs(named.as_file().as_fd()), "{folder}: it has a name");
            let file = named.into_file();
            assert_eq!(is_nameless_tmpfs(file.as_fd()), in_memory, "{folder}: it has none");
        }
    }

    #[test]
    fn named_file_becomes_a_buffer_if_nobody_may_write_it() {
        use std::os::unix::fs::PermissionsExt as _;

        for (folder, in_memory) in [("/dev/shm", true), (env!("CARGO_MANIFEST_DIR"), false)] {
            let Ok(stat) = rustix::fs::statfs(folder) else { continue };
            if (stat.f_type as u64 == 0x0102_1994) != in_memory {
                continue;
            }
            let Ok(file) = tempfile::NamedTempFile::new_in(folder) else { continue };
            let reading = std::fs::File::open(file.path()).expect("opened");
            assert!(!is_kept(reading.as_fd()), "{folder}: its owner may write");
            let mode = std::fs::Permissions::from_mode(0o444);
            std::fs::set_permissions(file.path(), mode).expect("a mode");
            assert_eq!(is_kept(reading.as_fd()), in_memory, "{folder}");
            assert!(!is_kept(file.as_file().as_fd()), "{folder}: open for writing");
        }
    }

    #[test]
    fn fdinfo_fields_are_found_by_name() {
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(fdinfo(file.as_fd(), "pos").as_deref(), Some("0"));
        assert_eq!(fdinfo(file.as_fd(), "po"), None, "the start of a name is another name");
    }
}
