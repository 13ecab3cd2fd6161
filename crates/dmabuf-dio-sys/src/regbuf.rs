// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dma-bufs that `io_uring` registers without help, as "Add dmabuf read/write via `io_uring`"
//! proposes. No released kernel does: nothing here has run on one.
//!
//! Layouts and numbers are those of patches 9 and 10 of version 3 (29 April 2026, message
//! `0040156480814237fc099878756fa0fb079e14d2.1777475843.git.asml.silence@gmail.com`). Version 7 (28
//! September 2026, `cover.1790602223.git.asml.silence@gmail.com`) keeps the way of registering; its
//! headers were not compared.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::layout::pin_layout;
use crate::{Errno, Result};

/// `struct io_uring_rsrc_update2`, whose first reserved field becomes `flags`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Update {
    offset: u32,
    flags: u32,
    data: u64,
    tags: u64,
    nr: u32,
    resv2: u32,
}

pin_layout!(Update: 32 { offset @ 0, flags @ 4, data @ 8, tags @ 16, nr @ 24, resv2 @ 28 });

/// `struct io_uring_regbuf_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Description {
    kind: u32,
    flags: u32,
    size: u64,
    uaddr: u64,
    dmabuf_fd: i32,
    target_fd: i32,
    resv: [u64; 6],
}

pin_layout!(Description: 80 {
    kind @ 0, flags @ 4, size @ 8, uaddr @ 16, dmabuf_fd @ 24, target_fd @ 28, resv @ 32,
});

const REGISTER_BUFFERS_UPDATE: libc::c_uint = 16;
const UPDATE_EXTENDED: u32 = 1 << 1;
/// The same author's "zcrx" buffers (July 2026) use 2 as well, so that it alone tells nothing.
const TYPE_DMABUF: u32 = 2;

/// Whether a ring, which has a table of at least one buffer, registers dma-bufs. Changes nothing: it
/// asks for a dma-buf and a file that do not exist.
///
/// # Errors
///
/// It does not. `EINVAL`: the kernel does not know the flag, the type, or these fields of it.
/// `EOPNOTSUPP`: it was built without. `ENXIO`: the ring has no table. Others: of seccomp, or of a
/// restricted ring.
pub fn probe(ring: BorrowedFd<'_>) -> Result<()> {
    ask(|update| call(ring, update))
}

/// Fills entry `index` of a ring's table of buffers with a whole dma-buf, for requests on `target`, a raw
/// block device that is open with `O_DIRECT`. `READ_FIXED` and `WRITE_FIXED` then take an offset in the
/// dma-buf, in bytes, for an address. The ring keeps the dma-buf and its mapping for the device, and the
/// file, until the entry is emptied or the ring is closed.
///
/// # Errors
///
/// `EINVAL`: as for [`probe`]. `EOPNOTSUPP`: the file's driver takes no dma-bufs. `EBADF`: no dma-buf, or
/// no file. `ENXIO`: no such entry. Others: of the dma-buf's exporter.
pub fn register(
    ring: BorrowedFd<'_>,
    index: u32,
    dmabuf: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
) -> Result<()> {
    let (dmabuf_fd, target_fd) = (dmabuf.as_raw_fd(), target.as_raw_fd());
    fill(index, dmabuf_fd, target_fd, |update| call(ring, update))
}

fn call(ring: BorrowedFd<'_>, update: &Update) -> Result<()> {
    // SAFETY: the call reads a `struct io_uring_rsrc_update2` and the description it points at. Both
    // outlive the call, and the kernel keeps neither. The description names no memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            REGISTER_BUFFERS_UPDATE,
            std::ptr::from_ref(update),
            size_of::<Update>() as libc::c_uint,
        )
    };
    if result < 0 { Err(Errno::from(&std::io::Error::last_os_error())) } else { Ok(()) }
}

fn fill(
    offset: u32,
    dmabuf_fd: i32,
    target_fd: i32,
    register: impl FnOnce(&Update) -> Result<()>,
) -> Result<()> {
    let description =
        Description { kind: TYPE_DMABUF, dmabuf_fd, target_fd, ..Description::default() };
    let data = &raw const description as u64;
    register(&Update { offset, flags: UPDATE_EXTENDED, data, nr: 1, ..Update::default() })
}

/// `EBADF` is the only yes: the kernel has read `dmabuf_fd` or `target_fd`, which others have as
/// reserved fields and refuse with `EINVAL`.
fn ask(register: impl FnOnce(&Update) -> Result<()>) -> Result<()> {
    match fill(0, -1, -1, register) {
        Err(Errno::BADF) => Ok(()),
        Err(errno) => Err(errno),
        // It took a dma-buf that does not exist for something else.
        Ok(()) => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the same bytes as the kernel of the proposal. Returns the entry, the dma-buf and the file.
    fn taken(update: &Update) -> (u32, i32, i32) {
        let Update { offset, flags, data, tags, nr, resv2 } = *update;
        assert_eq!((flags, tags, nr, resv2), (2, 0, 1, 0));
        // SAFETY: `fill` passes a description that outlives the call.
        let bytes = unsafe { *(data as *const [u8; 80]) };
        let field = |at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        assert_eq!((field(0), field(4)), (2, 0));
        assert!(bytes[8..24].iter().chain(&bytes[32..]).all(|byte| *byte == 0));
        (offset, field(24), field(28))
    }

    /// Answers as the kernel of the proposal does.
    fn proposed(update: &Update) -> Result<()> {
        assert_eq!(taken(update), (0, -1, -1));
        Err(Errno::BADF)
    }

    #[test]
    fn an_entry_names_the_dma_buf_and_the_file() {
        let mut seen = None;
        let filled = fill(7, 11, 13, |update| {
            seen = Some(taken(update));
            Ok(())
        });
        assert_eq!((filled, seen), (Ok(()), Some((7, 11, 13))));
        let refused = fill(7, 11, 13, |_| Err(Errno::OPNOTSUPP));
        assert_eq!(refused, Err(Errno::OPNOTSUPP));
    }

    #[test]
    fn only_a_kernel_that_looks_for_the_dma_buf_has_it() {
        assert_eq!(ask(proposed), Ok(()));
        for errno in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NXIO, Errno::PERM, Errno::NOSYS] {
            assert_eq!(ask(|_| Err(errno)), Err(errno));
        }
        assert_eq!(ask(|_| Ok(())), Err(Errno::INVAL));
    }
}
