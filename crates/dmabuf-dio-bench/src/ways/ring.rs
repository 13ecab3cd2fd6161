// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads by `io_uring` at a queue depth: into memory, registered memory, or slots.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use dmabuf_dio_sys::dio;
use io_uring::{Builder, IoUring, opcode, squeue, types};
use rustix::io::Errno as Os;

use super::flight::{Engine, keep_in_flight, mark};
use crate::outcome::{Trouble, failed};

const REGISTER: &str = "registering slots of /dev/dmabuf_dio";

/// A ring.
pub(crate) struct Uring {
    pub(crate) ring: IoUring,
    /// Whether its completions are polled for.
    polled: bool,
}

impl Uring {
    /// A ring with fixed file 0, if there is one.
    pub(crate) fn new(
        builder: &Builder,
        entries: u32,
        file: Option<&File>,
        polled: bool,
    ) -> Result<Self, Trouble> {
        let make = || {
            let ring = builder.build(entries)?;
            if let Some(file) = file {
                ring.submitter().register_files(&[file.as_raw_fd()])?;
            }
            Ok(Self { ring, polled })
        };
        make().map_err(|error: io::Error| {
            Trouble::unavailable("io_uring", error, "it is missing or forbidden here")
        })
    }

    /// Adds a request to those of the next turn. `mark` comes back with its result.
    ///
    /// # Safety
    ///
    /// What the request points at must be valid until it has completed.
    pub(crate) unsafe fn queue(
        &mut self,
        mark: u64,
        request: squeue::Entry,
    ) -> Result<(), Trouble> {
        // SAFETY: as the caller promises.
        unsafe { self.ring.submission().push(&request.user_data(mark)) }
            .map_err(|_| Trouble::failed("io_uring", Os::BUSY))
    }

    /// Registers `len` bytes of the buffer attached to `context` as slots of `slot_len` bytes.
    pub(crate) fn register_slots(
        &mut self,
        context: BorrowedFd<'_>,
        len: u64,
        slot_len: u64,
    ) -> Result<(), Trouble> {
        let count = len.div_ceil(slot_len) as u32;
        self.ring.submitter().register_buffers_sparse(count).map_err(failed(REGISTER))?;
        for index in 0..count {
            let buf_offset = u64::from(index) * slot_len;
            let slot = dio::Slot {
                buf_offset,
                length: slot_len.min(len - buf_offset),
                index,
                flags: dio::SLOT_READ | dio::SLOT_WRITE,
            };
            let fd = types::Fd(context.as_raw_fd());
            let entry = opcode::UringCmd16::new(fd, dio::URING_REGISTER)
                .cmd(dio::UringCmd::new(&slot).to_bytes())
                .build();
            // SAFETY: `slot` lives until the completion has been taken below.
            unsafe { self.queue(0, entry)? };
            let mut arrived = None;
            while arrived.is_none() {
                self.turn(1, |_, result| arrived = Some(result))?;
            }
            match arrived.filter(|result| *result < 0).map(|errno| Os::from_raw_os_error(-errno)) {
                None => {}
                Some(errno @ Os::OPNOTSUPP) => {
                    return Err(Trouble::unavailable(REGISTER, errno, "slots need Linux 7.3"));
                }
                Some(errno) => return Err(Trouble::failed(REGISTER, errno)),
            }
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
        &mut self,
        address: u64,
        slot_len: u64,
        len: u64,
        (chunk, depth): (u64, u32),
    ) -> Result<(), Trouble> {
        let request = |at: u64| {
            let (index, rest) = (at / slot_len, slot_len - at % slot_len);
            let within = if address == 0 { at % slot_len } else { address + at };
            let count = chunk.min(len - at).min(rest) as u32;
            let entry =
                opcode::ReadFixed::new(types::Fixed(0), within as *mut u8, count, index as u16);
            (entry.offset(at).build(), count)
        };
        // SAFETY: the caller vouches for the buffers.
        unsafe { self.in_order(len, depth, request) }
    }

    /// Makes the `request` for each place up to `len`.
    ///
    /// # Safety
    ///
    /// The memory of the requests must be valid until they have completed.
    unsafe fn in_order(
        &mut self,
        len: u64,
        depth: u32,
        request: impl Fn(u64) -> (squeue::Entry, u32),
    ) -> Result<(), Trouble> {
        let mut at = 0;
        keep_in_flight(self, depth, 1, |ring, tag| {
            if at >= len {
                return Ok(false);
            }
            let (entry, count) = request(at);
            at += u64::from(count);
            // SAFETY: as the caller promises.
            unsafe { ring.queue(mark(tag, count), entry)? };
            Ok(true)
        })
    }
}

/// Reads `bytes` from the beginning of the file as in the manual of `io_uring`: nothing is registered,
/// allocation and I/O do not overlap.
pub(crate) fn read(file: &File, bytes: &mut [u8], piece: u64, depth: u32) -> Result<(), Trouble> {
    let mut ring = Uring::new(&IoUring::builder(), depth, None, false)?;
    let (base, len) = (bytes.as_mut_ptr() as u64, bytes.len() as u64);
    let request = |at: u64| {
        let count = piece.min(len - at) as u32;
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), (base + at) as *mut u8, count);
        (entry.offset(at).build(), count)
    };
    // SAFETY: the memory is that of `bytes`, which this function holds until all requests have
    // completed; no two requests are for the same part.
    unsafe { ring.in_order(len, depth, request) }
}

impl Engine for Uring {
    fn turn(&mut self, least: u32, mut arrived: impl FnMut(u64, i32)) -> Result<(), Trouble> {
        match self.ring.submit_and_wait(least as usize) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            submitted => drop(submitted.map_err(failed("io_uring_enter"))?),
        }
        for entry in self.ring.completion() {
            arrived(entry.user_data(), entry.result());
        }
        Ok(())
    }

    fn failure(&self, errno: Os) -> Trouble {
        match errno {
            Os::OPNOTSUPP | Os::INVAL if self.polled => Trouble::unavailable(
                "polling",
                errno,
                "the disk or its file system has no poll queues: nvme.poll_queues=1 on the kernel's \
                 command line",
            ),
            _ => Trouble::failed("a read by io_uring", errno),
        }
    }
}
