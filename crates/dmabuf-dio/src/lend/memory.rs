// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a ring's requests: a table of buffers.

use std::ops::Range;
use std::sync::Arc;

use dmabuf_dio_sys::dio::{self, Slot};
use io_uring::{IoUring, cqueue};

use super::error::LendError;
use super::module::{Attached, Context, shared};
use super::slots::{no_room, register, register_joined, register_table};
use crate::buffer::Buffer;
use crate::direction::Direction;
use crate::memory::Mapping;

/// Divides memory into registered buffers, whose size is limited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Distance between the starts of two pieces, in bytes.
    pub(crate) step: u64,
    /// Bytes by which a piece overlaps the next.
    pub(crate) overlap: u64,
}

impl Cut {
    /// Start and length of each piece of a range.
    pub(crate) fn pieces(self, range: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        let end = range.end;
        let length = move |at| (self.step + self.overlap).min(end - at);
        range.step_by(self.step as usize).map(move |at| (at, length(at)))
    }
}

/// The memory of a ring. Requests name its buffers by index.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Pages of dma-bufs: the module holds them as long as a buffer is registered.
    Lent { buffers: Vec<Lent>, most: usize },
    /// Memory of this process: start and length of each buffer in it.
    Process { mapping: Arc<Mapping>, buffers: Vec<(u64, u64)>, registered: bool },
}

/// A lent buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    length: u64,
    /// Its slot, its start in the slot, and the bytes of the buffers after it in the same slot.
    slot: u16,
    start: u64,
    behind: u64,
}

impl Lent {
    /// A buffer with a slot of its own.
    fn alone(slot: usize, length: u64) -> Self {
        Self { length, slot: slot as u16, start: 0, behind: 0 }
    }
}

/// Most bytes and buffers of a slot, and most bytes of a buffer that shares one: a request for a
/// larger one costs little more than its data.
const SLOT: u64 = 64 << 20;
const JOINED: usize = 256;
const SMALL: u64 = 4 << 20;

/// The location of a request's memory, for the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// In a lent buffer an offset from 0, else an address.
    pub(super) address: u64,
    /// The index of a registered buffer.
    pub(super) registered: Option<u16>,
}

impl Memory {
    /// Registers ranges of attached buffers: `(attached, start, length)` each, in bytes, `start` a
    /// multiple of the page size. The attached buffers may be closed afterwards.
    pub(crate) fn lend<'a>(
        uring: &mut IoUring,
        ranges: impl IntoIterator<Item = (&'a Attached, u64, u64)>,
        direction: Direction,
    ) -> Result<Self, LendError> {
        let ranges: Vec<_> = ranges.into_iter().collect();
        register_table(uring, ranges.len())?;
        let flags = slot_flags(direction);
        for (index, &(attached, buf_offset, length)) in (0..).zip(&ranges) {
            register(uring, attached, &Slot { buf_offset, length, index, flags }, None)?;
        }
        let lent = ranges.iter().enumerate();
        let buffers: Vec<_> = lent.map(|(slot, range)| Lent::alone(slot, range.2)).collect();
        Ok(Self::Lent { most: buffers.len(), buffers })
    }

    /// Registers whole blocks, each as one buffer, in a table with room for `most`. Small ones
    /// share slots if `join` is set and the module supports it. The slots are filled one after the
    /// other, so that a block needs a descriptor of the module's device only briefly: its slot
    /// keeps the block.
    pub(crate) fn lend_blocks(
        uring: &mut IoUring,
        first: Context,
        most: usize,
        blocks: &[Buffer],
        direction: Direction,
        join: bool,
    ) -> Result<Self, LendError> {
        register_table(uring, most)?;
        let join = join && first.info().features & dio::FEATURE_JOIN != 0;
        let (flags, mut first) = (slot_flags(direction), Some(first));
        let mut buffers = Vec::with_capacity(most);
        let mut left = blocks;
        let mut slot = 0;
        while !left.is_empty() {
            let together = if join { together(left) } else { 1 };
            let mut attached: Vec<Attached> = Vec::with_capacity(together);
            for block in &left[..together] {
                let context = first.take().map_or_else(Context::with_slots, Ok);
                match context.and_then(|context| context.attach(shared(block)?)) {
                    Ok(one) => attached.push(one),
                    // The limit on open files allows no more blocks at a time.
                    Err(LendError::NoModule { errno })
                        if errno.raw() == libc::EMFILE && !attached.is_empty() =>
                    {
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            let (now, later) = left.split_at(attached.len());
            left = later;
            match &attached[..] {
                [alone] => {
                    let length = now[0].len();
                    let slot = Slot { buf_offset: 0, length, index: slot, flags };
                    register(uring, alone, &slot, None)?;
                }
                several => register_joined(uring, several, slot, flags, total(now))?,
            }
            let (all, mut start) = (total(now), 0);
            for length in now.iter().map(Buffer::len) {
                let behind = all - start - length;
                buffers.push(Lent { length, slot: slot as u16, start, behind });
                start += length;
            }
            slot += 1;
        }
        Ok(Self::Lent { buffers, most })
    }

    /// Whether the next buffer directly follows this one, so that a range can continue in it.
    pub(super) fn goes_on(&self, buffer: u16) -> bool {
        let Self::Lent { buffers, .. } = self else { return false };
        buffers.get(usize::from(buffer)).is_some_and(|lent| lent.behind > 0)
    }

    /// Registers one more whole block, while requests may be in flight, whose completions go to `others`.
    /// `unsent` requests are queued and not submitted.
    pub(super) fn lend_more(
        &mut self,
        uring: &mut IoUring,
        block: &Buffer,
        direction: Direction,
        unsent: usize,
        mut others: impl FnMut(&cqueue::Entry),
    ) -> Result<(), LendError> {
        let length = block.len();
        let Self::Lent { buffers, most } = self else { return Err(no_room(u32::MAX, length)) };
        if buffers.len() >= *most || unsent > 0 {
            return Err(no_room(u32::MAX, length));
        }
        let index = buffers.last().map_or(0, |last| u32::from(last.slot) + 1);
        let attached = Context::with_slots()?.attach(shared(block)?)?;
        let slot = Slot { buf_offset: 0, length, index, flags: slot_flags(direction) };
        register(uring, &attached, &slot, Some(&mut others))?;
        buffers.push(Lent::alone(index as usize, length));
        Ok(())
    }

    /// Memory of this process as one unregistered buffer: the kernel pins the pages of each
    /// request.
    pub(crate) fn process(mapping: &Arc<Mapping>) -> Self {
        let (mapping, buffers) = (Arc::clone(mapping), vec![(0, mapping.len())]);
        Self::Process { mapping, buffers, registered: false }
    }

    /// Memory of this process in pieces, registered if the limit on locked memory allows it.
    ///
    /// Requests for registered memory do not mark pages of a memfd dirty, and clean ones may be
    /// dropped later. Registering does, if nothing has read the pages through this mapping before.
    pub(crate) fn registered(uring: &IoUring, mapping: &Arc<Mapping>, cut: Cut) -> Self {
        let buffers: Vec<_> = cut.pieces(0..mapping.len()).collect();
        let vector = |&(at, length): &(u64, u64)| libc::iovec {
            iov_base: mapping.at(at).cast(),
            iov_len: length as usize,
        };
        let vectors: Vec<_> = buffers.iter().map(vector).collect();
        // SAFETY: the ring that gets this memory keeps it: see the module's documentation.
        let registered = unsafe { uring.submitter().register_buffers(&vectors) }.is_ok();
        Self::Process { mapping: Arc::clone(mapping), buffers, registered }
    }

    /// The location of a range; `None` if it is not in the buffer and those that follow it.
    #[inline]
    pub(super) fn place(&self, buffer: u16, offset: u64, len: u32) -> Option<Place> {
        let within = |length: u64| {
            offset.checked_add(len.into()).is_some_and(|end| end <= length).then_some(())
        };
        match self {
            Self::Lent { buffers, .. } => {
                let lent = buffers.get(usize::from(buffer))?;
                within(lent.length + lent.behind)?;
                Some(Place { address: lent.start + offset, registered: Some(lent.slot) })
            }
            Self::Process { mapping, buffers, registered } => {
                let &(start, length) = buffers.get(usize::from(buffer))?;
                within(length)?;
                let address = mapping.as_ptr() as u64 + start + offset;
                Some(Place { address, registered: registered.then_some(buffer) })
            }
        }
    }

    /// Whether the memory must be kept while requests are in flight.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Self::Process { .. })
    }

    /// Leaks the memory until the process exits.
    pub(super) fn keep(&self) {
        if let Self::Process { mapping, .. } = self {
            std::mem::forget(Arc::clone(mapping));
        }
    }
}

/// The directions of I/O that a slot allows.
fn slot_flags(direction: Direction) -> u32 {
    match direction {
        Direction::Load => dio::SLOT_READ,
        Direction::Save => dio::SLOT_WRITE,
    }
}

fn total(blocks: &[Buffer]) -> u64 {
    blocks.iter().map(Buffer::len).sum()
}

/// How many of the first blocks share a slot, at least 1.
fn together(blocks: &[Buffer]) -> usize {
    let mut bytes = 0;
    let shared = blocks.iter().take(JOINED).take_while(|block| {
        bytes += block.len();
        block.len() <= SMALL && bytes <= SLOT
    });
    shared.count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_overlap_up_to_the_end() {
        let pieces = |overlap, end| Cut { step: 100, overlap }.pieces(50..end).collect::<Vec<_>>();
        assert_eq!(pieces(0, 250), [(50, 100), (150, 100)]);
        assert_eq!(pieces(30, 300), [(50, 130), (150, 130), (250, 50)]);
        assert_eq!(pieces(30, 50), []);
    }

    #[test]
    fn ranges_beyond_a_buffer_have_no_place() {
        let buffers = vec![Lent::alone(0, 5000), Lent::alone(1, 1 << 40)];
        let lent = Memory::Lent { buffers, most: 2 };
        let mapping = Arc::new(Mapping::anonymous(9000).expect("memory"));
        let start = mapping.as_ptr() as u64;
        let buffers = vec![(0, 5000), (4000, 5000)];
        let ours = Memory::Process { mapping, buffers, registered: false };
        for (buffer, offset, len, is_there) in [
            (0, 0, 5000, true),
            (0, 1, 5000, false),
            (0, 5000, 0, true),
            (0, 5001, 0, false),
            (0, u64::MAX, 1, false),
            (0, u64::MAX - 4, 5, false),
            (2, 0, 1, false),
            (u16::MAX, 0, 0, false),
        ] {
            let place = ours.place(buffer, offset, len);
            assert_eq!(place.is_some(), is_there, "{len} bytes at {offset} of {buffer}");
            assert_eq!(lent.place(buffer, offset, len).is_some(), is_there);
        }
        let place = ours.place(1, 10, 1).expect("there");
        assert_eq!((place.address, place.registered), (start + 4010, None));
        let place = lent.place(1, 1 << 39, 1 << 20).expect("there");
        assert_eq!((place.address, place.registered), (1 << 39, Some(1)));
    }

    #[test]
    fn range_spans_buffers_of_its_slot() {
        let buffers = vec![
            Lent { length: 4096, slot: 0, start: 0, behind: 8192 },
            Lent { length: 4096, slot: 0, start: 4096, behind: 4096 },
            Lent { length: 4096, slot: 0, start: 8192, behind: 0 },
            Lent::alone(1, 4096),
        ];
        let lent = Memory::Lent { buffers, most: 4 };
        for (buffer, offset, len, place) in [
            (0, 0, 12288, Some((0, 0))),
            (0, 0, 12289, None),
            (1, 100, 8092, Some((0, 4196))),
            (1, 100, 8093, None),
            (2, 0, 4096, Some((0, 8192))),
            (2, 0, 4097, None),
            (3, 0, 4096, Some((1, 0))),
            (3, 0, 4097, None),
        ] {
            let found = lent.place(buffer, offset, len);
            let found = found.map(|found| (found.registered.expect("lent"), found.address));
            assert_eq!(found, place, "{len} bytes at {offset} of {buffer}");
        }
        assert_eq!(
            [0, 1, 2, 3, 4].map(|buffer| lent.goes_on(buffer)),
            [true, true, false, false, false]
        );
    }

    #[test]
    fn only_small_buffers_share_a_slot() {
        let of = |size, count| -> Vec<Buffer> {
            (0..count).map(|_| Buffer::memfd(size).expect("a memfd")).collect()
        };
        assert_eq!(together(&of(4096, 3)), 3);
        assert_eq!(together(&of(4096, JOINED + 1)), JOINED);
        assert_eq!(together(&of(SMALL, 17)), 16);
        assert_eq!(together(&of(SMALL + 4096, 3)), 1);
    }
}
