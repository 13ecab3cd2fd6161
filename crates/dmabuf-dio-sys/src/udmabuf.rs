// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/udmabuf`: a dma-buf over the pages of a memfd.

use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

use crate::Result;
use crate::call::{self, ioctl};
use crate::layout::pin_layout;

/// Path of the device node.
pub const DEVICE: &str = "/dev/udmabuf";
/// Maximum size of a buffer in MiB. Before Linux 7.3 the default is 64.
pub const SIZE_LIMIT_MB: &str = "/sys/module/udmabuf/parameters/size_limit_mb";
/// Maximum number of memfd ranges in one buffer.
pub const LIST_LIMIT: &str = "/sys/module/udmabuf/parameters/list_limit";

/// `struct udmabuf_create`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Create {
    /// In: a memfd with `F_SEAL_SHRINK` and without `F_SEAL_WRITE`.
    pub memfd: u32,
    /// In: 1 for `O_CLOEXEC`.
    pub flags: u32,
    /// In: offset in the memfd, a multiple of the page size.
    pub offset: u64,
    /// In: length in bytes, a multiple of the page size.
    pub size: u64,
}

pin_layout!(Create: 24 { memfd @ 0, flags @ 4, offset @ 8, size @ 16 });

/// Number of the ioctl that [`create`] makes.
pub const IOC_CREATE: Opcode = opcode::write::<Create>(b'u', 0x42);

const FLAGS_CLOEXEC: u32 = 1;

/// Opens the device.
///
/// # Errors
///
/// `ENOENT`: the kernel has no udmabuf. `EACCES`: no permission on the device node.
pub fn open() -> Result<OwnedFd> {
    call::open(DEVICE, OFlags::RDWR)
}

/// Creates a dma-buf over `size` bytes of `memfd` from `offset`. This pins every page. Fill the
/// memfd first: missing pages are allocated one by one.
///
/// # Errors
///
/// `EINVAL`: offset or size not a multiple of the page size, range beyond the memfd, missing seals,
/// or size above [`SIZE_LIMIT_MB`]. `EBADFD`: not a memfd. `ENOMEM`.
pub fn create(
    device: BorrowedFd<'_>,
    memfd: BorrowedFd<'_>,
    offset: u64,
    size: u64,
) -> Result<OwnedFd> {
    let call =
        CreateCall(Create { memfd: memfd.as_raw_fd() as u32, flags: FLAGS_CLOEXEC, offset, size });
    // SAFETY: IOC_CREATE reads a `struct udmabuf_create`, whose layout `Create` has.
    let fd = unsafe { ioctl(device, call)? };
    // SAFETY: the call succeeded and returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct udmabuf_create_item`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// In: a memfd, as for [`Create::memfd`].
    pub memfd: u32,
    /// Must be 0.
    pub pad: u32,
    /// In: offset in the memfd, a multiple of the page size.
    pub offset: u64,
    /// In: length in bytes, a multiple of the page size.
    pub size: u64,
}

pin_layout!(Item: 24 { memfd @ 0, pad @ 4, offset @ 8, size @ 16 });

/// `struct udmabuf_create_list`, which the items follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// In: 1 for `O_CLOEXEC`.
    pub flags: u32,
    /// In: number of items.
    pub count: u32,
}

pin_layout!(List: 8 { flags @ 0, count @ 4 });

/// Number of the ioctl that [`create_list`] makes.
pub const IOC_CREATE_LIST: Opcode = opcode::write::<List>(b'u', 0x43);

/// A range of a memfd's bytes; both ends are multiples of the page size.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The memfd.
    pub memfd: BorrowedFd<'a>,
    /// The range in it, in bytes.
    pub range: Range<u64>,
}

/// Creates a dma-buf over ranges of memfds, one after the other. This pins every page, as
/// [`create`] does.
///
/// # Errors
///
/// As for [`create`]. `EINVAL` also for more parts than [`LIST_LIMIT`].
pub fn create_list<const N: usize>(
    device: BorrowedFd<'_>,
    parts: [Part<'_>; N],
) -> Result<OwnedFd> {
    let items = parts.map(|part| Item {
        memfd: part.memfd.as_raw_fd() as u32,
        pad: 0,
        offset: part.range.start,
        size: part.range.end - part.range.start,
    });
    let list = List { flags: FLAGS_CLOEXEC, count: N as u32 };
    // SAFETY: IOC_CREATE_LIST reads a `struct udmabuf_create_list` and N items behind it.
    let fd = unsafe { ioctl(device, CreateListCall { list, items })? };
    // SAFETY: the call succeeded and returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The items directly follow the list: its size is a multiple of their alignment.
#[repr(C)]
struct CreateListCall<const N: usize> {
    list: List,
    items: [Item; N],
}

// SAFETY: as for CreateCall; the items that the kernel reads are part of the structure.
unsafe impl<const N: usize> Ioctl for CreateListCall<N> {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        IOC_CREATE_LIST
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::from_mut(self).cast()
    }

    unsafe fn output_from_ptr(
        output: IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

struct CreateCall(Create);

// SAFETY: the kernel reads a `struct udmabuf_create` through the pointer, writes nothing, and
// returns a descriptor.
unsafe impl Ioctl for CreateCall {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        IOC_CREATE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(
        output: IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(output)
    }
}
