// SPDX-License-Identifier: MIT OR Apache-2.0
//! The features of this kernel, its devices and a file.
//!
//! Everything is tested by trying it on buffers of a few pages, not by checking versions, so
//! restrictions of containers and security modules show up too.

mod drm;
mod file;
mod host;
mod lending;
pub(crate) mod sample;
mod secure_boot;

use std::os::fd::BorrowedFd;
use std::path::Path;

use dmabuf_dio_sys::cachestat::cachestat;

use crate::backend::{Backend, Refusal};
use crate::choose::table;
use crate::errno::Errno;
use crate::error::Result;
use crate::fd::FileSystem;
use crate::file::dma::Dma;
use crate::memory::available::{self, Charged};
use crate::memory::place;

/// Whether a backend is available, and what it would do.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackendStatus {
    /// The backend.
    pub backend: Backend,
    /// Whether a load into a new buffer can use the backend.
    pub available: bool,
    /// How the backend would transfer data, if it is available.
    pub detail: Option<String>,
    /// Why the backend is unavailable, and the remedy; `None` if it is available.
    pub refusal: Option<Refusal>,
}

/// A device node and whether it can be opened.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Device {
    /// Path of the node.
    pub path: String,
    /// Why it cannot be opened; `None` if it can.
    pub error: Option<Errno>,
    /// Known limits and features.
    pub detail: Option<String>,
}

/// A device that exports dma-bufs, and whether the kernel module borrows their pages.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Lender {
    /// The kernel's name for the exporter of its buffers.
    pub exporter: String,
    /// Path of the node.
    pub path: String,
    /// Why the module does not borrow its pages; `None` if it does.
    pub refusal: Option<Refusal>,
}

/// A GPU or an NPU, and whether the kernel module knows that its driver's buffers stay in place.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DrmDevice {
    /// Path of the node.
    pub path: String,
    /// The name of its driver.
    pub driver: String,
    /// Whether the module borrows its driver's buffers, if its code is the kernel's and its device needs no
    /// synchronisation.
    pub is_known: bool,
}

/// The exporters whose buffers the kernel module can transfer to and from, besides its own.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Lending {
    /// The devices of this system that export dma-bufs, each tried with a one-page buffer.
    pub tried: Vec<Lender>,
    /// The GPUs and NPUs, whose drivers export the buffers that they allocate. Nothing is tried.
    pub drm: Vec<DrmDevice>,
    /// The module's parameter `exporters`: exporters it borrows from at the administrator's risk.
    pub exporters: Vec<String>,
}

/// How a buffer can get huge pages here, or why it cannot.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HugePages {
    /// The active value of `/sys/kernel/mm/transparent_hugepage/shmem_enabled`.
    pub shmem_enabled: Option<String>,
    /// Whether a memfd that requested transparent huge pages got one.
    pub transparent: bool,
    /// Whether `MADV_COLLAPSE` (Linux 6.1) turned small pages of a memfd into a huge one, which
    /// needs no setting.
    pub collapsed: bool,
    /// Number of 2 MiB huge pages in the pool.
    pub pool: Option<u64>,
    /// Number of those that are free.
    pub free: Option<u64>,
    /// Number of additional huge pages that may be allocated on demand.
    pub overcommit: Option<u64>,
    /// Whether a memfd with reserved huge pages could be created.
    pub reserved: bool,
    /// How to enable huge pages, if there are none.
    pub remedy: Option<String>,
}

/// Whether `io_uring` can be used.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IoUring {
    /// Whether a ring could be created.
    pub available: bool,
    /// `kernel.io_uring_disabled`, if the kernel has it.
    pub disabled: Option<u32>,
    /// Why no ring could be created, and the remedy.
    pub refusal: Option<Refusal>,
    /// The limit on locked memory in bytes; `None` if unlimited. It does not apply to processes with
    /// `CAP_IPC_LOCK`, such as root's.
    pub memlock: Option<u64>,
}

/// The key that DKMS signs the kernel module with, on a system whose Secure Boot has the kernel load signed modules only.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SecureBoot {
    /// Path of the key's certificate; `None` as long as DKMS has not built a module.
    pub key: Option<String>,
    /// Whether the key is enrolled, so that the kernel loads the module.
    pub enrolled: bool,
    /// How to enroll the key, if it is not.
    pub remedy: Option<String>,
}

/// The features of a system.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct System {
    /// Release of the kernel.
    pub kernel: String,
    /// Machine architecture.
    pub machine: String,
    /// Size of a page in bytes.
    pub page_size: u64,
    /// The backends, in the order in which a load tries them.
    pub backends: Vec<BackendStatus>,
    /// The devices that the backends use.
    pub devices: Vec<Device>,
    /// The exporters that the kernel module borrows from; `None` without the module.
    pub lending: Option<Lending>,
    /// Huge pages.
    pub huge_pages: HugePages,
    /// `io_uring`.
    pub io_uring: IoUring,
    /// Secure Boot; `None` if it is off, or if there is none.
    pub secure_boot: Option<SecureBoot>,
}

/// The features of a file and its file system.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FileFacts {
    /// Path of the file.
    pub path: String,
    /// Its length in bytes.
    pub length: u64,
    /// Type of its file system, or `"block device"`.
    pub file_system: Option<String>,
    /// Why it could not be opened with `O_DIRECT`; `None` if it could.
    pub o_direct_open: Option<Errno>,
    /// Why a block could not be read with `O_DIRECT`; `None` if it could.
    pub o_direct_read: Option<Errno>,
    /// Whether both succeeded.
    pub o_direct: bool,
    /// Alignment of file offsets for direct I/O in bytes, if the file system reports it.
    pub offset_align: Option<u64>,
    /// Alignment of memory addresses for direct I/O in bytes, if the file system reports it.
    pub memory_align: Option<u64>,
    /// Bytes of the file in the page cache, if the kernel reports them.
    pub cached: Option<u64>,
    /// How a buffer that the kernel module lends is mapped for the file's disk; `None` if the disk is
    /// unknown.
    pub dma: Option<Dma>,
}

/// Tests the features of this system. Blocks for some milliseconds and changes nothing.
pub fn system() -> System {
    let uname = rustix::system::uname();
    let heaps = host::heaps();
    System {
        kernel: uname.release().to_string_lossy().into_owned(),
        machine: uname.machine().to_string_lossy().into_owned(),
        page_size: crate::memory::page::page_size(),
        backends: Backend::ALL.into_iter().map(backend).collect(),
        devices: host::devices(&heaps),
        lending: lending::lending(&heaps),
        huge_pages: host::huge_pages(),
        io_uring: host::io_uring(),
        secure_boot: secure_boot::secure_boot(Path::new("/")),
    }
}

/// Tests one backend on a one-page buffer.
pub fn backend(backend: Backend) -> BackendStatus {
    match table::try_out(backend) {
        Ok(detail) => {
            BackendStatus { backend, available: true, detail: Some(detail), refusal: None }
        }
        Err(refusal) => {
            BackendStatus { backend, available: false, detail: None, refusal: Some(refusal) }
        }
    }
}

/// How many bytes of memory new buffers of this process can use before the system, its control
/// groups or the commit limit run out; `None` if the kernel does not report it. Each load checks
/// this, but loads that run at the same time do not know of each other.
pub fn available_memory() -> Option<u64> {
    available::available(Charged::Us)
}

/// How many bytes of memory of one NUMA node are free or can be freed; `None` if there is no such node, or the
/// kernel does not report it.
pub fn available_memory_of(node: u32) -> Option<u64> {
    place::available(node)
}

/// How many files this process may have open at a time: `RLIMIT_NOFILE` in getrlimit(2). `None` if nothing limits
/// it, or if the call is blocked.
pub fn most_open_files() -> Option<u64> {
    crate::limit::current(rustix::process::Resource::Nofile)
}

/// Whether the page cache has the page of an open file at `offset`, in bytes. The question makes the kernel
/// read nothing, unlike a read with `RWF_NOWAIT`. `None` if unknown: before Linux 6.5, and on overlayfs.
pub fn is_cached(file: BorrowedFd<'_>, offset: u64) -> Option<bool> {
    let cached = cachestat(file, offset, 1).ok()?.cached > 0;
    (cached || FileSystem::of(file) != FileSystem::Overlay).then_some(cached)
}

/// Tests what a regular file or block device offers.
///
/// # Errors
///
/// [`Error::Open`](crate::Error::Open) and [`Error::NotAFile`](crate::Error::NotAFile).
pub fn file(path: impl AsRef<Path>) -> Result<FileFacts> {
    file::facts(path.as_ref())
}
