// SPDX-License-Identifier: MIT OR Apache-2.0
//! A USB function in user space. Its endpoints accept dma-bufs since Linux 6.9
//! (`linux/usb/functionfs.h`).

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::ioctl::{self, Opcode, opcode};

use crate::call::ioctl;
use crate::layout::pin_layout;
use crate::{Errno, Result};

/// `struct usb_ffs_dmabuf_transfer_req`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// In: an attached dma-buf.
    pub fd: i32,
    /// In: 0.
    pub flags: u32,
    /// In: bytes to send or receive, at least 1, at most the length of the dma-buf.
    pub length: u64,
}

pin_layout!(Transfer: 16 { fd @ 0, flags @ 4, length @ 8 });

/// Size of `struct usb_functionfs_event`, which is read from `ep0`.
pub const EVENT_BYTES: usize = 12;

/// Whether an event from `ep0` means that the host has enabled the function.
pub fn is_enable(event: &[u8; EVENT_BYTES]) -> bool {
    const ENABLE: u8 = 2;
    event[8] == ENABLE
}

/// Descriptors and strings to write to `ep0` (`struct usb_functionfs_descs_head_v2`, `struct
/// usb_functionfs_strings_head`). The USB specification defines the descriptors.
pub mod descriptors {
    const MAGIC: u32 = 3;
    const STRINGS_MAGIC: u32 = 2;
    const FULL_SPEED: u32 = 1;
    const HIGH_SPEED: u32 = 2;
    const SUPER_SPEED: u32 = 4;
    const ENGLISH: u16 = 0x0409;

    /// An interface of the vendor-specific class, whose name is the first string.
    const INTERFACE: [u8; 9] = [9, 4, 0, 0, 1, 0xff, 0, 0, 1];
    /// Companion of the preceding endpoint: bursts of up to 16 packets.
    const COMPANION: [u8; 6] = [6, 0x30, 15, 0, 0, 0];

    /// A bulk endpoint to the host.
    fn endpoint(max_packet: u16) -> [u8; 7] {
        let [low, high] = max_packet.to_le_bytes();
        [7, 5, 0x81, 2, low, high, 0]
    }

    /// A function with one bulk endpoint to the host, at full, high and super speed.
    pub fn bulk_in() -> Vec<u8> {
        let mut body = Vec::new();
        for word in [FULL_SPEED | HIGH_SPEED | SUPER_SPEED, 2, 2, 3] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        for max_packet in [64, 512, 1024] {
            body.extend_from_slice(&INTERFACE);
            body.extend_from_slice(&endpoint(max_packet));
        }
        body.extend_from_slice(&COMPANION);
        with_head(MAGIC, &body)
    }

    /// The strings: the function's name.
    pub fn strings(name: &str) -> Vec<u8> {
        let mut body = Vec::new();
        for word in [1_u32, 1] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(&ENGLISH.to_le_bytes());
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        with_head(STRINGS_MAGIC, &body)
    }

    fn with_head(magic: u32, body: &[u8]) -> Vec<u8> {
        let length = 8 + body.len() as u32;
        let mut all = Vec::with_capacity(length as usize);
        all.extend_from_slice(&magic.to_le_bytes());
        all.extend_from_slice(&length.to_le_bytes());
        all.extend_from_slice(body);
        all
    }
}

/// Number of the ioctl that [`attach`] makes.
pub const IOC_ATTACH: Opcode = opcode::write::<i32>(b'g', 131);
/// Number of the ioctl that [`detach`] makes.
pub const IOC_DETACH: Opcode = opcode::write::<i32>(b'g', 132);
/// Number of the ioctl that [`transfer`] makes.
pub const IOC_TRANSFER: Opcode = opcode::write::<Transfer>(b'g', 133);

/// Attaches a dma-buf to an endpoint, until it is detached or the endpoint is closed.
///
/// # Errors
///
/// `EPERM`: the USB device controller has no scatter-gather. `ENOTTY`: Linux before 6.9. `EINVAL`:
/// not a dma-buf.
pub fn attach(endpoint: BorrowedFd<'_>, dmabuf: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: IOC_ATTACH reads a descriptor.
    unsafe { ioctl(endpoint, ioctl::Setter::<IOC_ATTACH, RawFd>::new(dmabuf.as_raw_fd())) }
}

/// Detaches a dma-buf.
///
/// # Errors
///
/// `EPERM`: not attached.
pub fn detach(endpoint: BorrowedFd<'_>, dmabuf: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: IOC_DETACH reads a descriptor.
    unsafe { ioctl(endpoint, ioctl::Setter::<IOC_DETACH, RawFd>::new(dmabuf.as_raw_fd())) }
}

/// Number of the ioctl that [`is_enabled`] makes.
pub const IOC_ENDPOINT_REVMAP: Opcode = opcode::none(b'g', 129);

/// Fails unless the host has enabled the endpoint, which must be open with `O_NONBLOCK`. The call
/// queries the endpoint's address, which only enabled endpoints have.
///
/// # Errors
///
/// `ESHUTDOWN`: no host, or the gadget is unbound.
pub fn is_enabled(endpoint: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: IOC_ENDPOINT_REVMAP takes no argument.
    let result = unsafe { ioctl(endpoint, ioctl::NoArg::<IOC_ENDPOINT_REVMAP>::new()) };
    result.map_err(|errno| if errno == Errno::AGAIN { Errno::SHUTDOWN } else { errno })
}

/// Queues a block and adds a fence to the dma-buf, which signals completion. `poll()` the dma-buf
/// for `POLLOUT` if the endpoint sends to the host, for `POLLIN` if it receives.
///
/// # Errors
///
/// `EPERM`: not attached. `EINVAL`: zero bytes, more than the length of the dma-buf, or unknown
/// flags. `ESHUTDOWN`: no host.
pub fn transfer(endpoint: BorrowedFd<'_>, dmabuf: BorrowedFd<'_>, length: u64) -> Result<()> {
    let request = Transfer { fd: dmabuf.as_raw_fd(), flags: 0, length };
    // SAFETY: IOC_TRANSFER reads a `struct usb_ffs_dmabuf_transfer_req`, whose layout `Transfer`
    // has.
    unsafe { ioctl(endpoint, ioctl::Setter::<IOC_TRANSFER, Transfer>::new(request)) }
}
