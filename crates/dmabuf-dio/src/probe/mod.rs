// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this kernel, its devices and a file offer.
//!
//! All of it is found out by trying, on buffers of a page or a few, not by asking for versions:
//! what a container or a security module forbids is found out too.

mod file;
mod host;
mod lending;

use std::path::Path;

use crate::backend::table;
use crate::backend::{Backend, Refusal};
use crate::errno::Errno;
use crate::error::Result;

/// Whether a backend works, and what it would do.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackendStatus {
    /// The backend.
    pub backend: Backend,
    /// Whether a load into a new buffer can use it.
    pub available: bool,
    /// What it would do, if it is available.
    pub detail: Option<String>,
    /// Why it is not, if it is not, and what would change that.
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
    /// What is known about it: limits, features.
    pub detail: Option<String>,
}

/// A device that makes dma-bufs, and whether the kernel module borrows their pages.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Lender {
    /// What the kernel calls the exporter of its buffers.
    pub exporter: String,
    /// Path of the node.
    pub path: String,
    /// Why the module does not borrow from it; `None` if it does.
    pub refusal: Option<Refusal>,
}

/// Whose buffers the kernel module moves file content to and from, besides its own.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Lending {
    /// The devices of this system that make dma-bufs, each tried with one of a page.
    pub tried: Vec<Lender>,
    /// The module's parameter `exporters`: those that it borrows from at the administrator's risk.
    pub exporters: Vec<String>,
}

/// How a buffer gets huge pages here, or why not.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HugePages {
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled`: the value in force.
    pub shmem_enabled: Option<String>,
    /// Whether a memfd that asks for transparent huge pages got one.
    pub transparent: bool,
    /// Whether a memfd got one that was made of small ones, by `MADV_COLLAPSE` (Linux 6.1), which
    /// needs no setting.
    pub collapsed: bool,
    /// Huge pages of 2 MiB in the pool.
    pub pool: Option<u64>,
    /// Those of them that are free.
    pub free: Option<u64>,
    /// How many more may be allocated when they are asked for.
    pub overcommit: Option<u64>,
    /// Whether a memfd of reserved huge pages was to be had.
    pub reserved: bool,
    /// What would give huge pages, if there are none.
    pub remedy: Option<String>,
}

/// Whether `io_uring` can be used.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IoUring {
    /// Whether a ring could be made.
    pub available: bool,
    /// `kernel.io_uring_disabled`, where the kernel has it.
    pub disabled: Option<u32>,
    /// Why there was no ring, and what would change that.
    pub refusal: Option<Refusal>,
    /// The limit on locked memory in bytes; `None` if there is none. It does not bind those with
    /// the capability `CAP_IPC_LOCK`, root say.
    pub memlock: Option<u64>,
}

/// What a system offers.
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
    /// The devices that backends use.
    pub devices: Vec<Device>,
    /// Whose buffers the kernel module borrows; `None` without the module.
    pub lending: Option<Lending>,
    /// Huge pages.
    pub huge_pages: HugePages,
    /// `io_uring`.
    pub io_uring: IoUring,
}

/// What a file and its file system offer.
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
    /// Whether it could be opened with `O_DIRECT`, and why not.
    pub o_direct_open: Option<Errno>,
    /// Whether a block could be read with `O_DIRECT`, and why not.
    pub o_direct_read: Option<Errno>,
    /// Whether both worked.
    pub o_direct: bool,
    /// What file offsets have to be multiples of for direct I/O, if the file system says.
    pub offset_align: Option<u64>,
    /// What memory addresses have to be multiples of for direct I/O, if the file system says.
    pub memory_align: Option<u64>,
    /// How much of the file is in the page cache, in bytes, if the kernel says.
    pub cached: Option<u64>,
}

/// Tries what this system offers. Takes some milliseconds and changes nothing.
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
    }
}

/// Tries one backend on a buffer of a page.
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

/// Tries what a regular file or block device offers.
///
/// # Errors
///
/// [`Error::Open`](crate::Error::Open) and [`Error::NotAFile`](crate::Error::NotAFile).
pub fn file(path: impl AsRef<Path>) -> Result<FileFacts> {
    file::facts(path.as_ref())
}
