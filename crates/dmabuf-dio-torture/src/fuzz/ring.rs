// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring with a small table of slots.

use std::os::fd::AsRawFd as _;
use std::rc::Rc;

use io_uring::{IoUring, squeue, types};

use super::domain::SLOTS;
use super::known::Buffer;
use super::system::Answer;

/// What is known of a slot.
#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) length: u64,
    pub(crate) flags: u64,
    /// Its buffer, if it is only one, and where in it
    pub(crate) part: Option<(Rc<Buffer>, u64)>,
}

pub(crate) struct Ring {
    pub(crate) own: IoUring,
    pub(crate) slots: Vec<Option<Slot>>,
    /// Somebody may have changed slots in an unknown way.
    pub(crate) unknown: bool,
    next: u64,
}

impl Ring {
    pub(crate) fn new() -> Option<Self> {
        let ring = IoUring::new(8).ok()?;
        ring.submitter().register_buffers_sparse(SLOTS as u32).ok()?;
        Some(Self { own: ring, slots: vec![None; SLOTS as usize], unknown: false, next: 1 })
    }

    pub(crate) fn fd(&self) -> i32 {
        self.own.as_raw_fd()
    }

    /// Makes a request. `None`: it has not ended after a while.
    pub(crate) fn run(&mut self, entry: &squeue::Entry) -> Option<Answer> {
        let number = self.next;
        self.next += 1;
        let entry = entry.clone().user_data(number);
        // SAFETY: what the entry points at stays mapped until the process ends.
        if unsafe { self.own.submission().push(&entry) }.is_err() {
            return Some(Err(libc::EBUSY));
        }
        let time = types::Timespec::new().nsec(200_000_000);
        let args = types::SubmitArgs::new().timespec(&time);
        for _ in 0..5 {
            let submitted = self.own.submitter().submit_with_args(1, &args);
            let errno = submitted.err().and_then(|error| error.raw_os_error()).unwrap_or(0);
            while let Some(completion) = self.own.completion().next() {
                if completion.user_data() == number {
                    let result = completion.result();
                    return Some(u64::try_from(result).map_err(|_| -result));
                }
            }
            match errno {
                0 | libc::EINTR => {}
                libc::ETIME => return None,
                errno => return Some(Err(errno)),
            }
        }
        None
    }
}
