// SPDX-License-Identifier: MIT OR Apache-2.0
//! `READ_FIXED` at a queue depth, into registered user memory or into slots.

use std::os::fd::{AsRawFd, BorrowedFd};

use dmabuf_dio_sys::dio;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno as Os;

use crate::measure::outcome::{Trouble, failed, io_failed, whole};

const READ: &str = "READ_FIXED";
const REGISTER: &str = "registering slots of /dev/dmabuf_dio";

/// Registers `len` bytes of the buffer attached to `context` as slots of `slot_len` bytes.
pub(crate) fn register_slots(
    ring: &mut IoUring,
    context: BorrowedFd<'_>,
    len: u64,
    slot_len: u64,
) -> Result<(), Trouble> {
    let count = len.div_ceil(slot_len) as u32;
    ring.submitter().register_buffers_sparse(count).map_err(io_failed(REGISTER))?;
    for index in 0..count {
        let buf_offset = u64::from(index) * slot_len;
        let slot = dio::Slot {
            buf_offset,
            length: slot_len.min(len - buf_offset),
            index,
            flags: dio::SLOT_READ | dio::SLOT_WRITE,
        };
        let entry = opcode::UringCmd16::new(types::Fd(context.as_raw_fd()), dio::URING_REGISTER)
            .cmd(dio::UringCmd::new(&slot).to_bytes())
            .build();
        // SAFETY: `slot` lives until the completion has been taken below.
        unsafe { push(ring, &entry)? };
        ring.submit_and_wait(1).map_err(io_failed(REGISTER))?;
        let entry = ring.completion().next().ok_or_else(|| Trouble::failed(REGISTER, Os::IO))?;
        result(&entry).map_err(|errno| match errno {
            Os::OPNOTSUPP => Trouble::unavailable(REGISTER, errno, "slots need Linux 7.3"),
            _ => Trouble::failed(REGISTER, errno),
        })?;
    }
    Ok(())
}

/// Reads `len` bytes of `file` (fixed file 0) in requests of `chunk` bytes, `depth` in flight.
/// `address` is that of the registered memory, or 0 for slots; `slot_len` that of one buffer.
///
/// # Safety
///
/// The registered buffers must be at least `len` bytes and hold nothing Rust relies on.
pub(crate) unsafe fn read_fixed(
    ring: &mut IoUring,
    address: u64,
    slot_len: u64,
    len: u64,
    chunk: u64,
    depth: u64,
) -> Result<(), Trouble> {
    let (mut started, mut finished, mut in_flight) = (0, 0, 0);
    while finished < len {
        while started < len && in_flight < depth {
            let index = started / slot_len;
            let within = if address == 0 { started % slot_len } else { address + started };
            let count = chunk.min(len - started).min(slot_len - started % slot_len);
            let entry = opcode::ReadFixed::new(
                types::Fixed(0),
                within as *mut u8,
                count as u32,
                index as u16,
            )
            .offset(started)
            .build()
            .user_data(count);
            // SAFETY: the caller vouches for the buffers.
            unsafe { push(ring, &entry)? };
            started += count;
            in_flight += 1;
        }
        ring.submit_and_wait(1).map_err(io_failed(READ))?;
        while let Some(entry) = ring.completion().next() {
            let moved = result(&entry).map_err(failed(READ))?;
            whole(READ, moved, entry.user_data())?;
            finished += moved;
            in_flight -= 1;
        }
    }
    Ok(())
}

/// # Safety
///
/// What the entry points at must be valid until its completion.
unsafe fn push(ring: &mut IoUring, entry: &squeue::Entry) -> Result<(), Trouble> {
    // SAFETY: as the caller promises.
    unsafe { ring.submission().push(entry) }.map_err(|_| Trouble::failed("io_uring", Os::BUSY))
}

fn result(entry: &io_uring::cqueue::Entry) -> Result<u64, Os> {
    u64::try_from(entry.result()).map_err(|_| Os::from_raw_os_error(-entry.result()))
}
