// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file side of a transfer: opened with `O_DIRECT`, and without it on demand.

pub(crate) mod alignment;
pub(crate) mod copies;
pub(crate) mod dma;
pub(crate) mod extent;
pub(crate) mod facts;
#[cfg(any(test, fuzzed))]
pub(crate) mod properties;
pub(crate) mod queue;
pub(crate) mod target;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::ioctl::{self, Opcode, opcode};

use crate::direction::Direction;
use crate::errno::{Errno, IntoErrno};
use crate::error::{Error, Result};
use crate::fd::{FileSystem, is_dmabuf, proc_link};
pub use crate::file::alignment::Alignment;
use crate::file::copies::Copies;
use crate::file::dma::Dma;
use crate::file::facts::Facts;
use crate::file::queue::Queue;

/// An open regular file or block device, with `O_DIRECT` where possible.
#[derive(Debug)]
pub struct File {
    pub(crate) path: PathBuf,
    /// With `O_DIRECT`, unless [`why_buffered`](Self::why_buffered) gives a reason.
    fd: OwnedFd,
    pub(crate) why_buffered: Option<String>,
    /// Without `O_DIRECT`; opened on demand if `fd` has it.
    buffered: OnceLock<rustix::io::Result<OwnedFd>>,
    pub(crate) align: Alignment,
    pub(crate) is_device: bool,
    /// The file system of the file; a device is on none.
    pub(crate) system: FileSystem,
    /// Bytes saved by holes and compression: reading them needs no storage access.
    pub(crate) unallocated: u64,
    /// The disk's device number: major, minor.
    disk: (u32, u32),
    /// Request sizes for the disk, determined on demand.
    queue: OnceLock<Queue>,
    direction: Direction,
}

/// How a file is specified.
#[derive(Clone, Debug)]
pub(crate) enum Spec<'a> {
    Path(PathBuf),
    Fd(BorrowedFd<'a>),
}

impl Spec<'_> {
    /// The path shown in error messages.
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
    /// Opens an existing file for reading, to [load](Direction::Load) from, or for reading and
    /// writing, to [save](Direction::Save) to.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; [`Error::NotAFile`].
    pub fn open_path(path: impl Into<PathBuf>, direction: Direction) -> Result<Self> {
        Self::open(&Spec::Path(path.into()), direction, true)
    }

    /// Creates a file to save to, truncating an existing one. Block devices are opened as they are.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; [`Error::NotAFile`].
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let (path, direction) = (path.into(), Direction::Save);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        // Opening a FIFO would block until its other end is open.
        match fs::open(&path, flags | OFlags::NONBLOCK, Mode::from(0o666)) {
            Ok(fd) => Self::from_owned(path, fd, direction, true),
            Err(errno) => Err(Error::Open { path, direction, errno: errno.into_errno() }),
        }
    }

    /// The path shown in error messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why the file is not open with `O_DIRECT`; `None` if it is.
    pub fn why_buffered(&self) -> Option<&str> {
        self.why_buffered.as_deref()
    }

    /// The alignment for direct I/O; if the file system reports none, one that suits every device.
    pub fn alignment(&self) -> Alignment {
        self.align
    }

    /// Whether it is a block device.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    /// Opens an existing file for `direction`, with `O_DIRECT` if `direct`.
    pub(crate) fn open(spec: &Spec<'_>, direction: Direction, direct: bool) -> Result<Self> {
        let path = spec.display_path();
        let errno = |errno: rustix::io::Errno| Error::Open {
            path: path.clone(),
            direction,
            errno: errno.into_errno(),
        };
        // A signal says nothing about the file.
        let again = |flags| {
            rustix::io::retry_on_intr(|| match spec {
                Spec::Path(name) => {
                    fs::open(name, access(direction) | flags | OFlags::CLOEXEC, Mode::empty())
                }
                // Reopened, with its own file offset and flags.
                Spec::Fd(fd) => reopen(*fd, direction, flags),
            })
        };
        match spec {
            // Opening a FIFO would block until its other end is open, so check the type first.
            Spec::Path(name) => {
                let stat = fs::stat(name).map_err(errno)?;
                check_type(&path, FileType::from_raw_mode(stat.st_mode))?;
            }
            Spec::Fd(fd) => check_fd(&path, *fd, direction)?,
        }
        let mut why_buffered = Some(NOT_WANTED.into());
        if direct {
            match again(OFlags::DIRECT) {
                Ok(fd) => return Self::new(path, fd, direction, None),
                Err(errno) => why_buffered = Some(refused(errno)),
            }
        }
        let fd = match (again(OFlags::empty()), spec) {
            (Err(_), Spec::Fd(fd)) => {
                if fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::DIRECT)) {
                    // O_DIRECT cannot be removed: the duplicate shares the flags.
                    why_buffered = None;
                }
                rustix::io::fcntl_dupfd_cloexec(fd, 3)
            }
            (result, _) => result,
        };
        Self::new(path.clone(), fd.map_err(errno)?, direction, why_buffered)
    }

    /// Takes ownership of a descriptor that is open for `direction` without `O_DIRECT`.
    pub(crate) fn from_owned(
        path: PathBuf,
        fd: OwnedFd,
        direction: Direction,
        direct: bool,
    ) -> Result<Self> {
        if !direct {
            return Self::new(path, fd, direction, Some(NOT_WANTED.into()));
        }
        match reopen(fd.as_fd(), direction, OFlags::DIRECT) {
            Ok(second) => {
                let mut file = Self::new(path, second, direction, None)?;
                file.buffered = OnceLock::from(Ok(fd));
                Ok(file)
            }
            Err(errno) => Self::new(path, fd, direction, Some(refused(errno))),
        }
    }

    fn new(
        path: PathBuf,
        fd: OwnedFd,
        direction: Direction,
        why_buffered: Option<String>,
    ) -> Result<Self> {
        let facts = examine(&path, fd.as_fd(), direction)?;
        let is_device = facts.file_type == FileType::BlockDevice;
        let system = if is_device {
            FileSystem::Other
        } else {
            FileSystem::of_file_or_folder(fd.as_fd(), &path)
        };
        Ok(Self {
            path,
            fd,
            why_buffered,
            buffered: OnceLock::new(),
            align: facts.align.unwrap_or_else(Alignment::unknown),
            is_device,
            system,
            unallocated: if is_device { 0 } else { facts.saved },
            disk: if is_device { facts.device } else { facts.on },
            queue: OnceLock::new(),
            direction,
        })
    }

    /// The descriptor to transfer through: with `O_DIRECT` if there is one.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether [`fd`](Self::fd) has `O_DIRECT`.
    pub fn is_direct(&self) -> bool {
        self.why_buffered.is_none()
    }

    /// Whether the file is on tmpfs, where `O_DIRECT` has no effect.
    pub(crate) fn is_memory(&self) -> bool {
        self.system == FileSystem::Tmpfs
    }

    /// Whether the file is on FUSE.
    pub(crate) fn is_fuse(&self) -> bool {
        self.system == FileSystem::Fuse
    }

    /// Returns [`fd`](Self::fd) or [`buffered`](Self::buffered).
    ///
    /// # Errors
    ///
    /// As for [`buffered`](Self::buffered).
    pub fn with_direct(&self, direct: bool) -> Result<BorrowedFd<'_>> {
        if direct { Ok(self.fd()) } else { self.buffered() }
    }

    /// A descriptor without `O_DIRECT`.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] if the file cannot be reopened.
    pub fn buffered(&self) -> Result<BorrowedFd<'_>> {
        if !self.is_direct() {
            return Ok(self.fd());
        }
        let again = || {
            reopen(self.fd(), self.direction, OFlags::empty()).or_else(|errno| self.by_path(errno))
        };
        match self.buffered.get_or_init(again) {
            Ok(fd) => Ok(fd.as_fd()),
            Err(errno) => Err(self.open_error(*errno)),
        }
    }

    /// Request size and queue depth for the disk.
    pub(crate) fn queue(&self) -> Queue {
        *self.queue.get_or_init(|| Queue::of(self.disk.0, self.disk.1))
    }

    /// How memory is mapped for the disk. `not_kept`: see [`dma::of`].
    pub(crate) fn dma(&self, not_kept: impl FnOnce() -> Option<String>) -> Option<Dma> {
        // Memory of the page cache is not the buffer's.
        let direct = self.is_direct();
        dma::of(
            self.disk.0,
            self.disk.1,
            || if direct { not_kept() } else { Some(dma::not_lent()) },
        )
    }

    /// The copy that is made although data is requested with `O_DIRECT`.
    pub(crate) fn copies(&self) -> Option<Copies> {
        self.is_direct()
            .then(|| copies::of(self.fd(), self.system, self.direction, self.disk))
            .flatten()
    }

    /// Without `/proc`, reopens the file by its path if that still names the same file.
    fn by_path(&self, before: rustix::io::Errno) -> rustix::io::Result<OwnedFd> {
        let fd = fs::open(&self.path, access(self.direction) | OFlags::CLOEXEC, Mode::empty());
        let fd = fd.map_err(|_| before)?;
        let (ours, found) = (fs::fstat(&self.fd)?, fs::fstat(&fd)?);
        let same = (ours.st_dev, ours.st_ino) == (found.st_dev, found.st_ino);
        if same { Ok(fd) } else { Err(before) }
    }

    /// Continues without `O_DIRECT`.
    pub(crate) fn without_direct(&self, why: String) -> Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(self.buffered()?, 3);
        Ok(Self {
            path: self.path.clone(),
            fd: fd.map_err(|errno| self.open_error(errno))?,
            why_buffered: Some(why),
            buffered: OnceLock::new(),
            queue: self.queue.clone(),
            ..*self
        })
    }

    /// Checks that this process may have a file of `end` bytes: `RLIMIT_FSIZE` in getrlimit(2).
    ///
    /// # Errors
    ///
    /// `EFBIG`: a write up to `end` would raise `SIGXFSZ`, which kills the process.
    pub fn check_size(&self, end: u64) -> Result<(), Errno> {
        if self.is_device { Ok(()) } else { check_size(end).map_err(IntoErrno::into_errno) }
    }

    /// The current end of the file, in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] with the kernel's error number.
    pub fn end(&self) -> Result<u64> {
        end_of(self.fd()).map_err(|errno| self.open_error(errno))
    }

    fn open_error(&self, errno: rustix::io::Errno) -> Error {
        let (path, direction) = (self.path.clone(), self.direction);
        Error::Open { path, direction, errno: errno.into_errno() }
    }
}

/// The current end of a regular file or block device. Seeking would move the file position, which a
/// duplicated descriptor shares with the caller's.
pub(crate) fn end_of(fd: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    /// `_IOR(0x12, 114, size_t)` (`linux/fs.h`), which returns a `u64`.
    const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
    let stat = fs::fstat(fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Ok(stat.st_size as u64);
    }
    // SAFETY: on a block device the call writes a u64 and does nothing else.
    unsafe { ioctl::ioctl(fd, ioctl::Getter::<BLKGETSIZE64, u64>::new()) }
}

/// Why a file is buffered although direct I/O would work.
const NOT_WANTED: &str = "buffered I/O was requested";

fn refused(errno: rustix::io::Errno) -> String {
    let errno = errno.into_errno();
    match errno.raw() {
        libc::EINVAL => "the file system does not support O_DIRECT for this file (EINVAL)".into(),
        _ => format!("the file cannot be opened with O_DIRECT: {errno}"),
    }
}

fn access(direction: Direction) -> OFlags {
    match direction {
        Direction::Load => OFlags::RDONLY,
        Direction::Save => OFlags::RDWR,
    }
}

/// Reopens the file of a descriptor, with its own file offset and flags.
fn reopen(fd: BorrowedFd<'_>, direction: Direction, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match fs::open(&*path, access(direction) | flags | OFlags::CLOEXEC, Mode::empty()) {
        Err(rustix::io::Errno::ACCESS) if direction == Direction::Save => {
            fs::open(&*path, OFlags::WRONLY | flags | OFlags::CLOEXEC, Mode::empty())
        }
        result => result,
    }
}

/// Checks that it is a file, and returns its facts.
fn examine(path: &Path, fd: BorrowedFd<'_>, direction: Direction) -> Result<Facts> {
    let facts = Facts::of(fd).map_err(|errno| Error::Open {
        path: path.to_owned(),
        direction,
        errno: errno.into_errno(),
    })?;
    check_type(path, facts.file_type)?;
    Ok(facts)
}

fn check_fd(path: &Path, fd: BorrowedFd<'_>, direction: Direction) -> Result<()> {
    if is_dmabuf(fd) {
        return Err(Error::NotAFile { path: path.to_owned(), found: "a dma-buf" });
    }
    let flags = fs::fcntl_getfl(fd).map_err(|errno| Error::Open {
        path: path.to_owned(),
        direction,
        errno: errno.into_errno(),
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

/// Fails if a range ends beyond the largest offset that a file can have.
pub(crate) fn check_range(offset: u64, length: u64) -> Result<()> {
    match offset.checked_add(length) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(Error::RangeOverflow { offset, length }),
    }
}

/// Fails with `EFBIG` if this process may not have a file of `end` bytes, memfds included: the
/// kernel would send `SIGXFSZ`, which kills the process (`RLIMIT_FSIZE` in getrlimit(2)).
pub(crate) fn check_size(end: u64) -> rustix::io::Result<()> {
    let limit = crate::limit::current(rustix::process::Resource::Fsize);
    if limit.is_some_and(|limit| end > limit) { Err(rustix::io::Errno::FBIG) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reopening_by_path_refuses_a_replaced_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "content").expect("written");
        let spec = Spec::Path(path.clone());
        let file = File::open(&spec, Direction::Load, true).expect("open");
        assert!(file.by_path(rustix::io::Errno::NOENT).is_ok());
        std::fs::write(folder.path().join("other"), "other").expect("written");
        std::fs::rename(folder.path().join("other"), &path).expect("renamed");
        let gone = file.by_path(rustix::io::Errno::NOENT).map(|_| ());
        assert_eq!(gone, Err(rustix::io::Errno::NOENT));
        assert!(file.buffered().is_ok(), "by way of /proc it is the old one");
    }

    #[test]
    fn buffered_file_gives_its_reason() {
        assert!(refused(rustix::io::Errno::INVAL).contains("does not support O_DIRECT"));
        let other = refused(rustix::io::Errno::PERM);
        assert!(other.contains("EPERM") && other != refused(rustix::io::Errno::INVAL), "{other}");
        let folder = tempfile::tempdir().expect("a folder");
        let file = File::create(folder.path().join("new")).expect("created");
        assert_eq!(file.why_buffered().is_some(), !file.is_direct());
        assert_eq!((file.end().expect("its end"), file.is_device()), (0, false));
        let path = file.path().to_owned();
        let asked = File::open(&Spec::Path(path), Direction::Load, false).expect("open");
        assert_eq!(asked.why_buffered(), Some(NOT_WANTED));
        assert!(File::create(folder.path()).is_err(), "a folder");
    }

    /// The access mode and `O_DIRECT`, of a descriptor that no program inherits.
    fn flags(fd: impl AsFd) -> OFlags {
        let inherited = rustix::io::fcntl_getfd(&fd).expect("its flags");
        assert!(inherited.contains(rustix::io::FdFlags::CLOEXEC));
        fs::fcntl_getfl(&fd).expect("the file's flags") & (OFlags::ACCMODE | OFlags::DIRECT)
    }

    #[test]
    fn reopened_file_keeps_its_access_and_close_on_exec() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_owned();
        for (direction, access) in
            [(Direction::Load, OFlags::RDONLY), (Direction::Save, OFlags::RDWR)]
        {
            let opened = File::open(&Spec::Path(path.clone()), direction, false).expect("open");
            assert_eq!(flags(opened.fd()), access);
            let again = opened.by_path(rustix::io::Errno::NOENT).expect("by its path");
            assert_eq!(flags(again), access);
            assert_eq!(
                flags(reopen(opened.fd(), direction, OFlags::empty()).expect("again")),
                access
            );
            if let Ok(direct) = reopen(opened.fd(), direction, OFlags::DIRECT) {
                assert_eq!(flags(&direct), access | OFlags::DIRECT);
                let plain = File::from_owned(path.clone(), direct, direction, true).expect("owned");
                assert_eq!(flags(plain.buffered().expect("buffered")), access | OFlags::DIRECT);
            }
            let owned = reopen(opened.fd(), direction, OFlags::empty()).expect("again");
            let owned = File::from_owned(path.clone(), owned, direction, false).expect("owned");
            assert_eq!((owned.why_buffered(), flags(owned.fd())), (Some(NOT_WANTED), access));
        }
    }

    #[test]
    fn created_file_is_empty_and_close_on_exec() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "before").expect("written");
        let created = File::create(file.path()).expect("created");
        assert_eq!(created.end().expect("its end"), 0, "it was truncated");
        flags(created.fd());
        flags(created.buffered().expect("buffered"));
    }

    #[test]
    fn block_device_is_recognised_with_its_size() {
        let Ok(disks) = std::fs::read_dir("/sys/class/block") else { return };
        for disk in disks.filter_map(Result::ok) {
            let device = Path::new("/dev").join(disk.file_name());
            // Not every user may read every disk, and some are empty.
            let Ok(file) = File::open_path(&device, Direction::Load) else { continue };
            let sectors = std::fs::read_to_string(disk.path().join("size")).unwrap_or_default();
            assert!(file.is_device() && !file.is_memory(), "{}", device.display());
            let sectors: u64 = sectors.trim().parse().expect("a number of sectors");
            assert_eq!(file.end().expect("its end"), sectors * 512, "{}", device.display());
            assert_eq!((file.check_size(u64::MAX), file.unallocated), (Ok(()), 0));
        }
    }

    /// Runs `test` in a thread with the file permissions of the user `nobody`.
    fn as_nobody(test: impl FnOnce() + Send) {
        const NOBODY: libc::uid_t = 65534;
        std::thread::scope(|scope| {
            let test = || {
                // SAFETY: the call takes a number. It is about this thread, which ends soon.
                unsafe { libc::setfsuid(NOBODY) };
                test();
            };
            scope.spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    #[test]
    fn write_only_permission_allows_saving() {
        let file = tempfile::tempfile().expect("a file");
        fs::fchmod(&file, Mode::from_raw_mode(0o222)).expect("its permissions");
        as_nobody(|| {
            let again = |direction, flags| reopen(file.as_fd(), direction, flags);
            let written = again(Direction::Save, OFlags::empty()).expect("open");
            assert_eq!(flags(written), OFlags::WRONLY);
            if let Ok(direct) = again(Direction::Save, OFlags::DIRECT) {
                assert_eq!(flags(direct), OFlags::WRONLY | OFlags::DIRECT);
            }
            let read = again(Direction::Load, OFlags::empty()).map(|_| ());
            assert_eq!(read, Err(rustix::io::Errno::ACCESS));
        });
    }

    #[test]
    fn file_size_limit_includes_its_last_byte() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        // So large that no other test notices.
        const LIMIT: u64 = 1 << 50;
        let before = getrlimit(Resource::Fsize);
        if before.current.is_some_and(|limit| limit < LIMIT) {
            return println!("skipped: {before:?}");
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        let spec = Spec::Path(file.path().to_owned());
        let opened = File::open(&spec, Direction::Save, false).expect("open");
        setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), ..before }).expect("limited");
        let ours = [LIMIT - 1, LIMIT, LIMIT + 1].map(check_size);
        let files = [LIMIT - 1, LIMIT, LIMIT + 1].map(|end| opened.check_size(end).is_ok());
        setrlimit(Resource::Fsize, before).expect("as before");
        assert_eq!(ours, [Ok(()), Ok(()), Err(rustix::io::Errno::FBIG)]);
        assert_eq!(files, [true, true, false]);
    }

    #[test]
    fn only_tmpfs_counts_as_memory() {
        for (folder, is_memory) in [("/dev/shm", true), (env!("CARGO_MANIFEST_DIR"), false)] {
            let Ok(stat) = fs::statfs(folder) else { continue };
            // Anything may be mounted there.
            if (stat.f_type as u64 == 0x0102_1994) != is_memory {
                continue;
            }
            let Ok(file) = tempfile::NamedTempFile::new_in(folder) else { continue };
            let spec = Spec::Path(file.path().to_owned());
            let file = File::open(&spec, Direction::Load, false).expect("open");
            assert_eq!(file.is_memory(), is_memory, "{folder}");
        }
    }
}
