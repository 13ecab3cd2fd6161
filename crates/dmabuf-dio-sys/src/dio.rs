// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/dmabuf_dio`: file I/O directly to and from the pages of a dma-buf.
//!
//! An open file of the device is a *context*. A context can attach one dma-buf, with
//! [`attach`], and keeps it until it is closed. [`load`] needs none. The header
//! `linux/dmabuf_dio.h` documents the structures and their fields.
//!
//! The transfer calls take their structure by `&mut`: its output fields, such as `done`, are valid
//! even if the call fails.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::ioctl::{self, Opcode, opcode};

use crate::Result;
use crate::call::{self, ioctl};
use crate::layout::pin_layout;

/// Path of the device node.
pub const DEVICE: &str = "/dev/dmabuf_dio";

/// [`Info::features`]: `io_uring` slots: [`URING_REGISTER`].
pub const FEATURE_SLOTS: u64 = 1 << 0;
/// A slot can cover several buffers: [`Join`].
pub const FEATURE_JOIN: u64 = 1 << 1;
/// The kernel can keep a buffer mapped for a device behind an IOMMU (patch series).
pub const FEATURE_PREMAP: u64 = 1 << 2;
/// Most buffers in a slot made by [`Join`].
pub const JOIN_MAX: usize = 1024;
/// [`Slot::flags`]: file to buffer, `READ_FIXED`.
pub const SLOT_READ: u32 = 1 << 0;
/// [`Slot::flags`]: buffer to file, `WRITE_FIXED`.
pub const SLOT_WRITE: u32 = 1 << 1;

/// [`Attach::refusal`], with `EOPNOTSUPP`: this exporter is not known to keep a buffer in place
/// while its pages are borrowed.
pub const REFUSED_EXPORTER: u32 = 1;
/// [`Attach::refusal`], with `EOPNOTSUPP`: file I/O must not reference the memory of this buffer:
/// uncounted or reserved pages, or device memory.
pub const REFUSED_PAGES: u32 = 2;
/// [`Attach::refusal`], with `EOPNOTSUPP`: the buffer has no kernel mapping, or one of other pages,
/// as udmabuf over huge pages has on Linux 6.12.
pub const REFUSED_MAPPING: u32 = 3;
/// [`ReadWrite::refusal`], with `EBUSY`, and [`Attach::refusal`]: a device that has attached the
/// buffer, or the exporter's own, needs synchronisation, which the exporter (this kernel's udmabuf,
/// most drivers of DRM) does not do; or it maps memory write-combined on another processor than x86-64.
pub const REFUSED_UNSYNCED: u32 = 4;
/// [`Attach::refusal`], with `EOPNOTSUPP`: the udmabuf's memfd has pages that were only allocated, by
/// `fallocate(2)`. The first write to the memfd, or access by a mapping, zeroes them, whatever has been stored by then.
pub const REFUSED_UNFILLED: u32 = 5;
/// [`Attach::refusal`], with `EOPNOTSUPP`: a page of the buffer has a hardware memory error.
pub const REFUSED_POISONED: u32 = 6;

/// The features of the module: `struct dmabuf_dio_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Out: `FEATURE_*` bits.
    pub features: u64,
    /// Out: largest accepted number of requests in flight.
    pub max_depth: u32,
    /// Must be zero.
    pub reserved: u32,
    /// Out: largest accepted request, in bytes.
    pub max_chunk: u64,
    /// Out: request size used when 0 is passed, in bytes.
    pub default_chunk: u64,
    /// Out: gather size used when 0 is passed, in bytes.
    pub default_gather: u64,
    /// Out: requests in flight when 0 is passed.
    pub default_depth: u32,
    /// Must be zero.
    pub reserved2: u32,
}

pin_layout!(Info: 48 {
    features @ 0, max_depth @ 8, reserved @ 12, max_chunk @ 16, default_chunk @ 24,
    default_gather @ 32, default_depth @ 40, reserved2 @ 44,
});

/// Borrows the pages of a dma-buf: `struct dmabuf_dio_attach`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attach {
    /// In: the dma-buf. The caller may close it afterwards.
    pub dmabuf_fd: i32,
    /// In: must be zero.
    pub flags: u32,
    /// Out: length of the buffer, in bytes.
    pub length: u64,
    /// Out: number of physically contiguous segments.
    pub segments: u32,
    /// Out, with `EOPNOTSUPP`: the reason, one of `REFUSED_*`. In: must be zero.
    pub refusal: u32,
}

pin_layout!(Attach: 24 { dmabuf_fd @ 0, flags @ 4, length @ 8, segments @ 16, refusal @ 20 });

/// Transfers a range between a file and the attached buffer: `struct dmabuf_dio_rw`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadWrite {
    /// In: a regular file or block device.
    pub file_fd: i32,
    /// In: must be zero.
    pub flags: u32,
    /// In: offset in the file.
    pub file_offset: u64,
    /// In: offset in the buffer.
    pub buf_offset: u64,
    /// In: bytes to transfer.
    pub length: u64,
    /// In: bytes per request, a multiple of the page size; 0: default.
    pub chunk: u64,
    /// In: requests in flight; 0: default.
    pub depth: u32,
    /// Out, with `EINVAL` for alignment: the modulus by which the two offsets must be congruent.
    pub align: u32,
    /// Out: bytes transferred, without a gap, even if the call fails.
    pub done: u64,
    /// Out: bytes of [`done`](Self::done) that were requested with `O_DIRECT`.
    pub direct: u64,
    /// Out, with `EBUSY`: the reason, [`REFUSED_UNSYNCED`].
    pub refusal: u32,
    /// Must be zero.
    pub reserved: u32,
}

pin_layout!(ReadWrite: 72 {
    file_fd @ 0, flags @ 4, file_offset @ 8, buf_offset @ 16, length @ 24, chunk @ 32,
    depth @ 40, align @ 44, done @ 48, direct @ 56, refusal @ 64, reserved @ 68,
});

/// Allocates a dma-buf and reads a file into it: `struct dmabuf_dio_load`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// In: a regular file or block device.
    pub file_fd: i32,
    /// In: `O_CLOEXEC`, and `O_RDONLY` or `O_RDWR`, for the new descriptor.
    pub fd_flags: u32,
    /// In: must be zero.
    pub flags: u32,
    /// In: requests in flight; 0: default.
    pub depth: u32,
    /// In: offset in the file.
    pub file_offset: u64,
    /// In: bytes to read, at least 1.
    pub length: u64,
    /// In: bytes to allocate before the first read is issued; 0: the module's parameter.
    pub gather: u64,
    /// In: bytes per request, a multiple of the page size; 0: default.
    pub chunk: u64,
    /// Out: the new dma-buf, owned by the caller. [`load`] returns it owned.
    pub dmabuf_fd: i32,
    /// Out: number of physically contiguous segments.
    pub segments: u32,
    /// Out: length of the dma-buf: [`length`](Self::length) rounded up to pages.
    pub buf_length: u64,
    /// Out: bytes read, even if the call fails.
    pub done: u64,
    /// Out: bytes of [`done`](Self::done) that were requested with `O_DIRECT`.
    pub direct: u64,
    /// Out, with `EINVAL` for alignment: `file_offset` must be a multiple of this.
    pub align: u32,
    /// Must be zero.
    pub reserved: u32,
}

pin_layout!(Load: 88 {
    file_fd @ 0, fd_flags @ 4, flags @ 8, depth @ 12, file_offset @ 16, length @ 24,
    gather @ 32, chunk @ 40, dmabuf_fd @ 48, segments @ 52, buf_length @ 56, done @ 64,
    direct @ 72, align @ 80, reserved @ 84,
});

/// An `io_uring` fixed buffer over part of the attached buffer: `struct dmabuf_dio_slot`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// In: offset in the attached buffer, a multiple of the page size.
    pub buf_offset: u64,
    /// In: bytes, at least 1, less than 4 GiB.
    pub length: u64,
    /// In: index in the ring's table of registered buffers.
    pub index: u32,
    /// In: `SLOT_*` bits, at least one direction.
    pub flags: u32,
}

pin_layout!(Slot: 24 { buf_offset @ 0, length @ 8, index @ 16, flags @ 20 });

/// An `io_uring` fixed buffer over several whole buffers, one after the other: `struct
/// dmabuf_dio_join`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Join {
    /// In: address of an array of `i32`: contexts, each with an attached buffer.
    pub contexts: u64,
    /// In: their number, 1 to [`JOIN_MAX`].
    pub count: u32,
    /// In: index in the ring's table of registered buffers.
    pub index: u32,
    /// In: `SLOT_*` bits, at least one direction.
    pub flags: u32,
    /// Must be zero.
    pub reserved: u32,
}

pin_layout!(Join: 24 { contexts @ 0, count @ 8, index @ 12, flags @ 16, reserved @ 20 });

/// The SQE's command area: `struct dmabuf_dio_uring_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UringCmd {
    /// User address of a [`Slot`] or a [`Join`].
    pub arg: u64,
    /// Its size in bytes.
    pub size: u32,
    /// Must be zero.
    pub reserved: u32,
}

pin_layout!(UringCmd: 16 { arg @ 0, size @ 8, reserved @ 12 });

impl UringCmd {
    /// A command that points at `slot`, which must not move before the completion.
    pub fn new(slot: &Slot) -> Self {
        Self { arg: std::ptr::from_ref(slot) as u64, size: size_of::<Slot>() as u32, reserved: 0 }
    }

    /// A command that points at `join`, which must not move before the completion, nor the array
    /// of contexts.
    pub fn joining(join: &Join) -> Self {
        Self { arg: std::ptr::from_ref(join) as u64, size: size_of::<Join>() as u32, reserved: 0 }
    }

    /// The 16 bytes of the command area, as `io_uring::opcode::UringCmd16` takes them.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.arg.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.size.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.reserved.to_ne_bytes());
        bytes
    }
}

const MAGIC: u8 = 0xdb;

/// Number of the ioctl that [`info`] makes.
pub const IOC_INFO: Opcode = opcode::read_write::<Info>(MAGIC, 0);
/// Number of the ioctl that [`attach`] makes.
pub const IOC_ATTACH: Opcode = opcode::read_write::<Attach>(MAGIC, 1);
/// Number of the ioctl that [`read`] makes.
pub const IOC_READ: Opcode = opcode::read_write::<ReadWrite>(MAGIC, 2);
/// Number of the ioctl that [`write()`] makes.
pub const IOC_WRITE: Opcode = opcode::read_write::<ReadWrite>(MAGIC, 3);
/// Number of the ioctl that [`load`] makes.
pub const IOC_LOAD: Opcode = opcode::read_write::<Load>(MAGIC, 4);
/// Number of the ioctl that [`cancel`] makes.
pub const IOC_CANCEL: Opcode = opcode::none(MAGIC, 5);
/// `cmd_op` of the `IORING_OP_URING_CMD` that fills a slot. `IORING_REGISTER_BUFFERS_UPDATE` empties
/// it.
pub const URING_REGISTER: u32 = opcode::write::<Slot>(MAGIC, 0x80) as u32;
/// `cmd_op` of the `IORING_OP_URING_CMD` that fills a slot with several buffers.
pub const URING_JOIN: u32 = opcode::write::<Join>(MAGIC, 0x82) as u32;

/// Opens a context on [`DEVICE`].
///
/// # Errors
///
/// `ENOENT`: the module is not loaded. `EACCES`: no permission on the device node.
pub fn open() -> Result<OwnedFd> {
    call::open(DEVICE, OFlags::RDWR)
}

/// Returns what the module can do.
///
/// # Errors
///
/// `ENOTTY`: `context` is not a file of the device.
pub fn info(context: BorrowedFd<'_>) -> Result<Info> {
    let mut info = Info::default();
    // SAFETY: IOC_INFO reads and fills a `struct dmabuf_dio_info`, whose layout `Info` has.
    unsafe { ioctl(context, ioctl::Updater::<IOC_INFO, Info>::new(&mut info))? };
    Ok(info)
}

/// Attaches `dmabuf` to the context and fills in `attach`. The module takes a reference to the
/// buffer.
///
/// # Errors
///
/// `EINVAL`: not a dma-buf. `EBUSY`: the context already has a buffer. `EOPNOTSUPP`: the module
/// does not borrow the pages of this buffer; [`Attach::refusal`] says why. `ENOMEM`.
pub fn attach(context: BorrowedFd<'_>, dmabuf: BorrowedFd<'_>, attach: &mut Attach) -> Result<()> {
    use std::os::fd::AsRawFd;
    *attach = Attach { dmabuf_fd: dmabuf.as_raw_fd(), ..Attach::default() };
    // SAFETY: IOC_ATTACH reads and fills a `struct dmabuf_dio_attach`, whose layout `Attach` has.
    unsafe { ioctl(context, ioctl::Updater::<IOC_ATTACH, Attach>::new(attach)) }
}

/// Reads a range of a file into the attached buffer. Blocks until the range is complete.
///
/// On success, `done` is less than `length` only at the end of the file.
///
/// # Errors
///
/// `EINTR`: a signal arrived; the caller continues after `done`. `ECANCELED`: see [`cancel`].
/// `EBUSY`: see [`ReadWrite::refusal`].
/// `ENOTCONN`: no buffer attached. `EBADF`: no such file, or not open for reading. `EISDIR`.
/// `EINVAL`: neither a regular file nor a block device, or alignment (see [`ReadWrite::align`]).
/// `EOVERFLOW`: the file range wraps. `ERANGE`: the range exceeds the buffer. Also errors of the
/// file system, such as `EIO`.
pub fn read(context: BorrowedFd<'_>, rw: &mut ReadWrite) -> Result<()> {
    // SAFETY: IOC_READ reads and updates a `struct dmabuf_dio_rw`, whose layout `ReadWrite` has.
    // The buffer it fills belongs to a dma-buf, not to Rust.
    unsafe { ioctl(context, ioctl::Updater::<IOC_READ, ReadWrite>::new(rw)) }
}

/// Writes a range of the attached buffer to a file. Blocks until the range is complete.
///
/// # Errors
///
/// As for [`read`], with `EBADF` for a file that is not open for writing or open with `O_APPEND`,
/// and errors of the file system such as `ENOSPC` and `EFBIG`.
pub fn write(context: BorrowedFd<'_>, rw: &mut ReadWrite) -> Result<()> {
    // SAFETY: IOC_WRITE reads and updates a `struct dmabuf_dio_rw`, whose layout `ReadWrite` has.
    unsafe { ioctl(context, ioctl::Updater::<IOC_WRITE, ReadWrite>::new(rw)) }
}

/// Allocates a dma-buf, reads a file into it and returns it. Blocks until the read is complete.
///
/// The buffer is returned only if the whole range was read. The rest of its last page is zero. On
/// failure the memory is freed.
///
/// After `EINTR`, however, the context keeps the memory and the data read so far. A second call
/// with the same file, offset and length continues there, and [`done`](Load::done) still counts
/// from the start of the range. Another load or closing the context frees that memory.
///
/// # Errors
///
/// As for [`read`], and `ENODATA`: the file ends before the range. `EINVAL`: also a length of 0.
/// `ENOMEM`: not enough memory. `EMFILE`.
pub fn load(context: BorrowedFd<'_>, load: &mut Load) -> Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    load.dmabuf_fd = -1;
    // SAFETY: IOC_LOAD reads and updates a `struct dmabuf_dio_load`, whose layout `Load` has.
    unsafe { ioctl(context, ioctl::Updater::<IOC_LOAD, Load>::new(load))? };
    // SAFETY: the call succeeded and returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(load.dmabuf_fd) })
}

/// Cancels the [`read()`], [`write()`] and [`load()`] calls that run on the context: they fail with
/// `ECANCELED` once their requests in flight have completed. Does not wait for them. All later
/// such calls on this context fail, too.
///
/// # Errors
///
/// `ENOTTY`: `context` is not a file of the device.
pub fn cancel(context: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: IOC_CANCEL takes no argument.
    unsafe { ioctl(context, ioctl::NoArg::<IOC_CANCEL>::new()) }
}
