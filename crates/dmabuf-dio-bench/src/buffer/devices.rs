// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices that create dma-bufs and lend their pages.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use dmabuf_dio_sys::{Errno, dio, heap};

use crate::outcome::Trouble;

/// Opens the system heap.
pub(crate) fn open_heap() -> Result<OwnedFd, Trouble> {
    heap::open(heap::SYSTEM).map_err(|errno| {
        let remedy = "this kernel has no system heap: CONFIG_DMABUF_HEAPS_SYSTEM";
        cannot_open(heap::SYSTEM, errno, remedy)
    })
}

/// Why a device cannot be opened; `remedy` is for a missing one.
pub(crate) fn cannot_open(path: &str, errno: Errno, remedy: &str) -> Trouble {
    match errno {
        Errno::ACCESS | Errno::PERM => {
            Trouble::unavailable(path, errno, "this user may not open it: run as root")
        }
        _ => Trouble::unavailable(path, errno, remedy),
    }
}

/// LOAD by the heap flag. Returns the dma-buf and the number of bytes read.
pub(crate) fn allocate_and_read(
    heap: &OwnedFd,
    len: u64,
    file: &File,
) -> Result<(OwnedFd, u64), Trouble> {
    const WHAT: &str = "DMA_HEAP_FLAG_READ_FILE";
    heap::alloc_read_file(heap.as_fd(), len, file.as_fd(), 0).map_err(|errno| match errno {
        Errno::INVAL => {
            Trouble::unavailable(WHAT, errno, "this kernel lacks it; see kernel/series")
        }
        _ => Trouble::failed(WHAT, errno),
    })
}

/// Opens the module's device.
pub(crate) fn open_module() -> Result<OwnedFd, Trouble> {
    dio::open().map_err(|errno| {
        cannot_open(dio::DEVICE, errno, "the module is not loaded: sudo make dkms")
    })
}
