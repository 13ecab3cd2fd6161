// SPDX-License-Identifier: MIT OR Apache-2.0
//! A descriptor for fences, the pending work of devices (`linux/sync_file.h`). `poll()` it for
//! `POLLIN` to wait for completion. [`status`] returns the result.

use std::os::fd::BorrowedFd;

use rustix::ioctl::{self, Opcode, opcode};

use crate::call::ioctl;
use crate::layout::pin_layout;
use crate::{Errno, Result};

/// `struct sync_file_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Out: a NUL-terminated name.
    pub name: [u8; 32],
    /// Out: 0 while the work is pending, 1 when complete, a negative error number if it failed.
    pub status: i32,
    /// In: 0.
    pub flags: u32,
    /// In: capacity of `sync_fence_info`. Out: number of fences.
    pub num_fences: u32,
    /// In: 0.
    pub pad: u32,
    /// In: address of an array, ignored if `num_fences` is 0.
    pub sync_fence_info: u64,
}

pin_layout!(Info: 56 {
    name @ 0, status @ 32, flags @ 36, num_fences @ 40, pad @ 44, sync_fence_info @ 48,
});

/// Number of the ioctl that [`status`] makes.
pub const IOC_FILE_INFO: Opcode = opcode::read_write::<Info>(b'>', 4);

/// Whether the work is complete. Does not block.
///
/// # Errors
///
/// The error of the work, as set by its device: `EINTR` if it was cancelled. `ENOTTY`: not a
/// `sync_file`.
pub fn status(sync_file: BorrowedFd<'_>) -> Result<bool> {
    let mut info = Info::default();
    // SAFETY: IOC_FILE_INFO reads and writes a `struct sync_file_info`, whose layout `Info` has;
    // with a capacity of 0 it writes nothing else.
    unsafe { ioctl(sync_file, ioctl::Updater::<IOC_FILE_INFO, Info>::new(&mut info))? };
    match info.status {
        status if status < 0 => Err(Errno::from_raw(-status)),
        status => Ok(status > 0),
    }
}
