// SPDX-License-Identifier: MIT OR Apache-2.0
//! dma-buf heaps: `/dev/dma_heap/*`.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::ioctl::{self, Opcode, opcode};

use crate::Result;
use crate::call::{self, ioctl};
use crate::layout::pin_layout;

/// Folder of the heaps' device nodes.
pub const DIRECTORY: &str = "/dev/dma_heap";
/// The heap of ordinary memory, zeroed and not necessarily contiguous.
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
    /// In: must be zero. The only flag needs the longer [`ReadFile`].
    pub heap_flags: u64,
}

pin_layout!(Allocation: 24 { len @ 0, fd @ 8, fd_flags @ 12, heap_flags @ 16 });

/// Number of the ioctl that [`alloc`] makes.
pub const IOC_ALLOC: Opcode = opcode::read_write::<Allocation>(b'H', 0);

/// Flag of kernels with the patch series: read a file into the new buffer.
pub const FLAG_READ_FILE: u64 = 1 << 0;

/// `struct dma_heap_allocation_data` of kernels with the patch series: [`Allocation`] and the
/// fields for [`FLAG_READ_FILE`]. The kernel accepts both and distinguishes them by size.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadFile {
    /// In: bytes to read; the buffer has this length, rounded up to pages. 0: to the end of the
    /// file.
    pub len: u64,
    /// Out: the new dma-buf. [`alloc_read_file`] returns it owned.
    pub fd: u32,
    /// In: flags of the new descriptor.
    pub fd_flags: u32,
    /// In: [`FLAG_READ_FILE`].
    pub heap_flags: u64,
    /// In: offset in the file, in bytes.
    pub file_offset: u64,
    /// Out: bytes read, less than `len` if the file is shorter. The rest of the buffer is zero.
    pub read_len: u64,
    /// In: a regular file or block device, open for reading; read directly if it is open with
    /// `O_DIRECT`.
    pub file_fd: i32,
    /// In: must be zero.
    pub reserved: u32,
}

pin_layout!(ReadFile: 48 {
    len @ 0, fd @ 8, fd_flags @ 12, heap_flags @ 16, file_offset @ 24, read_len @ 32,
    file_fd @ 40, reserved @ 44,
});

/// Number of the ioctl that [`alloc_read_file`] makes.
pub const IOC_ALLOC_READ_FILE: Opcode = opcode::read_write::<ReadFile>(b'H', 0);

/// Opens a heap, for example [`SYSTEM`].
///
/// # Errors
///
/// `ENOENT`: the kernel has no such heap. `EACCES`: no permission on the device node.
pub fn open(path: &str) -> Result<OwnedFd> {
    call::open(path, OFlags::RDONLY)
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
    unsafe { ioctl(heap, ioctl::Updater::<IOC_ALLOC, Allocation>::new(&mut data))? };
    // SAFETY: the call succeeded and returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(data.fd as i32) })
}

/// Allocates a dma-buf of `len` bytes, rounded up to pages, readable and writable, and reads
/// `len` bytes of `file` from `file_offset` into it while the rest is still being allocated.
/// Returns the buffer and the number of bytes read. The rest of the buffer is zero.
///
/// # Errors
///
/// `EINVAL`: the kernel does not know the flag, the file is neither regular nor a block device,
/// or it is open with `O_DIRECT` and the offset is not aligned. `EOPNOTSUPP`: the kernel knows the
/// flag, but the heap does not support it. `EBADF` and `EISDIR`: the file. `EOVERFLOW`: offset and
/// length wrap. `ENOMEM`. `EIO`. `EINTR`: a fatal signal.
pub fn alloc_read_file(
    heap: BorrowedFd<'_>,
    len: u64,
    file: BorrowedFd<'_>,
    file_offset: u64,
) -> Result<(OwnedFd, u64)> {
    let mut data = ReadFile {
        len,
        fd_flags: (OFlags::RDWR | OFlags::CLOEXEC).bits(),
        heap_flags: FLAG_READ_FILE,
        file_offset,
        file_fd: file.as_raw_fd(),
        ..ReadFile::default()
    };
    // SAFETY: IOC_ALLOC_READ_FILE reads and updates a `struct dma_heap_allocation_data` of the
    // length encoded in the number, whose layout `ReadFile` has.
    unsafe {
        ioctl(heap, ioctl::Updater::<IOC_ALLOC_READ_FILE, ReadFile>::new(&mut data))?;
    };
    // SAFETY: the call succeeded and returned a new descriptor, which nothing else owns.
    let buffer = unsafe { OwnedFd::from_raw_fd(data.fd as i32) };
    Ok((buffer, data.read_len))
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn longer_structure_extends_the_shorter_one() {
        assert_eq!((size_of::<Allocation>(), size_of::<ReadFile>()), (24, 48));
        assert_eq!(offset_of!(ReadFile, len), offset_of!(Allocation, len));
        assert_eq!(offset_of!(ReadFile, fd), offset_of!(Allocation, fd));
        assert_eq!(offset_of!(ReadFile, fd_flags), offset_of!(Allocation, fd_flags));
        assert_eq!(offset_of!(ReadFile, heap_flags), offset_of!(Allocation, heap_flags));
        assert_eq!(offset_of!(ReadFile, file_offset), size_of::<Allocation>());
    }

    // _IOWR('H', 0, ...): direction 3, then size, type and number. The encoding differs on other
    // architectures.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    #[test]
    fn heap_ioctl_numbers_match_the_kernel() {
        assert_eq!(IOC_ALLOC, 0xc018_4800);
        assert_eq!(IOC_ALLOC_READ_FILE, 0xc030_4800);
    }
}
