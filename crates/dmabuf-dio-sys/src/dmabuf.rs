// SPDX-License-Identifier: MIT OR Apache-2.0
//! ioctls of a dma-buf: begin and end of CPU access, fences of pending device work, and the name.

use std::ffi::{CStr, c_char, c_void};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode, opcode};

use crate::call::ioctl;
use crate::layout::pin_layout;
use crate::{Errno, Result};

/// Maximum length of a name in bytes, with the terminating NUL.
pub const NAME_LEN: usize = 32;

/// `struct dma_buf_sync`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    /// In: [`Access`], and whether the access begins or ends.
    pub flags: u64,
}

pin_layout!(Sync: 8 { flags @ 0 });

/// `struct dma_buf_export_sync_file`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportSyncFile {
    /// In: [`Access`].
    pub flags: u32,
    /// Out: the `sync_file`.
    pub fd: i32,
}

pin_layout!(ExportSyncFile: 8 { flags @ 0, fd @ 4 });

/// The kind of CPU access between its begin and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the buffer.
    Read,
    /// Writes the buffer.
    Write,
    /// Reads and writes the buffer.
    ReadWrite,
}

impl Access {
    const fn bits(self) -> u64 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::ReadWrite => 3,
        }
    }
}

const SYNC_END: u64 = 1 << 2;

/// Number of the ioctl that [`begin_cpu_access`] and [`end_cpu_access`] make.
pub const IOC_SYNC: Opcode = opcode::write::<Sync>(b'b', 0);
/// Number of the ioctl that [`export_sync_file`] makes.
pub const IOC_EXPORT_SYNC_FILE: Opcode = opcode::read_write::<ExportSyncFile>(b'b', 2);
/// Number of the ioctl that [`set_name`] makes.
pub const IOC_SET_NAME: Opcode = opcode::write::<u64>(b'b', 1);

/// Begins CPU access. Waits for devices that use the buffer.
///
/// # Errors
///
/// `ENOTTY`: not a dma-buf. `EINTR` and `EAGAIN` are not returned: the call is repeated.
pub fn begin_cpu_access(dmabuf: BorrowedFd<'_>, access: Access) -> Result<()> {
    sync(dmabuf, access.bits())
}

/// Ends the CPU access that [`begin_cpu_access`] began with the same `access`.
///
/// # Errors
///
/// As for [`begin_cpu_access`].
pub fn end_cpu_access(dmabuf: BorrowedFd<'_>, access: Access) -> Result<()> {
    sync(dmabuf, access.bits() | SYNC_END)
}

fn sync(dmabuf: BorrowedFd<'_>, flags: u64) -> Result<()> {
    loop {
        // SAFETY: IOC_SYNC reads a `struct dma_buf_sync`, whose layout `Sync` has.
        let result = unsafe { ioctl(dmabuf, ioctl::Setter::<IOC_SYNC, Sync>::new(Sync { flags })) };
        match result {
            Err(Errno::INTR | Errno::AGAIN) => {}
            other => return other,
        }
    }
}

/// Exports a [`sync_file`](crate::sync_file) of the fences that this `access` must wait for. It
/// contains neither completed work nor work that starts later.
///
/// # Errors
///
/// `ENOTTY`: not a dma-buf, or a kernel before 6.0. `EMFILE`, `ENOMEM`.
pub fn export_sync_file(dmabuf: BorrowedFd<'_>, access: Access) -> Result<OwnedFd> {
    let mut export = ExportSyncFile { flags: access.bits() as u32, fd: -1 };
    // SAFETY: IOC_EXPORT_SYNC_FILE reads and writes a `struct dma_buf_export_sync_file`, whose
    // layout `ExportSyncFile` has.
    unsafe {
        let call = ioctl::Updater::<IOC_EXPORT_SYNC_FILE, ExportSyncFile>::new(&mut export);
        ioctl(dmabuf, call)?;
    }
    // SAFETY: the call succeeded and returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(export.fd) })
}

/// Sets the name of the buffer, as shown in `/proc/*/fdinfo` and debugfs.
///
/// # Errors
///
/// `EINVAL`: longer than [`NAME_LEN`] with its NUL. `ENOTTY`: not a dma-buf.
pub fn set_name(dmabuf: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    // SAFETY: the ioctl reads a NUL-terminated string of at most NAME_LEN bytes, and `name` is
    // NUL-terminated.
    unsafe { ioctl(dmabuf, SetName(name.as_ptr())) }
}

struct SetName(*const c_char);

// SAFETY: the kernel reads a string through the pointer and writes nothing.
unsafe impl Ioctl for SetName {
    type Output = ();
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        IOC_SET_NAME
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.0.cast_mut().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}
