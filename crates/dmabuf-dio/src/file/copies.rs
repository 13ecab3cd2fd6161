// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds copies of data that is requested with `O_DIRECT`, where the file's page cache does not show
//! them.

use std::os::fd::BorrowedFd;

use rustix::fs::{self, AtFlags, IFlags, StatxFlags};

use crate::direction::Direction;
use crate::fd::FileSystem;

/// Copies that a file system or a device makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// Btrfs copies, because it computes checksums of data that cannot change. Since Linux 6.15, and
    /// in some older kernels, it copies to the page cache, which it empties again; since 7.0, to
    /// memory of its own.
    Checksummed,
    /// The file system copies, and tells that it has no direct I/O on this file, as f2fs does for
    /// compressed files. It uses the page cache, which it may empty again.
    Declined,
    /// A loop device copies, because its file goes through the page cache.
    Looped,
}

impl Copies {
    /// Describes the copy and its remedy.
    pub(crate) fn note(self) -> &'static str {
        match self {
            Self::Checksummed => {
                "btrfs copies what it has checksums of before it writes it: files made in a folder after \
                 `chattr +C FOLDER` have none, and are written without a copy"
            }
            Self::Declined => {
                "buffered: the file system has no direct I/O on this file, and uses the page cache"
            }
            Self::Looped => {
                "buffered: the file of the loop device goes through the page cache; `losetup --direct-io=on` \
                 changes that"
            }
        }
    }
}

/// For a file on the disk with this device number, or the disk itself.
pub(crate) fn of(
    file: BorrowedFd<'_>,
    system: FileSystem,
    direction: Direction,
    disk: (u32, u32),
) -> Option<Copies> {
    if is_looped("/sys", disk) {
        return Some(Copies::Looped);
    }
    // A load through the page cache leaves pages there, which shows.
    if direction == Direction::Load {
        return None;
    }
    if declines(file) {
        return Some(Copies::Declined);
    }
    (system == FileSystem::Btrfs && has_checksums(file)).then_some(Copies::Checksummed)
}

/// Whether statx(2) tells that a file has no direct I/O, now that it has its content.
fn declines(file: BorrowedFd<'_>) -> bool {
    let stat = fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    stat.is_ok_and(|stat| {
        let told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
        told && stat.stx_dio_offset_align == 0
    })
}

/// Whether Btrfs keeps checksums of a file. If a whole file system is mounted without, its files do
/// not tell.
fn has_checksums(file: BorrowedFd<'_>) -> bool {
    fs::ioctl_getflags(file).is_ok_and(|flags| !flags.contains(IFlags::NOCOW))
}

/// Whether it is a loop device whose file is read and written through the page cache. Partitions of
/// one, and devices made of them, are not looked into.
fn is_looped(sys: &str, (major, minor): (u32, u32)) -> bool {
    const LOOP_MAJOR: u32 = 7; // linux/major.h
    let direct = || std::fs::read_to_string(format!("{sys}/dev/block/{major}:{minor}/loop/dio"));
    major == LOOP_MAJOR && direct().is_ok_and(|direct| direct.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_device_without_dio_is_noticed() {
        let sys = tempfile::tempdir().expect("a folder");
        for (disk, direct) in [("7:0", "0\n"), ("7:1", "1\n"), ("8:0", "0\n")] {
            let folder = sys.path().join("dev/block").join(disk).join("loop");
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join("dio"), direct).expect("a file");
        }
        let sys = sys.path().to_str().expect("text");
        let looped = [(7, 0), (7, 1), (7, 2), (8, 0)].map(|disk| is_looped(sys, disk));
        assert_eq!(looped, [true, false, false, false]);
    }
}
