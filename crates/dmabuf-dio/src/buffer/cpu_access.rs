// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to a buffer by the CPU, or by a disk that borrows its pages, instead of through a
//! device's own mapping. Exporters synchronise devices and memory when such access begins and ends.

use dmabuf_dio_sys::dmabuf::Access;

use super::shared::Shared;
use crate::direction::Direction;
use crate::error::Result;

/// CPU access to a buffer, ended on drop.
#[derive(Debug)]
pub(crate) struct CpuAccess<'a> {
    buf: &'a Shared,
    access: Access,
    open: bool,
}

impl<'a> CpuAccess<'a> {
    /// Begins read access.
    pub(crate) fn reading(buf: &'a Shared) -> Result<Self> {
        Self::begin(buf, Access::Read)
    }

    /// Begins access to write all or part of the buffer.
    ///
    /// This is not `Write` alone: with that, the exporter need not bring back what a device wrote.
    /// When whole cache lines or a bounce buffer are later copied to the device, bytes next to the
    /// written ones would be reverted.
    pub(crate) fn writing(buf: &'a Shared) -> Result<Self> {
        Self::begin(buf, Access::ReadWrite)
    }

    /// Begins the access that a transfer in this direction needs.
    pub(crate) fn transfer(buf: &'a Shared, direction: Direction) -> Result<Self> {
        match direction {
            Direction::Load => Self::writing(buf),
            Direction::Save => Self::reading(buf),
        }
    }

    fn begin(buf: &'a Shared, access: Access) -> Result<Self> {
        buf.begin_cpu_access(access)?;
        Ok(Self { buf, access, open: true })
    }

    /// Ends the access and reports a failure to do so.
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
