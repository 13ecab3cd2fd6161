// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers of an IIO device, with dma-bufs as blocks of samples (`linux/iio/buffer.h`, since
//! Linux 6.11; `Documentation/iio/iio_dmabuf_api.rst`).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::ioctl::{self, Opcode, opcode};

use crate::Result;
use crate::call::ioctl;
use crate::layout::pin_layout;

/// `struct iio_dmabuf`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enqueue {
    /// In: an attached dma-buf.
    pub fd: u32,
    /// In: [`CYCLIC`] or 0.
    pub flags: u32,
    /// In: bytes to capture or output, at least 1, at most the length of the dma-buf; whole
    /// frames.
    pub bytes_used: u64,
}

pin_layout!(Enqueue: 16 { fd @ 0, flags @ 4, bytes_used @ 8 });

/// The device repeats the block until another is queued or the buffer is disabled.
pub const CYCLIC: u32 = 1;

/// Number of the ioctl that [`get_fd`] makes.
pub const IOC_GET_FD: Opcode = opcode::read_write::<i32>(b'i', 0x91);
/// Number of the ioctl that [`attach`] makes.
pub const IOC_ATTACH: Opcode = opcode::write::<i32>(b'i', 0x92);
/// Number of the ioctl that [`detach`] makes.
pub const IOC_DETACH: Opcode = opcode::write::<i32>(b'i', 0x93);
/// Number of the ioctl that [`enqueue`] makes.
pub const IOC_ENQUEUE: Opcode = opcode::write::<Enqueue>(b'i', 0x94);

/// Opens a buffer of an IIO device (`/dev/iio:deviceN`) exclusively. The descriptor does not
/// inherit the flags of the device's descriptor.
///
/// # Errors
///
/// `ENODEV`: no such buffer, or the device is gone. `EBUSY`: the buffer is in use. `ENOTTY`: not an
/// IIO device, or Linux before 5.13.
pub fn get_fd(device: BorrowedFd<'_>, number: i32) -> Result<OwnedFd> {
    let mut value = number;
    // SAFETY: IOC_GET_FD reads the number of a buffer and writes a descriptor in its place.
    unsafe { ioctl(device, ioctl::Updater::<IOC_GET_FD, i32>::new(&mut value))? };
    // SAFETY: the call succeeded and returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(value) })
}

/// Attaches a dma-buf to a buffer. It is mapped for the device until it is detached or the buffer
/// is closed.
///
/// # Errors
///
/// `EPERM`: the buffer does not support dma-bufs. `EBUSY`: already attached, or in use by `read()`
/// or `write()`. `ENOTTY`: Linux before 6.11. `EINVAL`: not a dma-buf.
pub fn attach(buffer: BorrowedFd<'_>, dmabuf: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: IOC_ATTACH reads a descriptor.
    unsafe { ioctl(buffer, ioctl::Setter::<IOC_ATTACH, RawFd>::new(dmabuf.as_raw_fd())) }
}

/// Detaches a dma-buf. Queued blocks keep it until they are complete.
///
/// # Errors
///
/// `EPERM`: not attached.
pub fn detach(buffer: BorrowedFd<'_>, dmabuf: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: IOC_DETACH reads a descriptor.
    unsafe { ioctl(buffer, ioctl::Setter::<IOC_DETACH, RawFd>::new(dmabuf.as_raw_fd())) }
}

/// Queues a block and adds a fence to the dma-buf, which signals completion. `poll()` the dma-buf
/// for `POLLIN` if the device fills it, for `POLLOUT` if the device reads it.
///
/// Waits up to 5 s for other users of the dma-buf, or not at all if the buffer's descriptor is
/// non-blocking.
///
/// # Errors
///
/// `EPERM`: not attached. `EINVAL`: zero bytes, more than the length of the dma-buf, unknown flags,
/// or cyclic input. `EBUSY`: already queued, or in use.
pub fn enqueue(
    buffer: BorrowedFd<'_>,
    dmabuf: BorrowedFd<'_>,
    bytes_used: u64,
    flags: u32,
) -> Result<()> {
    let block = Enqueue { fd: dmabuf.as_raw_fd() as u32, flags, bytes_used };
    // SAFETY: IOC_ENQUEUE reads a `struct iio_dmabuf`, whose layout `Enqueue` has.
    unsafe { ioctl(buffer, ioctl::Setter::<IOC_ENQUEUE, Enqueue>::new(block)) }
}
