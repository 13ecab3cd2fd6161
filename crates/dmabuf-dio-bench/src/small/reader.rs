// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads blocks, with any engine or by the library; and the memory that is read into, a block for each request in flight.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::slice;

use dmabuf_dio::gather::{Gatherer, Gathering, Piece};
use dmabuf_dio::{Backend, Kind};
use dmabuf_dio_sys::dmabuf::Access;
use rustix::fs::OFlags;

use crate::buffer::mapping::{Mapping, Pages};
use crate::buffer::{Buffer, BufferKind, Maker};
use crate::disk::DiskFile;
use crate::outcome::{Result, Status, Trouble, failed};
use crate::pattern::POISON;
use crate::ways::module::attach;
use crate::ways::ring::{Engine, Request, Uring, keep_in_flight};

/// Bytes per read.
pub(super) const BLOCK: u64 = 4096;
/// What the system heap allocates at once. A smaller dma-buf has one piece or several, as memory happens to be,
/// and requests into any but the first cost `io_uring` 20 instructions more.
const PIECE: u64 = 1 << 20;

/// Requests submitted, and waited for, at a time.
const BATCH: u32 = 32;

/// The size of a batch: half of the requests stay in flight while others are prepared.
pub(super) fn batch(depth: u32) -> u32 {
    BATCH.min((depth / 2).max(1))
}

/// Reads from offsets, which are the first of those it was made for.
pub(super) trait Reader {
    /// Waits for the last completion.
    fn read(&mut self, offsets: &[u64]) -> Result<()>;

    /// The same, with every byte compared.
    fn compare(&mut self, offsets: &[u64], disk: &DiskFile) -> Result<()>;
}

/// The kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryKind {
    /// Memory of the process.
    User,
    /// Memory of the process, registered with the ring.
    Registered,
    /// Pages of a dma-buf, lent to the ring by the module.
    Lent,
}

/// Mapped blocks.
pub(super) struct ReadBlocks {
    kind: MemoryKind,
    mapping: Mapping,
    /// The dma-buf and the context to which it is attached.
    lent: Option<(Buffer, OwnedFd)>,
    len: u64,
}

impl ReadBlocks {
    pub(super) fn new(kind: MemoryKind, blocks: u32) -> Result<Self> {
        let len = u64::from(blocks) * BLOCK;
        if kind == MemoryKind::Lent {
            let buffer = Maker::new(BufferKind::DmaBuf)?.make(len.next_multiple_of(PIECE))?;
            let context = attach(&buffer)?;
            let mapping = buffer.map()?;
            return Ok(Self { kind, mapping, lent: Some((buffer, context)), len });
        }
        let mut mapping = Mapping::anonymous(len, Pages::Small)?;
        mapping.populate(0, len)?;
        Ok(Self { kind, mapping, lent: None, len })
    }

    /// Registers it with a ring.
    pub(super) fn register(&self, ring: &mut Uring) -> Result<()> {
        match (self.kind, &self.lent) {
            (MemoryKind::Lent, Some((_, context))) => {
                ring.register_slots(context.as_fd(), self.len, self.len)
            }
            (MemoryKind::Registered, _) => {
                let iovec = libc::iovec {
                    iov_base: self.mapping.address().cast_mut().cast(),
                    iov_len: self.len as usize,
                };
                // SAFETY: the mapping outlives the ring: `BlockReader` holds both, ring first.
                unsafe { ring.register(slice::from_ref(&iovec)) }
            }
            _ => Ok(()),
        }
    }

    /// The location of a block: an address, or an offset into a slot.
    pub(super) fn place(&self, block: u32) -> u64 {
        let at = u64::from(block) * BLOCK;
        if self.kind == MemoryKind::Lent { at } else { self.mapping.address() as u64 + at }
    }

    /// Passes blocks without a request in flight to the CPU, then poisons them.
    pub(super) fn look(&mut self, mut each: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        // SAFETY: no request is in flight, and the memory is this program's own.
        let blocks = unsafe { self.mapping.bytes() }.chunks_exact_mut(BLOCK as usize);
        let look = || {
            (0..).zip(blocks).try_for_each(|(number, bytes)| {
                each(number, bytes)?;
                bytes.fill(POISON);
                Ok(())
            })
        };
        match &self.lent {
            Some((buffer, _)) => buffer.bracket(Access::ReadWrite, look)?,
            None => look(),
        }
    }
}

/// Reads into a block for each request in flight.
pub(super) struct BlockReader<E> {
    /// First: it is gone before the memory that requests are for.
    pub(super) engine: E,
    pub(super) memory: ReadBlocks,
    pub(super) depth: u32,
    pub(super) appends: Option<Appends>,
}

impl<E: Engine> Reader for BlockReader<E> {
    fn read(&mut self, offsets: &[u64]) -> Result<()> {
        let Self { engine, memory, appends, .. } = self;
        let depth = self.depth.min(offsets.len() as u32);
        let mut offsets = offsets.iter();
        let next = |block| {
            let Some(&offset) = offsets.next() else { return Ok(None) };
            appends.as_mut().map_or(Ok(()), Appends::before_read)?;
            Ok(Some(Request { offset, place: memory.place(block), len: BLOCK as u32, buffer: 0 }))
        };
        // SAFETY: there is a block for each tag, until the engine is gone.
        unsafe { keep_in_flight(engine, depth, batch(depth), next) }
    }

    fn compare(&mut self, offsets: &[u64], disk: &DiskFile) -> Result<()> {
        for round in offsets.chunks(self.depth as usize) {
            self.read(round)?;
            // A round fills the blocks in order.
            self.memory.look(|block, bytes| {
                round.get(block as usize).map_or(Ok(()), |offset| disk.check(bytes, *offset))
            })?;
        }
        Ok(())
    }
}

/// Makes all reads in a single call of the library, into a buffer with a place for each.
pub(super) struct GatherReader {
    buf: dmabuf_dio::Buffer,
    gathering: Gathering,
    pieces: Vec<Piece>,
    polled: bool,
}

impl GatherReader {
    pub(super) fn new(disk: &DiskFile, depth: u32, offsets: &[u64], polled: bool) -> Result<Self> {
        let buf =
            dmabuf_dio::Buffer::alloc_kind(Kind::DmaBuf, "system", offsets.len() as u64 * BLOCK)?;
        let gatherer = Gatherer::new(disk.path.as_deref().unwrap_or_else(|| "".as_ref()));
        let gatherer = gatherer.backend(Backend::UringSlot).queue_depth(depth).polled(polled);
        let gathering = gatherer.open(&buf)?;
        let pieces = (0..).step_by(BLOCK as usize).zip(offsets);
        let piece = |(buf_offset, &offset)| Piece { offset, buf_offset, len: BLOCK };
        Ok(Self { buf, gathering, pieces: pieces.map(piece).collect(), polled })
    }
}

impl Reader for GatherReader {
    fn read(&mut self, offsets: &[u64]) -> Result<()> {
        let gathered = self.gathering.read(&self.pieces[..offsets.len()])?;
        if let Some((number, error)) = gathered.errors().next() {
            return Err(Trouble::broken(format!("piece {number}: {error}")));
        }
        let report = gathered.report();
        if self.polled && !report.polled {
            return Err(Trouble::new(Status::Unavailable, report.transfer.notes.join("; ")));
        }
        Ok(())
    }

    fn compare(&mut self, offsets: &[u64], disk: &DiskFile) -> Result<()> {
        self.read(offsets)?;
        let view = self.buf.map()?;
        let mut bytes = vec![0; BLOCK as usize];
        for piece in &self.pieces {
            view.read_at(piece.buf_offset, &mut bytes)?;
            disk.check(&bytes, piece.offset)?;
        }
        Ok(())
    }
}

/// Appends a block before every `every`th read, by a direct write, which adds to the mappings of the file. The file gets
/// its size back when this is dropped.
pub(super) struct Appends {
    file: File,
    block: Mapping,
    size: u64,
    end: u64,
    every: u32,
    reads: u32,
}

impl Appends {
    pub(super) fn new(disk: &DiskFile, every: u32) -> Result<Self> {
        let (Some(path), Some(_)) = (disk.path.as_deref(), disk.content.as_ref()) else {
            return Err(Trouble::new(Status::Unavailable, "a block device does not grow"));
        };
        let mut options = OpenOptions::new();
        let file = options.write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path);
        let file = file.map_err(failed("opening it for writing"))?;
        let block = Mapping::anonymous(BLOCK, Pages::Small)?;
        Ok(Self { file, block, size: disk.len, end: disk.len, every, reads: 0 })
    }

    fn before_read(&mut self) -> Result<()> {
        self.reads += 1;
        if self.reads == self.every {
            self.reads = 0;
            // SAFETY: the mapping is this one's own, and nothing else refers to it.
            let block = unsafe { self.block.bytes() };
            self.file.write_all_at(block, self.end).map_err(failed("appending"))?;
            self.end += BLOCK;
        }
        Ok(())
    }
}

impl Drop for Appends {
    fn drop(&mut self) {
        let _ = self.file.set_len(self.size);
    }
}
