// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads files into mapped memory and writes them from it.

use std::os::fd::BorrowedFd;

use super::raw;
use rustix::io::Errno as Os;

use super::Mapping;
use super::shared::{self, Shared};
use crate::errno::{Errno, IntoErrno};

impl Mapping {
    /// Reads up to `len` bytes from `offset` in a file to `at` in the memory, which the caller may
    /// write. Returns the number of bytes read.
    pub(crate) fn read_from(
        &self,
        at: u64,
        len: u64,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> rustix::io::Result<u64> {
        let to = self.range(at, len);
        // SAFETY: the range lies in the mapping and may be written.
        unsafe { read_at(file, to, len as usize, offset) }.map(|moved| moved as u64)
    }

    /// Reads the available data, up to `len` bytes, from a device or a socket to byte `at` of the
    /// memory, which the caller may write: read(2). Returns the number of bytes.
    ///
    /// # Errors
    ///
    /// The kernel's error number.
    ///
    /// # Panics
    ///
    /// If the range is not in the memory.
    pub fn receive(&self, at: u64, len: u64, from: BorrowedFd<'_>) -> Result<u64, Errno> {
        let to = self.range(at, len);
        // SAFETY: the range lies in the mapping and may be written.
        counted(unsafe { raw::read(from, to, len as usize) })
    }

    /// Writes up to `len` bytes from byte `at` of the memory to a device, as much as it accepts:
    /// write(2). Returns the number of bytes.
    ///
    /// # Errors
    ///
    /// The kernel's error number.
    ///
    /// # Panics
    ///
    /// If the range is not in the memory.
    pub fn give(&self, at: u64, len: u64, to: BorrowedFd<'_>) -> Result<u64, Errno> {
        let from = self.range(at, len);
        // SAFETY: the range lies in the mapping.
        counted(unsafe { raw::write(to, from, len as usize) })
    }

    /// Like [`give`](Self::give), to a socket, and without a signal if the peer has closed: send(2)
    /// with `MSG_NOSIGNAL`.
    ///
    /// # Errors
    ///
    /// The kernel's error number.
    ///
    /// # Panics
    ///
    /// If the range is not in the memory.
    pub fn send(&self, at: u64, len: u64, to: BorrowedFd<'_>) -> Result<u64, Errno> {
        let from = self.range(at, len);
        // SAFETY: the range lies in the mapping.
        counted(unsafe { raw::send(to, from, len as usize) })
    }

    /// Writes up to `len` bytes from `at` in the memory to `offset` in a file. Returns the number
    /// of bytes written.
    pub(crate) fn write_to(
        &self,
        at: u64,
        len: u64,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> rustix::io::Result<u64> {
        let from = self.range(at, len);
        // SAFETY: the range lies in the mapping.
        unsafe { write_at(file, from, len as usize, offset) }.map(|moved| moved as u64)
    }
}

/// Bytes copied at a time.
const COPIED: usize = 1 << 20;

fn counted(moved: rustix::io::Result<usize>) -> Result<u64, Errno> {
    moved.map(|bytes| bytes as u64).map_err(IntoErrno::into_errno)
}

/// File systems without page cache for the file (9p, FUSE with `direct_io`) transfer to pages. A
/// mapping of a dma-buf has none, so they fail with `EFAULT`. The bytes are then copied.
///
/// # Safety
///
/// The range is in a mapping and may be written.
unsafe fn read_at(
    file: BorrowedFd<'_>,
    to: *mut u8,
    len: usize,
    offset: u64,
) -> rustix::io::Result<usize> {
    // SAFETY: the caller's promise.
    match unsafe { raw::pread(file, to, len, offset) } {
        Err(Os::FAULT) => {
            let mut copy = vec![0; len.min(COPIED)];
            let moved = rustix::io::pread(file, &mut copy, offset)?;
            // SAFETY: the copy is owned by this function and equally long; for the target, the
            // caller's promise.
            unsafe { shared::copy_by_kernel(copy.as_ptr(), to, moved, Shared::To)? };
            Ok(moved)
        }
        result => result,
    }
}

/// Writes from mapped memory, in the same way.
///
/// # Safety
///
/// The range is in a mapping.
unsafe fn write_at(
    file: BorrowedFd<'_>,
    from: *const u8,
    len: usize,
    offset: u64,
) -> rustix::io::Result<usize> {
    // SAFETY: the caller's promise.
    match unsafe { raw::pwrite(file, from, len, offset) } {
        Err(Os::FAULT) => {
            let mut copy = vec![0; len.min(COPIED)];
            // SAFETY: the copy is owned by this function and equally long; for the source, the
            // caller's promise.
            unsafe {
                shared::copy_by_kernel(from, copy.as_mut_ptr(), copy.len(), Shared::From)?;
            }
            rustix::io::pwrite(file, &copy, offset)
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn mapping_transfers_bytes_at_their_offsets() {
        let mapping = Mapping::anonymous(4096).expect("memory");
        mapping.fill(0, 4096, 0).expect("zeroed");
        let (mut theirs, ours) = UnixStream::pair().expect("a pair");
        theirs.write_all(b"received").expect("written");
        assert_eq!(mapping.receive(10, 4096 - 10, ours.as_fd()), Ok(8));
        assert_eq!(mapping.to_vec(8, 12).expect("bytes"), b"\0\0received\0\0");
        assert_eq!(mapping.give(10, 7, ours.as_fd()), Ok(7));
        assert_eq!(mapping.send(17, 1, ours.as_fd()), Ok(1));
        let mut bytes = [0; 8];
        theirs.read_exact(&mut bytes).expect("read");
        assert_eq!(&bytes, b"received");
        drop(theirs);
        let closed = mapping.send(0, 1, ours.as_fd());
        assert_eq!(closed, Err(Errno::from_raw(libc::EPIPE)), "and no signal");
    }
}
