// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's older asynchronous I/O, by its system calls such as `io_submit(2)`, which libaio wraps.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::ptr;

use libc::iocb;
use rustix::io::Errno as Os;

use crate::outcome::{Result, Trouble, failed};
use crate::ways::ring::{Engine, Request};

/// `struct io_event` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct AioEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

pub(crate) struct Libaio {
    context: usize,
    file: RawFd,
    /// By tag.
    requests: Box<[iocb]>,
    queued: Vec<*mut iocb>,
    events: Vec<AioEvent>,
}

fn call(number: i64) -> io::Result<usize> {
    usize::try_from(number).map_err(|_| io::Error::last_os_error())
}

impl Libaio {
    pub(crate) fn new(file: &File, depth: u32) -> Result<Self> {
        let mut context = 0_usize;
        // SAFETY: writes the context it makes to the address it is given.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        call(made).map_err(failed("io_setup"))?;
        let depth = depth as usize;
        // SAFETY: all fields are plain numbers, for which zero is valid; as the operation it is a read.
        let request = || unsafe { std::mem::zeroed() };
        Ok(Self {
            context,
            file: file.as_raw_fd(),
            requests: std::iter::repeat_with(request).take(depth).collect(),
            queued: Vec::with_capacity(depth),
            events: vec![AioEvent::default(); depth],
        })
    }
}

impl Drop for Libaio {
    fn drop(&mut self) {
        // SAFETY: the context is this one's; the call waits for what is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

impl Engine for Libaio {
    unsafe fn queue(
        &mut self,
        mark: u64,
        Request { offset, place, len, .. }: Request,
    ) -> Result<()> {
        // The lower half of a mark is below the depth, and no request in flight has the same.
        let request = &mut self.requests[mark as u32 as usize];
        request.aio_data = mark;
        request.aio_fildes = self.file as u32;
        request.aio_buf = place;
        request.aio_nbytes = len.into();
        request.aio_offset = offset as i64;
        self.queued.push(ptr::from_mut(request));
        Ok(())
    }

    fn turn(&mut self, least: u32, mut arrived: impl FnMut(u64, i32)) -> Result<()> {
        let mut start = 0;
        while start < self.queued.len() {
            let rest = &self.queued[start..];
            // SAFETY: the requests and their memory live until they have arrived, or the context
            // is destroyed.
            let count = unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, rest.len(), rest.as_ptr())
            };
            start += call(count).map_err(failed("io_submit"))?;
        }
        self.queued.clear();
        // SAFETY: as many events fit as are asked for at most.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                u64::from(least),
                self.events.len(),
                self.events.as_mut_ptr(),
                ptr::null_mut::<libc::timespec>(),
            )
        };
        let count = match call(count) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            result => result.map_err(failed("io_getevents"))?,
        };
        for event in &self.events[..count] {
            arrived(event.data, event.res as i32);
        }
        Ok(())
    }

    fn failure(&self, errno: Os) -> Trouble {
        Trouble::failed("a read", errno)
    }
}
