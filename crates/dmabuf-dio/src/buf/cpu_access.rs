// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to a buffer by other means than a device's own mapping of it: by the CPU, or by a disk
//! that borrows its pages. Exporters synchronise devices and memory where it begins and ends.

use dmabuf_dio_sys::dmabuf::Access;

use super::DmaBuf;
use crate::direction::Direction;
use crate::error::Result;

/// Access to a buffer. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct CpuAccess<'a> {
    buf: &'a DmaBuf,
    access: Access,
    open: bool,
}

impl<'a> CpuAccess<'a> {
    /// Access to read.
    pub(crate) fn reading(buf: &'a DmaBuf) -> Result<Self> {
        Self::begin(buf, Access::Read)
    }

    /// Access to write, some of the buffer or all of it.
    ///
    /// It is not `Write` alone: for that the exporter need not bring back what a device wrote, and
    /// what goes to the device in the end, whole cache lines or all of a bounce buffer, would undo
    /// it beside what is written now.
    pub(crate) fn writing(buf: &'a DmaBuf) -> Result<Self> {
        Self::begin(buf, Access::ReadWrite)
    }

    /// Access as a transfer needs it.
    pub(crate) fn transfer(buf: &'a DmaBuf, direction: Direction) -> Result<Self> {
        match direction {
            Direction::Load => Self::writing(buf),
            Direction::Save => Self::reading(buf),
        }
    }

    fn begin(buf: &'a DmaBuf, access: Access) -> Result<Self> {
        buf.begin_cpu_access(access)?;
        Ok(Self { buf, access, open: true })
    }

    /// Ends it, and says if that fails.
    pub(crate) fn end(mut self) -> Result<()> {
        self.open = false;
        self.buf.end_cpu_access(self.access)
    }
}

impl Drop for CpuAccess<'_> {
    fn drop(&mut self) {
        if self.open {
            let _ = self.buf.end_cpu_access(self.access);
        }
    }
}
