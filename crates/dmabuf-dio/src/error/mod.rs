// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors, with hints on how to resolve them.

pub(crate) mod hint;
mod number;
mod remedy;

use std::path::PathBuf;

use crate::backend::{Backend, Refusal};
use crate::direction::Direction;
use crate::errno::Errno;
use crate::kind::Kind;

/// The step of a save that comes after the new file has replaced the old one.
pub(crate) const DURABLE_NAME: &str = "make its name durable";

/// `Result` with this library's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error. `Display` is one line that says what failed; [`hint`](Error::hint) says what to
/// do, in one line. Offsets and lengths are in bytes.
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

    /// What is to be saved cannot be read, or ends early.
    #[error(
        "{}: what is saved to it cannot be read at byte {offset} of {length}: {error}",
        path.display()
    )]
    Source {
        /// The target.
        path: PathBuf,
        /// How many bytes were read before.
        offset: u64,
        /// Bytes to save.
        length: u64,
        /// What the reader says; [`UnexpectedEof`](std::io::ErrorKind::UnexpectedEof) if it ended.
        #[source]
        error: std::io::Error,
    },

    /// A [`Content`](crate::content::Content) cannot be read: no buffer was made.
    #[error("{}: {}: {what}", name.display(), range_text(*offset, *length))]
    Content {
        /// Its name, without secrets.
        name: PathBuf,
        /// Start of the range that failed.
        offset: u64,
        /// Length of that range; 0 if no range was at fault.
        length: u64,
        /// What failed, without secrets.
        what: String,
        /// The error number that fits best: `ENOENT`, `EACCES`, `ESTALE` if it was replaced, `EBADMSG` if a sum
        /// differs, `ETIMEDOUT`, `EPROTO`, `EIO`, ...
        errno: Errno,
        /// What to do.
        remedy: String,
    },

    /// The kernel module refused the transfer or the rest of it: the buffer is attached to a device that needs
    /// synchronisation (non-coherent, or behind bounce buffers), or used by such a device of the exporter's, which
    /// the exporter, this kernel's udmabuf or a driver of DRM, does not do. Every other backend would lose the same bytes, so
    /// none is tried.
    #[error(
        "{}: {direction} was refused after {done} of {length} bytes: the buffer is used by a device that needs \
         synchronisation, which its exporter does not do",
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

    /// The node does not exist, or has no memory that this process may use.
    #[error("node {node} has no memory that this process may use")]
    Node {
        /// Its number.
        node: u32,
        /// The numbers of those that have.
        nodes: Vec<u32>,
    },

    /// There is not enough memory for the buffer on the only node that it may be on.
    #[error(
        "not enough memory on node {node} for a buffer of {wanted} bytes: {available} bytes are available"
    )]
    NodeMemory {
        /// The number of the node.
        node: u32,
        /// Length of the buffer.
        wanted: u64,
        /// Available bytes.
        available: u64,
    },

    /// The buffer's memory cannot be locked: mlock(2).
    #[error("{length} bytes of memory cannot be locked{}: {errno}", locked_text(*limit))]
    Lock {
        /// Bytes to lock.
        length: u64,
        /// Bytes that this process may lock in all (`RLIMIT_MEMLOCK`), if that is limited. It does not hold for
        /// processes with `CAP_IPC_LOCK`.
        limit: Option<u64>,
        /// `ENOMEM` or `EPERM`: the limit.
        #[source]
        errno: Errno,
    },

    /// The buffer cannot be split as requested: [`Buffer::into_parts`](crate::Buffer::into_parts).
    #[error("the buffer cannot be split into these parts")]
    NoParts,

    /// The buffer is not [`Private`](crate::Kind::Private) memory, or a part of memory that was split:
    /// [`Loader::load_over`](crate::Loader::load_over).
    #[error("the buffer is not private memory of its own")]
    NotPrivate,

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

fn range_text(offset: u64, length: u64) -> String {
    match length {
        0 => "it cannot be read".into(),
        _ => format!("bytes {offset}..{} cannot be read", offset.saturating_add(length)),
    }
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

fn locked_text(limit: Option<u64>) -> String {
    limit.map_or_else(String::new, |bytes| format!(" (RLIMIT_MEMLOCK is {bytes})"))
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

/// The refusal whose remedy helps. Unusable memory is unusable for all backends.
fn decisive(refusals: &[Refusal]) -> Option<&Refusal> {
    let of_the_memory = refusals.iter().find(|refusal| refusal.is_of_the_memory());
    let with_remedy = refusals.iter().find(|refusal| refusal.remedy.is_some());
    of_the_memory.or(with_remedy).or(refusals.first())
}

impl Error {
    /// Whether a failed save has left the path as it was: with its old file, or with none. Otherwise
    /// the new file has replaced the old one and only its name may not be durable, or
    /// [`OldFileGone`](Self::OldFileGone) says where it is. Files written in place are not meant.
    pub fn keeps_old_file(&self) -> bool {
        match self {
            Self::OldFileGone { .. } => false,
            Self::Target { step, .. } => *step != DURABLE_NAME,
            _ => true,
        }
    }

    /// The reason why each tried backend is unavailable, with its remedy.
    pub fn refusals(&self) -> &[Refusal] {
        match self {
            Self::Unavailable { refusals, .. } => refusals,
            Self::NotADmaBuf { why: Some(why), .. } => std::slice::from_ref(why),
            Self::Piece { error, .. } => error.refusals(),
            _ => &[],
        }
    }
}
