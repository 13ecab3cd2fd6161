// SPDX-License-Identifier: MIT OR Apache-2.0
//! dma-buf heaps: `/dev/dma_heap/*`.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Result;
use rustix::ioctl::{self, Opcode, opcode};

use crate::layout::pin_layout;

/// Where the heaps' device nodes are.
pub const DIRECTORY: &str = "/dev/dma_heap";
/// The heap over ordinary memory, zeroed and not necessarily contiguous.
pub const SYSTEM: &str = "/dev/dma_heap/system";

/// `struct dma_heap_allocation_data`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// In: bytes; the kernel rounds up to pages.
    pub len: u64,
    /// Out: the new dma-buf. [`alloc`] returns it owned.
    pub fd: u32,
    /// In: flags of the new descriptor.
    pub fd_flags: u32,
    /// In: must be zero, no heap flag is defined.
    pub heap_flags: u64,
}

pin_layout!(Allocation: 24 { len @ 0, fd @ 8, fd_flags @ 12, heap_flags @ 16 });

/// Number of the ioctl that [`alloc`] makes.
pub const IOC_ALLOC: Opcode = opcode::read_write::<Allocation>(b'H', 0);

/// Opens a heap, [`SYSTEM`] say.
///
/// # Errors
///
/// `ENOENT`: the kernel has no such heap. `EACCES`: no permission on the device node.
pub fn open(path: &str) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Allocates a zeroed dma-buf of `len` bytes, rounded up to pages, readable and writable.
///
/// # Errors
///
/// `EINVAL`: `len` is 0. `ENOMEM`. `EINTR`: a fatal signal.
pub fn alloc(heap: BorrowedFd<'_>, len: u64) -> Result<OwnedFd> {
    let mut data = Allocation {
        len,
        fd_flags: (OFlags::RDWR | OFlags::CLOEXEC).bits(),
        ..Allocation::default()
    };
    // SAFETY: IOC_ALLOC reads and updates a `struct dma_heap_allocation_data`, whose layout
    // `Allocation` has.
    unsafe { ioctl::ioctl(heap, ioctl::Updater::<IOC_ALLOC, Allocation>::new(&mut data))? };
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(data.fd as i32) })
}
