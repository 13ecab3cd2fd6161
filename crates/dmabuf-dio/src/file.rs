// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file side of a transfer: opened twice, with and without `O_DIRECT`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, SeekFrom, Statx, StatxFlags};

use crate::buf::{is_dmabuf, proc_link};
use crate::errno::Errno;
use crate::error::{Direction, Error, Result};
use crate::memory::page_size;
use crate::queue::Queue;

/// What `O_DIRECT` needs of offsets and addresses, in bytes, both powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    pub(crate) offset: u64,
    pub(crate) memory: u64,
}

impl Alignment {
    /// What suits every device, for file systems that do not say.
    pub(crate) fn unknown() -> Self {
        Self { offset: page_size(), memory: page_size() }
    }
}

/// An open regular file or block device.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) buffered: OwnedFd,
    pub(crate) direct: Option<OwnedFd>,
    /// Why there is no [`direct`](Self::direct).
    pub(crate) why_buffered: Option<String>,
    pub(crate) align: Alignment,
    pub(crate) is_device: bool,
    /// Bytes that holes and compression save: they are read without storage.
    pub(crate) unallocated: u64,
    /// The disk's number: major, minor.
    disk: (u32, u32),
    /// What suits the disk, once somebody has asked.
    queue: OnceLock<Queue>,
    direction: Direction,
}

/// How a file is given.
#[derive(Clone, Debug)]
pub(crate) enum Spec<'a> {
    Path(PathBuf),
    Fd(BorrowedFd<'a>),
}

impl Spec<'_> {
    /// What error messages call it.
    pub(crate) fn display_path(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Fd(fd) => {
                let number = fd.as_raw_fd();
                proc_link(*fd).map_or_else(|| format!("fd {number}").into(), PathBuf::from)
            }
        }
    }
}

impl File {
    /// Opens an existing file for `direction`; with `O_DIRECT` too if `direct`.
    pub(crate) fn open(spec: &Spec<'_>, direction: Direction, direct: bool) -> Result<Self> {
        let path = spec.display_path();
        let errno = |errno: rustix::io::Errno| Error::Open {
            path: path.clone(),
            direction,
            errno: errno.into(),
        };
        let fd = match spec {
            Spec::Path(name) => {
                // Opening a FIFO would wait for its other end: look before.
                let stat = fs::stat(name).map_err(errno)?;
                check_type(&path, FileType::from_raw_mode(stat.st_mode))?;
                let access = match direction {
                    Direction::Load => OFlags::RDONLY,
                    Direction::Save => OFlags::RDWR,
                };
                fs::open(name, access | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?
            }
            Spec::Fd(fd) => {
                check_fd(&path, *fd, direction)?;
                // Once more, with its own file offset and flags.
                reopen(*fd, direction, OFlags::empty())
                    .or_else(|_| rustix::io::fcntl_dupfd_cloexec(fd, 3))
                    .map_err(errno)?
            }
        };
        Self::from_owned(path, fd, direction, direct)
    }

    /// Takes over a descriptor that is open for `direction`.
    pub(crate) fn from_owned(
        path: PathBuf,
        fd: OwnedFd,
        direction: Direction,
        direct: bool,
    ) -> Result<Self> {
        let (stat, align) = examine(&path, fd.as_fd(), direction)?;
        let file_type = FileType::from_raw_mode(stat.stx_mode.into());
        let size = stat.stx_size;
        let mut file = Self {
            buffered: fd,
            path,
            direct: None,
            why_buffered: None,
            align: align.unwrap_or_else(Alignment::unknown),
            is_device: file_type == FileType::BlockDevice,
            unallocated: size.saturating_sub(stat.stx_blocks.saturating_mul(512)),
            disk: (stat.stx_dev_major, stat.stx_dev_minor),
            queue: OnceLock::new(),
            direction,
        };
        if file.is_device {
            file.unallocated = 0;
            file.disk = (stat.stx_rdev_major, stat.stx_rdev_minor);
        }
        if !direct {
            file.why_buffered = Some("buffered I/O was asked for".into());
            return Ok(file);
        }
        match reopen(file.buffered.as_fd(), direction, OFlags::DIRECT) {
            Ok(fd) => file.direct = Some(fd),
            Err(errno) => file.why_buffered = Some(refused(errno)),
        }
        Ok(file)
    }

    /// The descriptor to move bytes through: with `O_DIRECT` if there is one.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.direct.as_ref().unwrap_or(&self.buffered).as_fd()
    }

    /// Requests that suit the disk.
    pub(crate) fn queue(&self) -> Queue {
        *self.queue.get_or_init(|| Queue::of(self.disk.0, self.disk.1))
    }

    /// Goes on without `O_DIRECT`.
    pub(crate) fn without_direct(&self, why: String) -> Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.buffered, 3).map_err(|errno| {
            Error::Open { path: self.path.clone(), direction: self.direction, errno: errno.into() }
        })?;
        Ok(Self {
            path: self.path.clone(),
            buffered: fd,
            direct: None,
            why_buffered: Some(why),
            queue: self.queue.clone(),
            ..*self
        })
    }

    /// Where the file ends now.
    pub(crate) fn end(&self) -> Result<u64> {
        let error = |errno: rustix::io::Errno| Error::Open {
            path: self.path.clone(),
            direction: self.direction,
            errno: errno.into(),
        };
        if self.is_device {
            return fs::seek(&self.buffered, SeekFrom::End(0)).map_err(error);
        }
        Ok(fs::fstat(&self.buffered).map_err(error)?.st_size as u64)
    }
}

fn refused(errno: rustix::io::Errno) -> String {
    let errno = Errno::from(errno);
    match errno.raw() {
        libc::EINVAL => "the file system does not offer O_DIRECT for this file (EINVAL)".into(),
        _ => format!("the file cannot be opened again with O_DIRECT: {errno}"),
    }
}

/// Opens what a descriptor refers to once more, with its own file offset and flags.
fn reopen(fd: BorrowedFd<'_>, direction: Direction, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let access = match direction {
        Direction::Load => OFlags::RDONLY,
        Direction::Save => OFlags::RDWR,
    };
    match fs::open(&*path, access | flags | OFlags::CLOEXEC, Mode::empty()) {
        Err(rustix::io::Errno::ACCESS) if direction == Direction::Save => {
            fs::open(&*path, OFlags::WRONLY | flags | OFlags::CLOEXEC, Mode::empty())
        }
        result => result,
    }
}

fn examine(
    path: &Path,
    fd: BorrowedFd<'_>,
    direction: Direction,
) -> Result<(Statx, Option<Alignment>)> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
    let stat = fs::statx(fd, "", AtFlags::EMPTY_PATH, wanted).map_err(|errno| Error::Open {
        path: path.to_owned(),
        direction,
        errno: errno.into(),
    })?;
    check_type(path, FileType::from_raw_mode(stat.stx_mode.into()))?;
    Ok((stat, alignment(&stat)))
}

/// What `statx(2)` says about `O_DIRECT`, since Linux 6.1 and on most file systems.
pub(crate) fn alignment(stat: &Statx) -> Option<Alignment> {
    let said = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
    let align = Alignment {
        offset: stat.stx_dio_offset_align.into(),
        memory: stat.stx_dio_mem_align.into(),
    };
    (said && align.offset.is_power_of_two() && align.memory.is_power_of_two()).then_some(align)
}

fn check_fd(path: &Path, fd: BorrowedFd<'_>, direction: Direction) -> Result<()> {
    if is_dmabuf(fd) {
        return Err(Error::NotAFile { path: path.to_owned(), found: "a dma-buf" });
    }
    let flags = fs::fcntl_getfl(fd).map_err(|errno| Error::Open {
        path: path.to_owned(),
        direction,
        errno: errno.into(),
    })?;
    let access = flags & OFlags::ACCMODE;
    let allowed = !flags.contains(OFlags::PATH)
        && match direction {
            Direction::Load => access != OFlags::WRONLY,
            Direction::Save => access != OFlags::RDONLY && !flags.contains(OFlags::APPEND),
        };
    if allowed { Ok(()) } else { Err(Error::Access { path: path.to_owned(), direction }) }
}

pub(crate) fn check_type(path: &Path, file_type: FileType) -> Result<()> {
    let found = match file_type {
        FileType::RegularFile | FileType::BlockDevice => return Ok(()),
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::Symlink => "a symbolic link",
        FileType::Unknown => "something else",
    };
    Err(Error::NotAFile { path: path.to_owned(), found })
}
