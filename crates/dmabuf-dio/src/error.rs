// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors, with hints on how to resolve them.

use std::path::PathBuf;

use crate::backend::{Backend, Refusal};
use crate::direction::Direction;
use crate::errno::Errno;
use crate::kind::Kind;

/// `Result` with this library's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error. `Display` is one line that says what failed; [`hint`](Error::hint) is one line that
/// says what to do. Offsets and lengths are in bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened.
    #[error("{}: cannot open it for {direction}: {errno}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The requested access.
        direction: Direction,
        /// `ENOENT`, `EACCES`, ...
        #[source]
        errno: Errno,
    },

    /// A file descriptor is not open for the requested direction.
    #[error("{}: the descriptor is not open for {direction}", path.display())]
    Access {
        /// The file.
        path: PathBuf,
        /// The access that is required.
        direction: Direction,
    },

    /// The path or descriptor is neither a regular file nor a block device.
    #[error("{}: neither a regular file nor a block device but {found}", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// Its file type: `"a directory"`, `"a dma-buf"`, ...
        found: &'static str,
    },

    /// The target of a save is a dangling symbolic link. It is neither followed nor replaced.
    #[error("{}: a symbolic link to {}, which does not exist", path.display(), leads_to.display())]
    DanglingLink {
        /// The link.
        path: PathBuf,
        /// The target of the link.
        leads_to: PathBuf,
    },

    /// The whole file was requested, but it is empty.
    #[error("{}: the file is empty, and a buffer has at least one byte", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },

    /// A length of 0 was requested.
    #[error("{}: {direction} a range of 0 bytes is refused", path.display())]
    EmptyRange {
        /// The file.
        path: PathBuf,
        /// The direction.
        direction: Direction,
    },

    /// The file ends before the range does, or was truncated during the read.
    #[error(
        "{}: the range {offset}..{} exceeds the file of {end} bytes ({done} bytes read)",
        path.display(), offset.saturating_add(*length)
    )]
    ShortFile {
        /// The file.
        path: PathBuf,
        /// Start of the range.
        offset: u64,
        /// Length of the range.
        length: u64,
        /// End of the file, which may be before the start of the range.
        end: u64,
        /// Bytes read contiguously from the start of the range.
        done: u64,
    },

    /// The range exceeds the largest offset of a file or buffer.
    #[error("the range of {length} bytes at {offset} exceeds the largest file offset")]
    RangeOverflow {
        /// Start of the range.
        offset: u64,
        /// Length of the range.
        length: u64,
    },

    /// The range exceeds the buffer.
    #[error("the range of {length} bytes at {offset} exceeds the buffer of {buffer} bytes")]
    RangeBeyondBuffer {
        /// Start of the range in the buffer.
        offset: u64,
        /// Length of the range.
        length: u64,
        /// Length of the buffer.
        buffer: u64,
    },

    /// A piece of a gather cannot be read. Nothing was read.
    #[error("piece {number}: {error}")]
    Piece {
        /// Index of the piece, from 0.
        number: usize,
        /// The reason.
        #[source]
        error: Box<Error>,
    },

    /// Two pieces of a gather overlap in the buffer. Nothing was read.
    #[error("pieces {first} and {second} overlap in the buffer")]
    PiecesOverlap {
        /// Index of the first piece, from 0.
        first: usize,
        /// Index of the second piece.
        second: usize,
    },

    /// A piece of a gather overlaps the spare bytes, which are reserved for the blocks of unaligned
    /// pieces. Nothing was read.
    #[error("piece {number} overlaps the spare bytes {}..{} of the buffer", spare.start, spare.end)]
    PieceInSpare {
        /// Index of the piece, from 0.
        number: usize,
        /// The spare bytes' range in the buffer.
        spare: std::ops::Range<u64>,
    },

    /// The kernel or the device failed the transfer.
    #[error(
        "{}: {direction} failed at byte {offset}, after {done} of {length} bytes: {errno}",
        path.display()
    )]
    Transfer {
        /// The file.
        path: PathBuf,
        /// Direction of the transfer.
        direction: Direction,
        /// Offset in the file at which it failed.
        offset: u64,
        /// Bytes moved contiguously from the start of the range.
        done: u64,
        /// Bytes requested.
        length: u64,
        /// `EIO`, `ENOSPC`, ...
        #[source]
        errno: Errno,
    },

    /// The kernel module refused the transfer or the rest of it: the udmabuf is attached to a
    /// device that needs synchronisation (non-coherent, or behind bounce buffers), and this
    /// kernel's udmabuf does not synchronise it. Every other backend would lose the same bytes, so
    /// none is tried.
    #[error(
        "{}: {direction} was refused after {done} of {length} bytes: the udmabuf is \
         attached to a device that needs synchronisation, which this kernel's udmabuf does not do",
        path.display()
    )]
    Unsynced {
        /// The file.
        path: PathBuf,
        /// Direction of the transfer.
        direction: Direction,
        /// Bytes moved contiguously from the start of the range (for pieces: in total). The device
        /// may not see them.
        done: u64,
        /// Bytes requested.
        length: u64,
    },

    /// The kernel refuses to wait for the requests in flight (`io_uring_enter(2)` kept failing for
    /// a second). It may still access their memory: memory of this process is not freed until the
    /// process exits, and a buffer passed by the caller may change until then.
    #[error(
        "{}: {direction} failed, and the kernel refuses to wait for the requests in flight: {errno}",
        path.display()
    )]
    InFlight {
        /// The file.
        path: PathBuf,
        /// Direction of the transfer.
        direction: Direction,
        /// Why the kernel refuses to wait.
        #[source]
        errno: Errno,
    },

    /// There is not enough memory for the buffer.
    #[error("not enough memory for a buffer of {wanted} bytes{}", available_text(*available, *reserve))]
    NoMemory {
        /// Length of the buffer.
        wanted: u64,
        /// Available bytes, if that was the reason.
        available: Option<u64>,
        /// Bytes of those that the kernel module leaves to others, if it refused: its parameter
        /// `reserve` (docs/design.md). Loads that run or are paused count, too.
        reserve: Option<u64>,
    },

    /// The buffer is not a dma-buf.
    #[error("{}", not_a_dma_buf_text(*kind, why.as_deref()))]
    NotADmaBuf {
        /// What it is.
        kind: Kind,
        /// For a file in memory: why it has no dma-buf.
        why: Option<Box<Refusal>>,
    },

    /// The buffer is private memory.
    #[error("private memory has no descriptor")]
    NoDescriptor,

    /// A file descriptor is neither a dma-buf nor a memfd.
    #[error("the descriptor is neither a dma-buf nor a memfd but {found}")]
    NotABuffer {
        /// The type of the descriptor.
        found: String,
    },

    /// The buffer's descriptor is not open for writing.
    #[error("the buffer's descriptor is read-only")]
    ReadOnlyBuffer,

    /// An operation on the buffer failed.
    #[error("cannot {call} the buffer: {errno}")]
    Buffer {
        /// `"map"`, `"begin CPU access to"`, ...
        call: &'static str,
        /// The kernel's error number.
        #[source]
        errno: Errno,
    },

    /// The dma-heap does not exist, or this user may not open it.
    #[error("the heap {heap} cannot be opened: {errno}")]
    Heap {
        /// Its name.
        heap: String,
        /// `ENOENT`, `EACCES`, ...; `EINVAL` if the name is not a valid heap name.
        #[source]
        errno: Errno,
    },

    /// A file in memory is to have a path, which is in /proc, and /proc is not mounted.
    #[error("a path to memory is in /proc, which is not mounted")]
    NoProc,

    /// The environment does not describe a buffer.
    #[error("{variable} {}", found.as_ref().map_or_else(|| "is not set".into(), |text| format!("is not a number: {text}")))]
    Environment {
        /// The variable.
        variable: &'static str,
        /// Its value, if it is set.
        found: Option<String>,
    },

    /// A thread could not be created.
    #[error("cannot start a thread: {errno}")]
    Thread {
        /// `EAGAIN` or `ENOMEM`.
        #[source]
        errno: Errno,
    },

    /// A setting has an invalid value.
    #[error("{name} cannot be {value}: it must be {need}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The valid values.
        need: &'static str,
    },

    /// A step of creating the target file failed. The target is unchanged, unless the step was to
    /// make its name durable: then it has been replaced, but a power failure may bring back the old
    /// file.
    #[error("{}: cannot {step}: {errno}", path.display())]
    Target {
        /// The target.
        path: PathBuf,
        /// `"rename the finished file to it"`, ...
        step: &'static str,
        /// The kernel's error number.
        #[source]
        errno: Errno,
    },

    /// The file system has removed the old file of this name, and then could not rename the finished
    /// one: seen on SMB, where renaming over a file is not one operation.
    #[error(
        "{}: cannot rename the finished file to it: {errno}; the old file is gone, the new one is {}",
        path.display(), kept.display()
    )]
    OldFileGone {
        /// The target.
        path: PathBuf,
        /// The finished file, in the same folder.
        kept: PathBuf,
        /// The kernel's error number.
        #[source]
        errno: Errno,
    },

    /// The selected backend, or every backend, is unavailable. [`Error::refusals`] has the reasons.
    #[error("{}", unavailable_text(*asked, *kind, refusals))]
    Unavailable {
        /// The selected backend; `None` if any was allowed.
        asked: Option<Backend>,
        /// The kind of buffer that a [`Loader`](crate::Loader) was to create and that no backend
        /// can create here; another kind may be available. Otherwise `None`.
        kind: Option<Kind>,
        /// The reason for each backend that was tried.
        refusals: Vec<Refusal>,
    },

    /// Cancelled through a [`CancelToken`](crate::CancelToken).
    #[error("{}: {direction} was cancelled after {done} of {length} bytes", path.display())]
    Cancelled {
        /// The file.
        path: PathBuf,
        /// Direction of the transfer.
        direction: Direction,
        /// Bytes moved contiguously from the start of the range.
        done: u64,
        /// Bytes requested.
        length: u64,
    },
}

fn available_text(available: Option<u64>, reserve: Option<u64>) -> String {
    match (available, reserve) {
        (Some(bytes), None) => format!(": {bytes} bytes are available"),
        (Some(bytes), Some(reserve)) => format!(
            ": {bytes} bytes are available, less {reserve} that dmabuf_dio leaves to others and \
             what running and paused loads still need"
        ),
        (None, _) => String::new(),
    }
}

fn not_a_dma_buf_text(kind: Kind, why: Option<&Refusal>) -> String {
    match why {
        Some(refusal) => format!("the {kind} has no dma-buf: {refusal}"),
        None => format!("the buffer is a {kind}, not a dma-buf"),
    }
}

fn unavailable_text(asked: Option<Backend>, kind: Option<Kind>, refusals: &[Refusal]) -> String {
    match (asked, kind) {
        (Some(backend), _) => match refusals.first() {
            Some(refusal) => format!("backend {backend} is not available: {}", refusal.reason),
            None => format!("backend {backend} is not available"),
        },
        (None, Some(kind)) => format!("no {kind} can be created here"),
        (None, None) => match decisive(refusals) {
            Some(refusal) => format!("no backend is available: {}", refusal.reason),
            None => "no backend is available".into(),
        },
    }
}

/// The refusal whose remedy helps: memory that is unusable is so for all backends.
fn decisive(refusals: &[Refusal]) -> Option<&Refusal> {
    let of_the_memory = refusals.iter().find(|refusal| refusal.is_of_the_memory());
    let with_remedy = refusals.iter().find(|refusal| refusal.remedy.is_some());
    of_the_memory.or(with_remedy).or(refusals.first())
}

fn unavailable_hint(kind: Option<Kind>, refusals: &[Refusal]) -> String {
    let remedy = decisive(refusals).and_then(|refusal| refusal.remedy.clone());
    match (remedy, kind) {
        (Some(remedy), None) => remedy,
        (Some(remedy), Some(kind)) => format!("{ANY_KIND}; or for a {kind}: {remedy}"),
        (None, None) => "choose another backend, or let the library choose".into(),
        (None, Some(_)) => ANY_KIND.into(),
    }
}

const ANY_KIND: &str = "allow any kind of buffer, the default";

impl Error {
    /// One line that says how to resolve the error.
    pub fn hint(&self) -> String {
        match self {
            Self::Open { errno, path, .. } => open_hint(*errno, path),
            Self::Access { direction: Direction::Load, .. } => {
                "open the file with O_RDONLY or O_RDWR".into()
            }
            Self::Access { direction: Direction::Save, .. } => {
                "open the file with O_WRONLY or O_RDWR and without O_APPEND".into()
            }
            Self::NotAFile { .. } => "name a regular file or a block device".into(),
            Self::DanglingLink { path, .. } => format!(
                "create the target of the link first, or remove the link: rm {}",
                path.display()
            ),
            Self::EmptyFile { .. } => {
                "choose a non-empty file; files of /proc and /sys report no length: copy them first"
                    .into()
            }
            Self::EmptyRange { .. } => "request at least 1 byte".into(),
            Self::ShortFile { end, offset, .. } if offset >= end => {
                format!("start before byte {end}, and do not truncate the file during the load")
            }
            Self::ShortFile { end, offset, .. } => {
                let left = end.saturating_sub(*offset);
                format!(
                    "request at most {left} bytes at {offset}, and do not truncate the file during the load"
                )
            }
            Self::RangeOverflow { .. } => "choose a smaller offset or length".into(),
            Self::RangeBeyondBuffer { offset, buffer, .. } => {
                format!("at most {} bytes fit at {offset}", buffer.saturating_sub(*offset))
            }
            Self::Piece { error, .. } => error.hint(),
            Self::PiecesOverlap { .. } => {
                "do not let pieces overlap in the buffer; only identical pieces may repeat".into()
            }
            Self::PieceInSpare { .. } => "put the piece, or the spare bytes, elsewhere".into(),
            Self::Transfer { errno, .. } | Self::Target { errno, .. } => {
                transfer_hint(*errno).into()
            }
            Self::OldFileGone { path, kept, .. } => {
                format!("mv {} {}", kept.display(), path.display())
            }
            Self::Unsynced { direction, .. } => format!(
                "{} before the device attaches the buffer, use a buffer from /dev/dma_heap/system, \
                 or boot a kernel with the fix in kernel/series",
                match direction {
                    Direction::Load => "load",
                    Direction::Save => "save",
                }
            ),
            Self::InFlight { .. } => {
                "exit the process; until then do not use the buffer or the file".into()
            }
            Self::NoMemory { reserve: Some(_), .. } => {
                "free memory, load the file in ranges (offset and length), or lower the parameter \
                 reserve of dmabuf_dio"
                    .into()
            }
            Self::NoMemory { .. } => {
                "free memory, or load the file in ranges (offset and length)".into()
            }
            Self::NotABuffer { .. } => {
                "pass the descriptor of a dma-buf, or one from memfd_create(2)".into()
            }
            Self::NoDescriptor => "load it as another kind, such as a memfd".into(),
            Self::NotADmaBuf { why: Some(why), .. } => why.remedy.clone().unwrap_or_default(),
            Self::NotADmaBuf { why: None, .. } => {
                "load it as a dma-buf, or as a file, which has a dma-buf over its pages where \
                 /dev/udmabuf allows that"
                    .into()
            }
            Self::ReadOnlyBuffer => "export or open the buffer with O_RDWR".into(),
            Self::Buffer { call: "create", errno } if is_blocked(*errno) => {
                "allow the system calls memfd_create, ftruncate and fcntl, for example in the seccomp profile of \
                 the container"
                    .into()
            }
            Self::Buffer { errno, .. } => buffer_hint(*errno).into(),
            Self::NoProc => {
                "mount it: mount -t proc proc /proc; or load into a buffer, which has a descriptor".into()
            }
            Self::Heap { errno, .. } if errno.raw() == libc::EACCES => {
                "run as root, or give this user read permission on it in /dev/dma_heap".into()
            }
            Self::Heap { heap, .. } if heap == "system" => {
                "boot a kernel with CONFIG_DMABUF_HEAPS_SYSTEM=y, or: modprobe system_heap".into()
            }
            Self::Heap { .. } => "choose an existing heap: ls /dev/dma_heap".into(),
            Self::Environment { .. } => {
                "run the program with dmabuf-dio load FILE -- PROGRAM, which sets it".into()
            }
            Self::Thread { errno } => thread_hint(*errno).into(),
            Self::Setting { name, need, .. } => format!("choose another {name}: {need}"),
            Self::Unavailable { kind, refusals, .. } => unavailable_hint(*kind, refusals),
            Self::Cancelled { .. } => "start again".into(),
        }
    }

    /// Why each backend that was tried is not available, with what would make it available.
    pub fn refusals(&self) -> &[Refusal] {
        match self {
            Self::Unavailable { refusals, .. } => refusals,
            Self::NotADmaBuf { why: Some(why), .. } => std::slice::from_ref(why),
            Self::Piece { error, .. } => error.refusals(),
            _ => &[],
        }
    }

    /// An error number for every error, for interfaces that have nothing else (the C library, `OSError` of
    /// Python):
    ///
    /// | number | error |
    /// |---|---|
    /// | `ECANCELED` | cancelled |
    /// | `EOPNOTSUPP` | no backend, or not the requested one; no dma-buf. Not the number of the first refusal, which would read like one of the file |
    /// | `EINPROGRESS` | requests are still in flight, and the memory may change |
    /// | `ENODATA` | the file is empty, or ends before the range does |
    /// | `EBADF` | the descriptor does not allow the transfer |
    /// | `EACCES` | the buffer cannot be written |
    /// | `ENOENT` | a dangling link, or no `/proc` |
    /// | `EOVERFLOW`, `ERANGE` | the range overflows; it exceeds the buffer |
    /// | `ENOMEM`, `EBUSY` | too little memory; the buffer is not synchronised with a device |
    /// | the kernel's | where there is one: [`errno`](Self::errno) |
    /// | `EINVAL` | everything else |
    pub fn number(&self) -> Errno {
        let number = match self {
            Self::Cancelled { .. } => libc::ECANCELED,
            Self::Unavailable { .. } | Self::NotADmaBuf { .. } => libc::EOPNOTSUPP,
            Self::InFlight { .. } => libc::EINPROGRESS,
            Self::EmptyFile { .. } | Self::ShortFile { .. } => libc::ENODATA,
            Self::Access { .. } => libc::EBADF,
            Self::ReadOnlyBuffer => libc::EACCES,
            Self::DanglingLink { .. } => libc::ENOENT,
            Self::RangeOverflow { .. } => libc::EOVERFLOW,
            Self::RangeBeyondBuffer { .. } => libc::ERANGE,
            Self::Piece { error, .. } => return error.number(),
            error => return error.errno().unwrap_or(Errno::INVAL),
        };
        Errno::from_raw(number)
    }

    /// The kernel's error number, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open { errno, .. }
            | Self::Transfer { errno, .. }
            | Self::InFlight { errno, .. }
            | Self::Buffer { errno, .. }
            | Self::Thread { errno }
            | Self::Heap { errno, .. }
            | Self::OldFileGone { errno, .. }
            | Self::Target { errno, .. } => Some(*errno),
            Self::NoMemory { .. } => Some(Errno::from_raw(libc::ENOMEM)),
            Self::NoProc => Some(Errno::from_raw(libc::ENOENT)),
            Self::Unsynced { .. } => Some(Errno::from_raw(libc::EBUSY)),
            Self::Piece { error, .. } => error.errno(),
            Self::Unavailable { refusals, .. } => refusals.first().and_then(|first| first.errno),
            _ => None,
        }
    }
}

/// The error kind follows from the error number; the error itself is the source.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.errno() {
            Some(errno) => Self::from(errno).kind(),
            None => match error {
                Error::ShortFile { .. } => std::io::ErrorKind::UnexpectedEof,
                Error::Cancelled { .. } => std::io::ErrorKind::Interrupted,
                Error::Unavailable { .. } => std::io::ErrorKind::Unsupported,
                _ => std::io::ErrorKind::InvalidInput,
            },
        };
        Self::new(kind, error)
    }
}

/// Whether it may be a filter of system calls that refuses.
fn is_blocked(errno: Errno) -> bool {
    matches!(errno.raw(), libc::EPERM | libc::ENOSYS)
}

/// For `ENOSYS`.
const BLOCKED: &str = "allow the system call, for example in the seccomp profile of the container; otherwise this kernel \
                       lacks it";

fn open_hint(errno: Errno, path: &std::path::Path) -> String {
    match errno.raw() {
        libc::ENOENT | libc::ENOTDIR => "check the path".into(),
        libc::EACCES => format!("check its permissions: ls -l {}", path.display()),
        libc::EPERM => format!(
            "check its permissions: ls -l {}; in a container, its seccomp profile, too",
            path.display()
        ),
        libc::ENOSYS => BLOCKED.into(),
        libc::EISDIR => "name a regular file or a block device".into(),
        libc::EMFILE | libc::ENFILE => "allow more open files: ulimit -n".into(),
        libc::EROFS => "mount the file system writable".into(),
        libc::ETXTBSY => "the file is a running program or a swap file: choose another".into(),
        _ => "check the path and the file system it is on".into(),
    }
}

/// For `EFAULT` on a mapped buffer.
const SHRUNK: &str = "the buffer was shrunk, or there are no pages for it: seal it (F_SEAL_SHRINK) \
                      against shrinking, and use small pages";

fn transfer_hint(errno: Errno) -> &'static str {
    match errno.raw() {
        libc::EIO => "the storage device reports an error: see dmesg",
        libc::ENOSPC | libc::EDQUOT => "free space on the file system",
        libc::EFBIG => "the file system or ulimit -f does not allow a file of that size",
        libc::EINVAL => {
            "the kernel does not accept this alignment: choose offsets that are multiples of the block size of \
             the file system and the disk, 4096 on most"
        }
        libc::ENOMEM => "free memory, or choose a smaller block size or queue depth",
        libc::EACCES => "check the permissions of the file and its directory",
        libc::EPERM => {
            "check the permissions of the file and its directory; in a container, its seccomp profile, too"
        }
        libc::ENOSYS => BLOCKED,
        libc::EROFS => "mount the file system writable",
        libc::ENOENT | libc::ENOTDIR => "the folder must exist: check the path",
        libc::EISDIR => "name a file in an existing folder, without a trailing slash",
        libc::EBUSY => "something else uses it: see lsof",
        libc::EFAULT => SHRUNK,
        _ => "see dmesg for details",
    }
}

fn thread_hint(errno: Errno) -> &'static str {
    if is_blocked(errno) {
        return "allow the system calls clone3 and clone, for example in the seccomp profile of the container";
    }
    "raise the limits: ulimit -u, and pids.max of the control group"
}

fn buffer_hint(errno: Errno) -> &'static str {
    match errno.raw() {
        libc::ENOMEM => "free memory, or raise vm.max_map_count",
        libc::EACCES => "the descriptor's access mode does not allow it",
        libc::EPERM => {
            "the descriptor's access mode or a seal does not allow it, or in a container its seccomp profile"
        }
        libc::ENOSYS => BLOCKED,
        libc::EMFILE | libc::ENFILE => "allow more open files: ulimit -n",
        libc::EFAULT => SHRUNK,
        libc::EFBIG => "raise the limit on the length of files, memfds included: ulimit -f",
        libc::EOVERFLOW => {
            "half of the address space can be mapped at once, 2 GiB in a 32-bit program: load the file in \
             ranges (offset and length), or use a 64-bit program"
        }
        libc::EHWPOISON => "a page has a hardware memory error: see dmesg",
        libc::EINVAL | libc::ENOTTY | libc::ENODEV | libc::EOPNOTSUPP => {
            "the buffer's exporter does not support it: use a buffer from /dev/dma_heap/system"
        }
        _ => "see dmesg for details",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_number() {
        let path = || PathBuf::from("f");
        let nested = Error::RangeOverflow { offset: 1, length: u64::MAX };
        let (direction, errno) = (Direction::Load, Errno::from_raw(libc::EIO));
        for (error, number) in [
            (Error::ReadOnlyBuffer, libc::EACCES),
            (Error::NoDescriptor, libc::EINVAL),
            (Error::NotADmaBuf { kind: Kind::Memfd, why: None }, libc::EOPNOTSUPP),
            (
                Error::Unavailable { asked: None, kind: None, refusals: Vec::new() },
                libc::EOPNOTSUPP,
            ),
            (Error::EmptyFile { path: path() }, libc::ENODATA),
            (Error::RangeBeyondBuffer { offset: 0, length: 9, buffer: 1 }, libc::ERANGE),
            (Error::InFlight { path: path(), direction, errno }, libc::EINPROGRESS),
            (Error::NoMemory { wanted: 1, available: None, reserve: None }, libc::ENOMEM),
            (Error::Piece { number: 1, error: Box::new(nested) }, libc::EOVERFLOW),
        ] {
            assert_eq!(error.number().raw(), number, "{error}");
        }
    }
}
