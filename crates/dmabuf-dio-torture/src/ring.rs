// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring with a table of slots, one request at a time.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd};

use dmabuf_dio_sys::Errno;
use dmabuf_dio_sys::dio::{self, Join, Slot, UringCmd};
use io_uring::{IoUring, opcode, squeue, types};

pub(crate) struct Ring(RefCell<IoUring>);

impl Ring {
    pub(crate) fn new(slots: u32) -> Result<Self, String> {
        let ring = IoUring::new(4).map_err(|error| format!("a ring: {error}"))?;
        ring.submitter()
            .register_buffers_sparse(slots)
            .map_err(|error| format!("a table of buffers: {error}"))?;
        Ok(Self(RefCell::new(ring)))
    }

    /// # Safety
    ///
    /// What the entry points at outlives the call.
    unsafe fn run(&self, entry: &squeue::Entry) -> Result<u64, Errno> {
        let mut ring = self.0.borrow_mut();
        // SAFETY: the caller's promise.
        unsafe { ring.submission().push(entry) }.map_err(|_| Errno::BUSY)?;
        loop {
            match ring.submit_and_wait(1) {
                Err(error) if Errno::from(&error) != Errno::INTR => {
                    return Err(Errno::from(&error));
                }
                _ => {}
            }
            if let Some(completion) = ring.completion().next() {
                let result = completion.result();
                return u64::try_from(result).map_err(|_| Errno::from_raw(-result));
            }
        }
    }

    pub(crate) fn register(&self, context: BorrowedFd<'_>, slot: &Slot) -> Result<(), Errno> {
        let command = UringCmd::new(slot).to_bytes();
        let operation = dio::URING_REGISTER;
        let entry = opcode::UringCmd16::new(types::Fd(context.as_raw_fd()), operation);
        // SAFETY: the command points at `slot`.
        unsafe { self.run(&entry.cmd(command).build()) }.map(|_| ())
    }

    /// With a structure of any size.
    pub(crate) fn register_bytes(&self, context: BorrowedFd<'_>, slot: &[u8]) -> Result<(), Errno> {
        let command =
            UringCmd { arg: slot.as_ptr() as u64, size: slot.len() as u32, reserved: 0 }.to_bytes();
        let entry = opcode::UringCmd16::new(types::Fd(context.as_raw_fd()), dio::URING_REGISTER);
        // SAFETY: the command points at `slot`.
        unsafe { self.run(&entry.cmd(command).build()) }.map(|_| ())
    }

    pub(crate) fn join(
        &self,
        contexts: &[BorrowedFd<'_>],
        index: u32,
        flags: u32,
    ) -> Result<(), Errno> {
        let fds: Vec<i32> = contexts.iter().map(AsRawFd::as_raw_fd).collect();
        let (list, count) = (fds.as_ptr() as u64, fds.len() as u32);
        let join = Join { contexts: list, count, index, flags, reserved: 0 };
        let command = UringCmd::joining(&join).to_bytes();
        let entry = opcode::UringCmd16::new(types::Fd(fds[0]), dio::URING_JOIN);
        // SAFETY: the command points at `join`, and that at `fds`.
        unsafe { self.run(&entry.cmd(command).build()) }.map(|_| ())
    }

    pub(crate) fn clear(&self, index: u32) -> Result<(), Errno> {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: an empty buffer refers to no memory.
        unsafe { self.0.borrow().submitter().register_buffers_update(index, &[none], None) }
            .map_err(|error| Errno::from(&error))
    }

    /// Moves `length` bytes between `skip` in a slot and `at` in a file.
    pub(crate) fn transfer(
        &self,
        write: bool,
        index: u32,
        skip: u64,
        length: u32,
        file: BorrowedFd<'_>,
        at: u64,
    ) -> Result<u64, Errno> {
        let fd = types::Fd(file.as_raw_fd());
        let (index, address) = (index as u16, skip as *mut u8);
        let entry = if write {
            opcode::WriteFixed::new(fd, address, length, index).offset(at).build()
        } else {
            opcode::ReadFixed::new(fd, address, length, index).offset(at).build()
        };
        // SAFETY: the address is an offset in a slot, whose memory the kernel keeps.
        unsafe { self.run(&entry) }
    }
}
