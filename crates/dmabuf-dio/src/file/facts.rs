// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about a file from `statx(2)`, or from `fstat(2)` if `statx(2)` is blocked, as by the
//! seccomp profiles of old container engines.

use std::os::fd::BorrowedFd;

use rustix::fs::{self, AtFlags, FileType, Stat, Statx, StatxFlags};

use crate::file::alignment::Alignment;

/// Facts about an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) file_type: FileType,
    /// Bytes of its length that have no blocks.
    pub(crate) saved: u64,
    /// The device that it is: major and minor number.
    pub(crate) device: (u32, u32),
    /// The device that it is on.
    pub(crate) on: (u32, u32),
    /// The alignment for `O_DIRECT`: since Linux 6.1, on most file systems; `fstat` does not tell.
    pub(crate) align: Option<Alignment>,
}

impl Facts {
    /// Asks the kernel.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
        match fs::statx(fd, "", AtFlags::EMPTY_PATH, wanted) {
            Ok(stat) => Ok(Self::from_statx(&stat)),
            // The descriptor is open: it is the call that is refused.
            Err(_) => fs::fstat(fd).map(|stat| Self::from_stat(&stat)),
        }
    }

    fn from_statx(stat: &Statx) -> Self {
        Self {
            file_type: FileType::from_raw_mode(stat.stx_mode.into()),
            saved: saved(stat.stx_size, stat.stx_blocks),
            device: (stat.stx_rdev_major, stat.stx_rdev_minor),
            on: (stat.stx_dev_major, stat.stx_dev_minor),
            align: alignment(stat),
        }
    }

    #[allow(clippy::unnecessary_cast, reason = "the types differ between processors")]
    fn from_stat(stat: &Stat) -> Self {
        Self {
            file_type: FileType::from_raw_mode(stat.st_mode),
            saved: saved(stat.st_size as u64, stat.st_blocks as u64),
            device: (fs::major(stat.st_rdev), fs::minor(stat.st_rdev)),
            on: (fs::major(stat.st_dev), fs::minor(stat.st_dev)),
            align: None,
        }
    }
}

fn saved(size: u64, blocks: u64) -> u64 {
    size.saturating_sub(blocks.saturating_mul(512))
}

fn alignment(stat: &Statx) -> Option<Alignment> {
    let said = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
    let align = Alignment {
        offset: stat.stx_dio_offset_align.into(),
        memory: stat.stx_dio_mem_align.into(),
    };
    (said && align.offset.is_power_of_two() && align.memory.is_power_of_two()).then_some(align)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    fn statx(fd: BorrowedFd<'_>) -> Statx {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
        fs::statx(fd, "", AtFlags::EMPTY_PATH, wanted).expect("statx")
    }

    #[test]
    fn only_plausible_kernel_alignment_is_used() {
        let file = tempfile::tempfile().expect("a file");
        let mut stat = statx(file.as_fd());
        assert_eq!(Facts::of(file.as_fd()).expect("facts").align, alignment(&stat));
        stat.stx_mask |= StatxFlags::DIOALIGN.bits();
        for (offset, memory, makes_sense) in
            [(512, 4, true), (0, 0, false), (512, 0, false), (0, 4, false), (3, 4, false)]
        {
            (stat.stx_dio_offset_align, stat.stx_dio_mem_align) = (offset, memory);
            let align = Alignment { offset: offset.into(), memory: memory.into() };
            assert_eq!(alignment(&stat), makes_sense.then_some(align));
        }
        (stat.stx_dio_offset_align, stat.stx_dio_mem_align) = (512, 4);
        stat.stx_mask &= !StatxFlags::DIOALIGN.bits();
        assert_eq!(alignment(&stat), None, "it says nothing");
    }

    #[test]
    fn statx_and_fstat_give_equal_facts() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1 << 30).expect("a hole");
        let null = std::fs::File::open("/dev/null").expect("a device");
        for fd in [file.as_fd(), null.as_fd()] {
            let statx = Facts::from_statx(&statx(fd));
            let stat = Facts::from_stat(&fs::fstat(fd).expect("fstat"));
            assert_eq!(stat, Facts { align: None, ..statx });
        }
    }
}
