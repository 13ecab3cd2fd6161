// SPDX-License-Identifier: MIT OR Apache-2.0
//! `io_uring` with a fixed file; completions by interrupt or by polling.

use std::fs::File;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno as Os;

use super::engine::{Arrived, Engine};
use super::memory::{MemoryKind, ReadBlocks};
use super::target::BLOCK;
use crate::outcome::{Trouble, failed};

pub(crate) struct Uring {
    // First: it is gone before the memory that requests are for.
    ring: IoUring,
    memory: ReadBlocks,
}

impl Uring {
    pub(crate) fn new(
        file: &File,
        memory: ReadBlocks,
        depth: u32,
        polled: bool,
    ) -> Result<Self, Trouble> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        if polled {
            builder.setup_iopoll();
        }
        let mut ring = builder.build(depth).map_err(failed("io_uring_setup"))?;
        memory.register(&mut ring)?;
        ring.submitter()
            .register_files(&[file.as_raw_fd()])
            .map_err(failed("registering a file"))?;
        Ok(Self { ring, memory })
    }
}

impl Engine for Uring {
    fn queue(&mut self, block: u32, offset: u64) -> Result<(), Trouble> {
        let place = self.memory.place(block) as *mut u8;
        let (file, len) = (types::Fixed(0), BLOCK as u32);
        let entry = match self.memory.kind() {
            MemoryKind::User => opcode::Read::new(file, place, len).offset(offset).build(),
            MemoryKind::Registered | MemoryKind::Lent => {
                opcode::ReadFixed::new(file, place, len, 0).offset(offset).build()
            }
        };
        // SAFETY: the memory is there until the ring, which is dropped first, is gone.
        unsafe { self.ring.submission().push(&entry.user_data(block.into())) }
            .map_err(|_| Trouble::failed("io_uring", Os::BUSY))
    }

    fn turn(&mut self, least: u32, arrived: &mut Arrived) -> Result<(), Trouble> {
        self.ring.submit_and_wait(least as usize).map_err(failed("io_uring_enter"))?;
        for entry in self.ring.completion() {
            arrived.push(entry.user_data() as u32, entry.result());
        }
        Ok(())
    }

    fn memory(&mut self) -> &mut ReadBlocks {
        &mut self.memory
    }
}
