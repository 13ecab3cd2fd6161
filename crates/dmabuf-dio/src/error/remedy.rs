// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hint of each error.

use std::path::Path;

use super::hint::Hint;
use super::{Error, decisive};
use crate::backend::Refusal;
use crate::direction::Direction;
use crate::errno::Errno;
use crate::kind::Kind;

impl Error {
    /// A remedy for the error.
    pub fn hint(&self) -> Hint {
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
            )
            .into(),
            Self::EmptyFile { .. } => {
                "choose a non-empty file; files of /proc and /sys report no length: copy them first"
                    .into()
            }
            Self::EmptyRange { .. } => "request at least 1 byte".into(),
            Self::ShortFile { end, offset, .. } if offset >= end => {
                format!("start before byte {end}, and do not truncate the file during the load").into()
            }
            Self::ShortFile { end, offset, .. } => {
                let left = end.saturating_sub(*offset);
                format!(
                    "request at most {left} bytes at {offset}, and do not truncate the file during the load"
                )
                .into()
            }
            Self::Source { .. } => "look at what is saved: the file itself is not at fault".into(),
            Self::Content { remedy, .. } => remedy.clone().into(),
            Self::RangeOverflow { .. } => "choose a smaller offset or length".into(),
            Self::RangeBeyondBuffer { offset, buffer, .. } => {
                format!("at most {} bytes fit at {offset}", buffer.saturating_sub(*offset)).into()
            }
            Self::Piece { error, .. } => error.hint(),
            Self::PiecesOverlap { .. } => {
                "do not let pieces overlap in the buffer; only identical pieces may repeat".into()
            }
            Self::PieceInSpare { .. } => "put the piece, or the spare bytes, elsewhere".into(),
            Self::Transfer { errno, .. } | Self::Target { errno, .. } => {
                transfer_hint(*errno)
            }
            Self::OldFileGone { path, kept, .. } => {
                format!("mv {} {}", kept.display(), path.display()).into()
            }
            Self::Unsynced { direction, .. } => format!(
                "{} before the device attaches the buffer, or use a buffer from /dev/dma_heap/system; \
                 for a udmabuf a kernel with the fix in kernel/series does, too",
                match direction {
                    Direction::Load => "load",
                    Direction::Save => "save",
                }
            )
            .into(),
            Self::InFlight { .. } => {
                "exit the process; until then do not use the buffer or the file".into()
            }
            Self::NoMemory { reserve: Some(_), .. } => Hint::RangesOrReserve,
            Self::NoMemory { .. } => Hint::Ranges("free memory"),
            Self::Node { nodes, .. } => Hint::Nodes(nodes.clone()),
            Self::NodeMemory { .. } => Hint::NodesOrRanges,
            Self::Lock { limit, errno, .. } => lock_hint(*limit, *errno),
            Self::NoParts => {
                "split private memory that was loaded, once, into ascending ranges of at least a byte".into()
            }
            Self::NotPrivate => {
                "pass memory that was loaded as Private, or allocated by Buffer::zeroed, and not split".into()
            }
            Self::NotABuffer { .. } => {
                "pass the descriptor of a dma-buf, or one from memfd_create(2)".into()
            }
            Self::NoDescriptor => Hint::WithDescriptor,
            Self::NotADmaBuf { why: Some(why), .. } => why.remedy.clone().unwrap_or_default().into(),
            Self::NotADmaBuf { why: None, .. } => Hint::WithDmaBuf,
            Self::ReadOnlyBuffer => "export or open the buffer with O_RDWR".into(),
            Self::Buffer { call, errno } => buffer_hint(call, *errno),
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
            Self::Setting { name, need, .. } => Hint::Setting { name, need },
            Self::Unavailable { kind, refusals, .. } => unavailable_hint(*kind, refusals),
            Self::Cancelled { .. } => "start again".into(),
        }
    }
}

fn unavailable_hint(kind: Option<Kind>, refusals: &[Refusal]) -> Hint {
    let remedy = decisive(refusals).and_then(|refusal| refusal.remedy.clone());
    match (remedy, kind) {
        (Some(remedy), None) => remedy.into(),
        (None, None) => Hint::AnyBackend,
        (remedy, Some(kind)) => Hint::AnyKind { or: remedy.map(|remedy| (kind, remedy)) },
    }
}

/// Whether it may be a filter of system calls that refuses.
fn is_blocked(errno: Errno) -> bool {
    matches!(errno.raw(), libc::EPERM | libc::ENOSYS)
}

/// For `ENOSYS`.
const BLOCKED: &str = "allow the system call, for example in the seccomp profile of the container; otherwise this kernel \
                       lacks it";

fn open_hint(errno: Errno, path: &Path) -> Hint {
    match errno.raw() {
        libc::ENOENT | libc::ENOTDIR => "check the path".into(),
        libc::EACCES => format!("check its permissions: ls -l {}", path.display()).into(),
        libc::EPERM => format!(
            "check its permissions: ls -l {}; in a container, its seccomp profile, too",
            path.display()
        )
        .into(),
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

fn transfer_hint(errno: Errno) -> Hint {
    let step = match errno.raw() {
        libc::EIO => "the storage device reports an error: see dmesg",
        libc::ENOSPC | libc::EDQUOT => "free space on the file system",
        libc::EFBIG => "the file system or ulimit -f does not allow a file of that size",
        libc::EINVAL => {
            "the kernel does not accept this alignment: choose offsets that are multiples of the block size of \
             the file system and the disk, 4096 on most"
        }
        libc::ENOMEM => return Hint::SmallerRequests,
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
    };
    step.into()
}

fn thread_hint(errno: Errno) -> &'static str {
    if is_blocked(errno) {
        return "allow the system calls clone3 and clone, for example in the seccomp profile of the container";
    }
    "raise the limits: ulimit -u, and pids.max of the control group"
}

fn lock_hint(limit: Option<u64>, errno: Errno) -> Hint {
    match (errno.raw(), limit) {
        (libc::ENOSYS, _) => BLOCKED.into(),
        // The kernel refuses it only if nothing may be locked: `can_do_mlock()` in mm/mlock.c.
        (libc::EPERM, limit) if limit != Some(0) => {
            "allow the system calls mlock and mlock2, for example in the seccomp profile of the container".into()
        }
        // EAGAIN is not about the limit: `__mlock_posix_error_return()`.
        (libc::EAGAIN, _) | (libc::ENOMEM, None) => {
            Hint::Ranges("free memory, or raise vm.max_map_count")
        }
        _ => "raise the limit on locked memory: ulimit -l; LimitMEMLOCK= in the unit of a systemd service; docker \
              run --ulimit memlock=-1"
            .into(),
    }
}

fn buffer_hint(call: &str, errno: Errno) -> Hint {
    let step = match errno.raw() {
        _ if call == "create" && is_blocked(errno) => {
            "allow the system calls memfd_create, ftruncate and fcntl, for example in the seccomp profile of the \
             container"
        }
        _ if call == "place" && is_blocked(errno) => {
            "allow the system calls get_mempolicy, set_mempolicy, mbind and getcpu, for example in the seccomp \
             profile of the container: docker run --cap-add SYS_NICE"
        }
        libc::EINVAL if call == "place" => {
            "the nodes that this process may use have changed meanwhile: load again"
        }
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
            return Hint::Ranges(
                "half of the address space can be mapped at once, 2 GiB in a 32-bit program: use a 64-bit \
                 program",
            );
        }
        libc::EHWPOISON => "a page has a hardware memory error: see dmesg",
        libc::EINVAL | libc::ENOTTY | libc::ENODEV | libc::EOPNOTSUPP => {
            "the buffer's exporter does not support it: use a buffer from /dev/dma_heap/system"
        }
        _ => "see dmesg for details",
    };
    step.into()
}
