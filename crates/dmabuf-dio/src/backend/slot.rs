// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dma-buf's pages as `io_uring` registered buffers, lent by the kernel module.

use std::ops::Range;

use super::Backend;
use super::driver::{Driver, Reach};
use super::module::{explain, transfer_extent};
use crate::buffer::cpu_access::CpuAccess;
use crate::buffer::shared::Shared;
use crate::direction::Direction;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::file::extent::Extent;
use crate::kind::Kind;
use crate::lend::{Attached, Context, Cut, LendError, Memory, Ring};
use crate::memory::page::page_size;
use crate::refusal;
use crate::refusal::attempt::Attempt;
use crate::transfer::ring::{Buffer, run};
use crate::transfer::system_heap;
use crate::transfer::task::{Fresh, Task, Transferred};
use crate::transfer::{Job, Progress, Stop};

/// Bytes per slot: the kernel walks a slot's pages to find an offset in it.
const SLOT: u64 = 256 << 20;

pub(crate) struct UringSlot;

impl Driver for UringSlot {
    fn backend(&self) -> Backend {
        Backend::UringSlot
    }

    /// Loads into a new buffer of the system heap.
    fn load(&self, task: &Task<'_>, _: Kind) -> Result<Fresh, Attempt> {
        // Checked first, so that a refusal costs no allocation.
        context()?;
        system_heap::load(self, task)
    }

    /// Transfers between a file and a range of an existing buffer.
    fn transfer(
        &self,
        task: &Task<'_>,
        buf: &Shared,
        extent: Extent,
    ) -> Result<Transferred, Attempt> {
        let context = context()?;
        refusal::check_ring(Backend::UringSlot, task.file)?;
        let mut uring = refusal::ring(Backend::UringSlot, task.depth(), false)?;
        if task.direction == Direction::Load && !buf.is_writable() {
            return Err(Error::ReadOnlyBuffer.into());
        }
        let attached = context.attach(buf).map_err(refused)?;
        let mut slots = Slots::over(extent);
        let cut = Cut { step: SLOT, overlap: 0 };
        let pieces = cut.pieces(slots.0.clone()).map(|(start, len)| (&attached, start, len));
        let memory = Memory::lend(&mut uring, pieces, task.direction).map_err(refused)?;
        let mut ring = Ring::new(uring, memory);
        let mut edge = |part: Extent| edge(task, &attached, part);
        // The ioctl for the edges begins its own CPU access. Nested in another CPU access, it would
        // overwrite the data just loaded with what a device saw before.
        let mut core = |job: &Job<'_>| {
            let access = CpuAccess::transfer(buf, task.direction).map_err(Stop::Memory)?;
            run(&mut ring, job, &mut slots)?;
            access.end().map_err(Stop::Memory)
        };
        let mut moved = task.in_parts(extent, &mut core, &mut edge)?;
        moved.segments = Some(attached.segments());
        Ok(moved)
    }

    fn reach(&self, buf: &Shared) -> Result<Reach, Attempt> {
        Ok(Reach::LentRing(context()?.attach(buf).map_err(refused)?))
    }

    fn try_out(&self) -> Result<String, Attempt> {
        let context = context()?;
        let buf = system_heap::alloc(Backend::UringSlot, page_size())?;
        let attached = context.attach(&buf).map_err(refused)?;
        let mut uring = refusal::ring(Backend::UringSlot, 1, false)?;
        let memory = Memory::lend(&mut uring, [(&attached, 0, page_size())], Direction::Load);
        drop(Ring::new(uring, memory.map_err(refused)?));
        CpuAccess::reading(&buf)?.end()?;
        Ok("loads into a dma-buf of the system heap by io_uring".into())
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn refused(error: LendError) -> Attempt {
    refusal::lending(Backend::UringSlot, &error)
}

fn context() -> Result<Context, Attempt> {
    Context::with_slots().map_err(refused)
}

/// Moves less than a block by the module's ioctl, which leaves the adjacent bytes unchanged.
fn edge(task: &Task<'_>, attached: &Attached, part: Extent) -> Result<u64> {
    match transfer_extent(task, attached, task.file, part) {
        Ok(moved) if moved.done < part.len => Err(match task.direction {
            Direction::Load => task.short(part.file + moved.done),
            Direction::Save => task.failed(part.file + moved.done, Errno::from_raw(libc::EIO)),
        }),
        Ok(moved) => {
            task.watch.add(part.len);
            Ok(moved.direct)
        }
        Err(error) => {
            let done = part.file - task.offset + error.moved.done;
            Err(explain(task, error.errno, done, error.not_lent))
        }
    }
}

/// The slots for a range of the buffer, starting at the page of its first byte.
struct Slots(Range<u64>);

impl Slots {
    fn over(extent: Extent) -> Self {
        Self(extent.buf & !(page_size() - 1)..extent.buf_end())
    }
}

impl Buffer for Slots {
    fn prepare(&mut self, _: &Ring, _: u64, _: Progress) -> Result<bool> {
        Ok(true)
    }

    fn place(&self, offset: u64) -> (u16, u64, u64) {
        let index = (offset - self.0.start) / SLOT;
        let slot = self.0.start + index * SLOT;
        (index as u16, offset - slot, (slot + SLOT).min(self.0.end))
    }
}
