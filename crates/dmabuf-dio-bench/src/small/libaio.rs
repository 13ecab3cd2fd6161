// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's older asynchronous I/O, by its system calls such as `io_submit(2)`, which libaio wraps.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use super::engine::{Arrived, Engine};
use super::memory::ReadBlocks;
use super::target::BLOCK;
use crate::outcome::{Trouble, failed};

const PREAD: u16 = 0;

/// `struct iocb` of `linux/aio_abi.h`, on little-endian machines.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    reqprio: i16,
    fildes: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct AioEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<AioEvent>() == 32);

pub(crate) struct Libaio<'a> {
    context: usize,
    file: &'a File,
    memory: ReadBlocks,
    /// By block.
    requests: Box<[Iocb]>,
    queued: Vec<*mut Iocb>,
    events: Vec<AioEvent>,
}

fn call(number: i64) -> io::Result<usize> {
    usize::try_from(number).map_err(|_| io::Error::last_os_error())
}

impl<'a> Libaio<'a> {
    pub(crate) fn new(file: &'a File, memory: ReadBlocks, depth: u32) -> Result<Self, Trouble> {
        let mut context = 0_usize;
        // SAFETY: writes the context it makes to the address it is given.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        call(made).map_err(failed("io_setup"))?;
        let depth = depth as usize;
        Ok(Self {
            context,
            file,
            memory,
            requests: vec![Iocb::default(); depth].into(),
            queued: Vec::with_capacity(depth),
            events: vec![AioEvent::default(); depth],
        })
    }
}

impl Drop for Libaio<'_> {
    fn drop(&mut self) {
        // SAFETY: the context is this one's; the call waits for what is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

impl Engine for Libaio<'_> {
    fn queue(&mut self, block: u32, offset: u64) -> Result<(), Trouble> {
        let request = &mut self.requests[block as usize];
        *request = Iocb {
            data: block.into(),
            opcode: PREAD,
            fildes: self.file.as_raw_fd() as u32,
            buf: self.memory.place(block),
            nbytes: BLOCK,
            offset: offset as i64,
            ..Iocb::default()
        };
        self.queued.push(ptr::from_mut(request));
        Ok(())
    }

    fn turn(&mut self, least: u32, arrived: &mut Arrived) -> Result<(), Trouble> {
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
        let count = loop {
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
            match call(count) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result.map_err(failed("io_getevents"))?,
            }
        };
        for event in &self.events[..count] {
            arrived.push(event.data as u32, event.res as i32);
        }
        Ok(())
    }

    fn memory(&mut self) -> &mut ReadBlocks {
        &mut self.memory
    }
}
