// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads by `io_uring` at a queue depth: into memory, registered memory, or slots.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use dmabuf_dio_sys::dio;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno as Os;

use crate::outcome::{Trouble, failed, whole};

const READ: &str = "a read by io_uring";
const REGISTER: &str = "registering slots of /dev/dmabuf_dio";

/// Registers `len` bytes of the buffer attached to `context` as slots of `slot_len` bytes.
pub(crate) fn register_slots(
    ring: &mut IoUring,
    context: BorrowedFd<'_>,
    len: u64,
    slot_len: u64,
) -> Result<(), Trouble> {
    let count = len.div_ceil(slot_len) as u32;
    ring.submitter().register_buffers_sparse(count).map_err(failed(REGISTER))?;
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
        ring.submit_and_wait(1).map_err(failed(REGISTER))?;
        let entry = ring.completion().next().ok_or_else(|| Trouble::failed(REGISTER, Os::IO))?;
        result(&entry).map_err(|errno| match errno {
            Os::OPNOTSUPP => Trouble::unavailable(REGISTER, errno, "slots need Linux 7.3"),
            _ => Trouble::failed(REGISTER, errno),
        })?;
    }
    Ok(())
}

/// Reads `len` bytes of fixed file 0 in requests of `chunk` bytes, `depth` in flight. `address` is that of the
/// registered memory, or 0 for slots; `slot_len` that of one buffer.
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
    let request = |at: u64| {
        let (index, rest) = (at / slot_len, slot_len - at % slot_len);
        let within = if address == 0 { at % slot_len } else { address + at };
        let count = chunk.min(len - at).min(rest);
        let entry =
            opcode::ReadFixed::new(types::Fixed(0), within as *mut u8, count as u32, index as u16);
        (entry.offset(at).build(), count)
    };
    // SAFETY: the caller vouches for the buffers.
    unsafe { keep_in_flight(ring, len, depth, request) }
}

/// Reads `bytes` from the beginning of the file as in the manual of `io_uring`: nothing is registered,
/// allocation and I/O do not overlap.
pub(crate) fn read(file: &File, bytes: &mut [u8], piece: u64, depth: u32) -> Result<(), Trouble> {
    let mut ring = IoUring::new(depth).map_err(no_ring)?;
    let (base, len) = (bytes.as_mut_ptr() as u64, bytes.len() as u64);
    let request = |at: u64| {
        let count = piece.min(len - at);
        let entry =
            opcode::Read::new(types::Fd(file.as_raw_fd()), (base + at) as *mut u8, count as u32);
        (entry.offset(at).build(), count)
    };
    // SAFETY: the memory is that of `bytes`, which this function holds until all requests have
    // completed; no two requests are for the same part.
    unsafe { keep_in_flight(&mut ring, len, depth.into(), request) }
}

pub(crate) fn no_ring(error: io::Error) -> Trouble {
    Trouble::unavailable("io_uring", error, "it is missing or forbidden here")
}

/// Makes the `request` for each place up to `len`, `depth` at a time. Those in flight are waited for, also
/// after a failure, as they still write into the memory.
///
/// # Safety
///
/// The memory of the requests must be valid until they have completed.
unsafe fn keep_in_flight(
    ring: &mut IoUring,
    len: u64,
    depth: u64,
    request: impl Fn(u64) -> (squeue::Entry, u64),
) -> Result<(), Trouble> {
    let (mut started, mut in_flight, mut failure) = (0, 0, Ok(()));
    loop {
        while started < len && in_flight < depth && failure.is_ok() {
            let (entry, count) = request(started);
            // SAFETY: as the caller promises.
            unsafe { push(ring, &entry.user_data(count))? };
            started += count;
            in_flight += 1;
        }
        if in_flight == 0 {
            return failure;
        }
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            submitted => drop(submitted.map_err(failed(READ))?),
        }
        for entry in ring.completion() {
            in_flight -= 1;
            let moved = result(&entry).map_err(failed(READ));
            failure = failure.and(moved.and_then(|moved| whole(READ, moved, entry.user_data())));
        }
    }
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
