// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands by which the module fills a ring's table of buffers with attached dma-bufs.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use dmabuf_dio_sys::dio::{self, Join, Slot, UringCmd};
use io_uring::{IoUring, cqueue, opcode, types};

use super::error::{LendError, NotLent};
use super::module::Attached;
use super::uring::wait;
use crate::errno::Errno;
use crate::fd::fdinfo;

/// The user data of a command. No request has it.
pub(super) const LENDING: u64 = u64::MAX - 1;

/// Takes completions of requests that are in flight while a command runs.
pub(super) type Others<'a> = &'a mut dyn FnMut(&cqueue::Entry);

/// Gives a ring a table of `entries` empty buffers.
pub(super) fn register_table(uring: &IoUring, entries: usize) -> Result<(), LendError> {
    uring.submitter().register_buffers_sparse(entries as u32).map_err(|error| LendError::Table {
        entries,
        of: "buffers",
        errno: Errno::from(&error),
    })
}

/// Fills a buffer of a ring with a range of an attached one. Without `others` nothing is in flight,
/// and after an error the ring is unusable.
pub(super) fn register(
    uring: &mut IoUring,
    attached: &Attached,
    slot: &Slot,
    others: Option<Others<'_>>,
) -> Result<(), LendError> {
    let command = UringCmd::new(slot);
    // SAFETY: the command points at `slot`, which outlives the call.
    let result = unsafe { run(uring, attached, dio::URING_REGISTER, command, others) };
    result.map_err(|refused| refused.error(attached, slot.index, slot.length))
}

/// Fills a buffer of a ring in which nothing is in flight with several attached buffers of `length`
/// bytes in all. After an error the ring is unusable.
pub(super) fn register_joined(
    uring: &mut IoUring,
    attached: &[Attached],
    index: u32,
    flags: u32,
    length: u64,
) -> Result<(), LendError> {
    let contexts: Vec<i32> = attached.iter().map(|one| one.as_fd().as_raw_fd()).collect();
    let (first, count) = (contexts.as_ptr() as u64, contexts.len() as u32);
    let join = Join { contexts: first, count, index, flags, reserved: 0 };
    let command = UringCmd::joining(&join);
    // SAFETY: the command points at `join`, and that at `contexts`; both outlive the call.
    let result = unsafe { run(uring, &attached[0], dio::URING_JOIN, command, None) };
    result.map_err(|refused| refused.error(&attached[0], index, length))
}

/// Why a command did not fill a buffer.
struct Refused(&'static str, Errno);

impl Refused {
    /// Of several attached buffers the first is named.
    fn error(self, attached: &Attached, index: u32, length: u64) -> LendError {
        let Self(what, errno) = self;
        if errno == Errno::OPNOTSUPP {
            // Kernels without slots were excluded before.
            let exporter = fdinfo(attached.as_fd(), "exp_name").unwrap_or_else(|| "unknown".into());
            let why = NotLent::Unsynced;
            return LendError::NotLent { exporter, why, errno };
        }
        LendError::Slot { what, index, length, errno }
    }
}

/// The table or the queue is full.
pub(super) fn no_room(index: u32, length: u64) -> LendError {
    let errno = Errno::BUSY;
    LendError::Slot { what: "the ring has no room for", index, length, errno }
}

/// Runs a command of the module and blocks until it is over. With requests in flight it does not
/// give up: without, a kernel that refuses to wait ends it, and the ring must not be used again.
///
/// # Safety
///
/// The data that the command points at outlives the call. (The kernel only reads it, and not after
/// the ring is closed.)
unsafe fn run(
    uring: &mut IoUring,
    attached: &Attached,
    operation: u32,
    command: UringCmd,
    mut others: Option<Others<'_>>,
) -> Result<(), Refused> {
    let device = types::Fd(attached.as_fd().as_raw_fd());
    let entry = opcode::UringCmd16::new(device, operation).cmd(command.to_bytes()).build();
    // SAFETY: promised by the caller.
    if unsafe { uring.submission().push(&entry.user_data(LENDING)) }.is_err() {
        return Err(Refused("the ring has no room for", Errno::BUSY));
    }
    loop {
        let waited = wait(uring, 1);
        for completion in uring.completion() {
            match (completion.user_data(), completion.result()) {
                (LENDING, 0..) => return Ok(()),
                (LENDING, error) => {
                    return Err(Refused("the module refuses", Errno::from_raw(-error)));
                }
                _ => {
                    if let Some(others) = &mut others {
                        others(&completion);
                    }
                }
            }
        }
        match waited {
            Ok(()) => {}
            Err(errno) if others.is_none() => return Err(Refused("cannot submit", errno)),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
