// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dma-buf's pages as `io_uring` fixed buffers, lent by the kernel module.

use std::ops::Range;
use std::os::fd::AsRawFd;

use dmabuf_dio_sys::dio::{self, Slot, UringCmd};
use io_uring::{IoUring, opcode, types};

use super::module::{Context, explain};
use super::{Fresh, Moved, Task};
use crate::backend::{Backend, NotLent, Refusal};
use crate::bracket::Bracket;
use crate::buf::DmaBuf;
use crate::errno::Errno;
use crate::error::{Attempt, Direction, Error, Result};
use crate::extent::{Cut, Extent};
use crate::memory::page_size;
use crate::uring::{self, Job, Memory, Place, Progress, Stop};

/// Bytes in a slot: the kernel finds an offset into one by walking through its pages.
const SLOT: u64 = 256 << 20;

/// Loads into a new buffer of the system heap.
pub(crate) fn load(task: &Task<'_>) -> Result<Fresh, Attempt> {
    // Looked at first, so that a refusal costs no allocation.
    available()?;
    let layout = task.layout()?;
    let mut buf = DmaBuf::try_alloc(Backend::UringSlot, layout.buffer)?;
    let direct = task.file.is_direct();
    let len = if direct { layout.buffer } else { layout.data_offset + task.length };
    let moved = transfer(task, &buf, Extent { file: layout.base, buf: 0, len })?;
    let end = layout.data_offset + task.length;
    if layout.data_offset > 0 || end < layout.buffer {
        // What lies before and after the range came along with its blocks.
        let mut view = buf.map_mut()?;
        view.fill_at(0, layout.data_offset, 0)?;
        view.fill_at(end, layout.buffer - end, 0)?;
        view.finish()?;
    }
    Ok(Fresh { buf, moved })
}

/// Opens a context of a module that has slots.
pub(crate) fn available() -> Result<Context, Refusal> {
    let context = Context::open(Backend::UringSlot)?;
    if context.info.features & dio::FEATURE_SLOTS == 0 {
        return Err(Backend::UringSlot
            .refuse("this kernel cannot lend pages to io_uring")
            .remedy("boot Linux 7.3 or later"));
    }
    Ok(context)
}

/// Moves between a file and a range of an existing buffer.
pub(crate) fn transfer(task: &Task<'_>, buf: &DmaBuf, extent: Extent) -> Result<Moved, Attempt> {
    let context = available()?;
    super::check_ring(Backend::UringSlot, task.file)?;
    let mut ring = super::ring(Backend::UringSlot, task.depth())?;
    if task.direction == Direction::Load && !buf.is_writable() {
        return Err(Error::ReadOnlyBuffer.into());
    }
    let attached = context.attach(Backend::UringSlot, buf)?;
    let mut memory = SlotMemory::new(extent);
    let cut = Cut { step: SLOT, overlap: 0 };
    lend(&mut ring, &context, memory.start..memory.end, cut, task.direction)?;
    let mut edge = |part: Extent| edge(task, &context, part);
    // The edges have brackets of their own, by the ioctl. Within another one theirs would bring
    // back what a device saw before, over what was loaded in the meantime.
    let mut core = |job: &Job<'_>| {
        let bracket = Bracket::transfer(buf, task.direction).map_err(Stop::Memory)?;
        // SAFETY: the slots are filled for the whole extent, and hold the buffer's pages
        // themselves.
        unsafe { uring::run(&mut ring, job, &mut memory) }?;
        bracket.end().map_err(Stop::Memory)
    };
    let result = task.in_parts(extent, &mut core, &mut edge);
    // The ring would let go of the buffer later, in its own time.
    let _ = ring.submitter().unregister_buffers();
    let mut moved = result?;
    moved.segments = Some(attached.segments);
    Ok(moved)
}

/// Moves less than a block by the module's ioctl, which leaves the bytes around it alone.
fn edge(task: &Task<'_>, context: &Context, part: Extent) -> Result<u64> {
    let done = part.file - task.offset;
    match context.transfer(task, task.file, part) {
        Ok(rw) if rw.done < part.len => Err(match task.direction {
            Direction::Load => task.short(part.file + rw.done),
            Direction::Save => task.failed(part.file + rw.done, rustix::io::Errno::IO),
        }),
        Ok(rw) => {
            task.watch.add(part.len);
            Ok(rw.direct)
        }
        Err((errno, rw)) => Err(explain(task, errno, done + rw.done, rw.refusal)),
    }
}

/// The slots over a range of the buffer.
struct SlotMemory {
    start: u64,
    end: u64,
}

impl SlotMemory {
    fn new(extent: Extent) -> Self {
        Self { start: extent.buf & !(page_size() - 1), end: extent.buf_end() }
    }
}

/// Lends a range of the attached buffer to a ring, piece by piece.
pub(crate) fn lend(
    ring: &mut IoUring,
    context: &Context,
    range: Range<u64>,
    cut: Cut,
    direction: Direction,
) -> Result<(), Attempt> {
    let slot =
        |((buf_offset, length), index)| Slot { buf_offset, length, index, flags: flags(direction) };
    let slots: Vec<_> = cut.pieces(range).zip(0..).map(slot).collect();
    make_room(ring, slots.len())?;
    register(ring, context, &slots)
}

/// What I/O may do to the pages of a slot.
pub(crate) fn flags(direction: Direction) -> u32 {
    match direction {
        Direction::Load => dio::SLOT_READ,
        Direction::Save => dio::SLOT_WRITE,
    }
}

/// Gives a ring a table for so many slots.
pub(crate) fn make_room(ring: &IoUring, slots: usize) -> Result<(), Refusal> {
    ring.submitter().register_buffers_sparse(slots as u32).map_err(|error| {
        Backend::UringSlot
            .refuse(format!("io_uring takes no table of {slots} buffers"))
            .errno(Errno::from(&error))
    })
}

/// Fills slots of a ring in which nothing is in flight. After an error the ring is of no use.
pub(crate) fn register(
    ring: &mut IoUring,
    context: &Context,
    slots: &[Slot],
) -> Result<(), Attempt> {
    let refuse = |what: &str, slot: &Slot, errno: Errno| {
        Backend::UringSlot
            .refuse(format!("{what} slot {} of {} bytes", slot.index, slot.length))
            .errno(errno)
            .remedy("free memory, or use another backend: --backend module")
    };
    let device = types::Fd(context.as_fd().as_raw_fd());
    for batch in slots.chunks(ring.params().sq_entries() as usize) {
        for (number, slot) in (0..).zip(batch) {
            let command = UringCmd::new(slot).to_bytes();
            let entry = opcode::UringCmd16::new(device, dio::URING_REGISTER).cmd(command).build();
            // SAFETY: the command points at `slot`, which lives until its completion, waited for
            // below. If that fails nobody uses the ring again; the kernel only reads the slot.
            if unsafe { ring.submission().push(&entry.user_data(number)) }.is_err() {
                return Err(
                    refuse("the ring has no room for", slot, Errno::from_raw(libc::EBUSY)).into()
                );
            }
        }
        let (mut left, mut failed) = (batch.len(), None);
        while left > 0 {
            uring::wait(ring, left).map_err(|errno| refuse("cannot submit", &batch[0], errno))?;
            for completion in ring.completion() {
                left -= 1;
                if completion.result() < 0 {
                    let number = completion.user_data() as usize;
                    failed = Some((number, Errno::from_raw(-completion.result())));
                }
            }
        }
        if let Some((number, errno)) = failed {
            // A kernel without slots was found out before.
            return Err(if errno.raw() == libc::EOPNOTSUPP {
                NotLent::Unsynced.refuse(Backend::UringSlot, "udmabuf").errno(errno).into()
            } else {
                refuse("the module refuses", &batch[number], errno).into()
            });
        }
    }
    Ok(())
}

impl Memory for SlotMemory {
    fn prepare(&mut self, _: &IoUring, _: u64, _: Progress) -> Result<bool> {
        Ok(true)
    }

    fn place(&self, offset: u64) -> (Place, u64) {
        let index = (offset - self.start) / SLOT;
        let slot = self.start + index * SLOT;
        let place = Place::Fixed { index: index as u16, addr: offset - slot };
        (place, (slot + SLOT).min(self.end))
    }

    /// The slots hold the pages.
    fn keep(&self) {}
}
