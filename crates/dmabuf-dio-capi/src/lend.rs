// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lending a dma-buf's pages to a ring of the caller.

use std::ffi::c_int;
use std::mem::size_of;
use std::os::fd::{AsFd as _, IntoRawFd as _};

use dmabuf_dio::Refusal;
use dmabuf_dio::lend::{Attached, LendError};
use dmabuf_dio_sys::dio;
use io_uring::{opcode, squeue, types};

use crate::buffer::Buffer;
use crate::failure::{Failure, guard};
use crate::pointers::shared;

/// Direction of a lent range: from files into the buffer, `IORING_OP_READ_FIXED`.
pub const DMABUF_DIO_LEND_READ: u32 = 1;
/// Direction of a lent range: from the buffer into files, `IORING_OP_WRITE_FIXED` and others that send.
pub const DMABUF_DIO_LEND_WRITE: u32 = 2;

/// An entry of a submission queue, as linux/io_uring.h and liburing define it.
#[derive(Debug)]
#[allow(dead_code, reason = "written as a whole, through its address")]
pub struct Sqe([u8; 64]);

/// A range of an attached buffer, and the index of the ring's registered buffer for it. It is `struct
/// dmabuf_dio_slot` of linux/dmabuf_dio.h, which the kernel reads, and never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LentRange {
    /// Start in the buffer in bytes, a multiple of the page size.
    pub buf_offset: u64,
    /// Length in bytes: at least 1, less than 4 GiB. The kernel finds an offset in it by walking the
    /// buffer's segments: 64 to 256 MiB are a good size.
    pub length: u64,
    /// Index in the ring's table of registered buffers.
    pub index: u32,
    /// `DMABUF_DIO_LEND_READ`, `DMABUF_DIO_LEND_WRITE` or both.
    pub directions: u32,
}

const _: () =
    assert!(DMABUF_DIO_LEND_READ == dio::SLOT_READ && DMABUF_DIO_LEND_WRITE == dio::SLOT_WRITE);
const _: () = assert!(size_of::<LentRange>() == size_of::<dio::Slot>());
const _: () = assert!(size_of::<squeue::Entry>() == size_of::<Sqe>());

/// Attaches a dma-buf to the kernel module, which borrows its pages, and returns the module's
/// descriptor for `dmabuf_dio_prep_register`. It belongs to the caller, who closes it; registered
/// ranges stay registered. The buffer may be freed, too.
///
/// Needs the module `dmabuf_dio` and Linux 7.3. A ring's requests on a lent buffer are CPU access: put
/// them between `dmabuf_dio_access_begin` and `dmabuf_dio_access_end`.
///
/// Returns the descriptor; `-ENOENT` if the module is not loaded; `-EACCES` if this user may not open
/// it; `-EOPNOTSUPP` if this kernel cannot lend pages to rings, or the module does not borrow this
/// buffer: its exporter is none that it knows, or its memory was never filled or has a hardware error;
/// `-EINVAL` for a memfd; `-ENOMEM`; `-EMFILE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_attach(buffer: *const Buffer) -> c_int {
    guard(|| {
        // SAFETY: a buffer, as the header demands.
        let buffer = unsafe { shared(buffer, "buffer") }?;
        let attached = Attached::new(buffer.buf()).map_err(Refusal::from)?;
        let info = dio::info(attached.as_fd());
        let info = info.map_err(|errno| Refusal::from(LendError::OtherModule { errno }))?;
        if info.features & dio::FEATURE_SLOTS == 0 {
            return Err(Refusal::from(LendError::NoSlots).into());
        }
        let own = attached.as_fd().try_clone_to_owned().map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EMFILE);
            Failure::new(errno, error.to_string(), "allow more open files: ulimit -n")
        })?;
        Ok(own.into_raw_fd())
    })
}

/// Fills in a submission queue entry that registers a range of the attached buffer as a registered buffer
/// of the ring. All 64 bytes are set: set `user_data` and flags afterwards.
///
/// The ring needs a table of registered buffers with a free entry, such as
/// `io_uring_register_buffers_sparse` makes. `range` must not change until the completion, whose result
/// is 0; `-EINVAL`, `-ERANGE` for the range; `-EBUSY` if the entry of the table is in use; `-EACCES` if
/// the buffer cannot be written; `-EOPNOTSUPP`; `-ENOMEM`. Requests on the registered buffer then use
/// an offset in the range in place of an address. It stays until its entry of the table is emptied, by
/// `io_uring_register_buffers_update_tag` with an address of null and a length of 0, or the ring is
/// closed, and its last request is done.
///
/// Returns 0; `-EFAULT` for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_prep_register(
    sqe: *mut Sqe,
    device: c_int,
    range: *const LentRange,
) -> c_int {
    guard(|| {
        if sqe.is_null() {
            return Err(Failure::null("sqe"));
        }
        if range.is_null() {
            return Err(Failure::null("range"));
        }
        let command = dio::UringCmd {
            arg: range as u64,
            size: size_of::<LentRange>() as u32,
            ..dio::UringCmd::default()
        };
        let entry = opcode::UringCmd16::new(types::Fd(device), dio::URING_REGISTER);
        let entry = entry.cmd(command.to_bytes()).build();
        // SAFETY: both have 64 bytes; the caller's need not be aligned.
        unsafe { sqe.cast::<squeue::Entry>().write_unaligned(entry) };
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_entry_sets_only_the_command() {
        let range = LentRange { buf_offset: 4096, length: 1, index: 2, directions: 3 };
        let mut sqe = Sqe([0xff; 64]);
        // SAFETY: both are there.
        assert_eq!(unsafe { dmabuf_dio_prep_register(&raw mut sqe, 7, &raw const range) }, 0);
        let mut wanted = [0; 64];
        wanted[0] = 46; // IORING_OP_URING_CMD
        wanted[4] = 7;
        wanted[8..12].copy_from_slice(&dio::URING_REGISTER.to_ne_bytes());
        wanted[48..56].copy_from_slice(&(&raw const range as u64).to_ne_bytes());
        wanted[56] = 24;
        assert_eq!(sqe.0, wanted);
    }
}
