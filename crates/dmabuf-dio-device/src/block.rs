// SPDX-License-Identifier: MIT OR Apache-2.0
//! A block of a ring: it is filled, and copied to the device.

use dmabuf_dio::{Buffer, CancelToken, Loader};

use crate::device::Device;
use crate::error::Result;
use crate::pinned::{Access, Pinned, Wanted};
use crate::plan::{Read, Source};
use crate::stream::{Event, Stream};

/// Registered memory, and when it is free.
#[derive(Debug)]
pub(crate) struct Block {
    memory: Pinned<Buffer>,
    /// Where the content is, in bytes from its start.
    start: u64,
    /// The last copy from it is over.
    copied: Event,
    is_copied: bool,
}

impl Block {
    pub(crate) fn new(device: &Device, len: u64) -> Result<Self> {
        let copied = Event::new(device)?;
        let mut memory = Buffer::zeroed(len)?;
        let bytes = memory.bytes_mut().unwrap_or_default();
        let (first, length) = (bytes.as_mut_ptr(), bytes.len());
        let wanted = Wanted { first, length, access: Access::Copy, is_ours: true };
        // SAFETY: private memory consists of pages that stay as long as the buffer.
        let memory = unsafe { Pinned::new(device, memory, wanted) }?;
        Ok(Self { memory, start: 0, copied, is_copied: true })
    }

    /// Waits until nothing is copied from it.
    pub(crate) fn wait(&mut self) -> Result<()> {
        if !self.is_copied {
            self.copied.wait()?;
            self.is_copied = true;
        }
        Ok(())
    }

    /// Reads into it.
    pub(crate) fn fill(&mut self, read: &Read<'_>, cancel: &CancelToken) -> Result<()> {
        let (offset, length) = (read.range.start, read.range.end - read.range.start);
        let memory = self.memory.owner_mut();
        match read.source {
            Source::Origin(origin) => {
                let loader = Loader::from(origin).offset(offset).length(length);
                loader.cancel(cancel.clone()).load_over(memory)?;
                self.start = memory.data_offset();
            }
            Source::Bytes(bytes) => {
                let source = &bytes[offset as usize..(offset + length) as usize];
                memory.map_mut()?.write_at(0, source)?;
                self.start = 0;
            }
        }
        Ok(())
    }

    /// Begins to copy from it. Returns how many bytes.
    pub(crate) fn empty(&mut self, read: &Read<'_>, stream: &Stream) -> Result<u64> {
        let memory = self.memory.owner().map()?;
        // SAFETY: private memory that nothing writes before `wait`.
        let bytes = &unsafe { memory.as_slice() }[self.start as usize..];
        let mut copied = 0;
        self.is_copied = false;
        for copy in &read.copies {
            let start = (copy.range.start - read.range.start) as usize;
            let length = copy.range.end - copy.range.start;
            let source = bytes[start..start + length as usize].as_ptr();
            // SAFETY: registered memory, which is neither filled nor freed before `wait`; the place is free, by the
            // promise or the check of `Place`.
            unsafe { stream.copy(copy.address, source, length) }?;
            copied += length;
        }
        self.copied.record(stream)?;
        Ok(copied)
    }

    /// The device may still copy from it.
    pub(crate) fn lose(&mut self) {
        self.memory.lose();
    }
}
