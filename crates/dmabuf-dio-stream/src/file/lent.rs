// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests between a file and blocks whose pages are lent.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Instant;

use dmabuf_dio::lend::{
    BUFFERED, File, InFlight, LendError, OPENED, Operation, Ring, Span, Verdict,
};
use dmabuf_dio::{Direction, Errno};

use super::edges::{Bytes, Edges};
use crate::error::{Error, Result, failed};
use crate::ring::{BlockRing, Claim};
use crate::wait::{TICK, Wait, wait_for_any};

/// Writes smaller than this go through the page cache. Appending so little with `O_DIRECT` costs
/// more than copying it: the file system writes the new length each time (docs/notes/performance.md).
const SMALL: u64 = 128 << 10;

/// Blocks are held back until they make a write of this size, or a quarter of the ring.
const GATHERED: u64 = 16 << 20;

/// Most bytes of a request.
const LARGEST: u64 = 64 << 20;

/// Lends the blocks of a ring, with room for those that it may get. To write them, small ones are
/// joined.
pub(crate) fn lend(
    ring: &BlockRing,
    direction: Direction,
    file: BorrowedFd<'_>,
) -> Result<Ring, LendError> {
    match direction {
        Direction::Load => Ring::lending_up_to(ring.most(), ring.blocks(), direction, file),
        // And room for shared disk blocks.
        Direction::Save => Ring::lending_joined(ring.most() + 1, ring.blocks(), direction, file),
    }
}

/// A block in transfer.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) claim: Claim,
    /// Offset of its start in the file.
    pub(super) offset: u64,
    /// Bytes moved.
    pub(super) done: u64,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, Default)]
enum Sent {
    /// The block at this offset in the file, and blocks joined to it.
    Block {
        offset: u64,
        /// Whether the request was made with `O_DIRECT`.
        direct: bool,
    },
    /// Space for later blocks.
    #[default]
    Room,
}

impl Queued {
    pub(super) fn is_done(&self) -> bool {
        self.done >= self.claim.bytes()
    }

    fn left(&self) -> u64 {
        self.claim.bytes() - self.done
    }
}

/// A write to the file.
#[derive(Debug)]
struct Write {
    from: Span,
    position: u64,
    /// Offset in the file of its first block.
    offset: u64,
}

impl Write {
    /// Whether so many bytes more fit into one request.
    fn has_room(&self, bytes: u64) -> bool {
        u64::from(self.from.len) + bytes <= LARGEST
    }
}

/// The file and the blocks.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) ring: Ring,
    requests: InFlight<Sent>,
    pub(super) blocks: Arc<BlockRing>,
    file: Arc<File>,
    direct: bool,
    why_buffered: Option<String>,
    /// Requests are multiples of this, in bytes.
    unit: u64,
    /// For blocks that are not whole disk blocks.
    edges: Option<Edges>,
    room: Room,
    /// Bytes to hold back for a larger write; the time since which some are held back; whether to
    /// hold back nothing.
    gather: u64,
    held: Option<Instant>,
    pub(super) hurries: bool,
}

/// Disk space that is allocated ahead of the written data.
#[derive(Debug, Default)]
struct Room {
    /// End of the allocated space.
    end: u64,
    /// Bytes allocated at a time; 0: none.
    step: u64,
    pending: bool,
}

impl Lent {
    pub(super) fn new(
        mut ring: Ring,
        blocks: &Arc<BlockRing>,
        file: &Arc<File>,
        direction: Direction,
        start: u64,
    ) -> Result<Self> {
        let (mut direct, mut why_buffered) =
            (file.is_direct(), file.why_buffered().map(str::to_owned));
        let (align, size) = (file.alignment().offset, blocks.size());
        let joined =
            direction == Direction::Save && ring.goes_on(0) && size == blocks.block(0).len();
        let quarter = blocks.blocks().len() as u64 / 4 * size;
        let gather = if joined { quarter.min(GATHERED) } else { 0 };
        let saves = direct && direction == Direction::Save && start % align == 0 && size >= SMALL;
        let joins = saves && size % align != 0 && size % file.alignment().memory == 0;
        let edges = if joins { Edges::lend(&mut ring, blocks, align) } else { None };
        if direct && size % align != 0 && edges.is_none() {
            why_buffered = Some(format!("O_DIRECT needs blocks of a multiple of {align} bytes"));
            direct = false;
        }
        if direct && start % align != 0 {
            why_buffered = Some(format!(
                "O_DIRECT needs data at a multiple of {align} bytes, these begin at {start}"
            ));
            direct = false;
        }
        if direct && direction == Direction::Save && size.max(gather) < SMALL {
            why_buffered = Some(format!("writes of less than {SMALL} bytes are faster this way"));
            direct = false;
        }
        if !direct {
            let set = ring.set_file(BUFFERED, file.buffered()?);
            set.map_err(|errno| failed(&file.path().display().to_string(), "use", errno))?;
        }
        let unit = if direct { align } else { 1 };
        let (file, blocks, room) = (Arc::clone(file), Arc::clone(blocks), Room::default());
        let (held, hurries) = (None, false);
        // At most two writes of each block, and one request for space.
        let requests = InFlight::new(2 * blocks.most() + 1);
        Ok(Self {
            ring,
            requests,
            blocks,
            file,
            direct,
            why_buffered,
            unit,
            edges,
            room,
            gather,
            held,
            hurries,
        })
    }

    pub(super) fn how(&self) -> String {
        match &self.why_buffered {
            None => "io_uring, O_DIRECT".into(),
            Some(why) => format!("io_uring, through the page cache: {why}"),
        }
    }

    /// Enables allocation in steps, starting where space is already allocated.
    pub(super) fn make_room(&mut self, end: u64, step: u64) {
        self.room = Room { end, step, pending: false };
    }

    /// Reads the missing part of a block, rounded up to the disk's blocks.
    pub(super) fn read(&mut self, part: &Queued) -> Result<()> {
        let length = part.left().next_multiple_of(self.unit);
        let to = self.span(part.claim.block(), part.done, length);
        let position = part.offset + part.done;
        self.push(Operation::Read { to, position }, self.sent(part.offset), false)?;
        self.submit()
    }

    /// Writes the missing parts of some blocks. Contiguous parts are one request. Each write starts
    /// only if the one before has succeeded, so the written part of the file never has a hole. Does
    /// nothing while requests are in flight, or while it waits for more blocks to make a larger write.
    pub(super) fn write(&mut self, queue: &mut VecDeque<Queued>) -> Result<()> {
        if self.ring.in_flight() > 0 || self.holds_back(queue) {
            return Ok(());
        }
        self.held = None;
        let first = queue.iter().find(|part| !part.is_done());
        if first.is_some_and(|part| (part.offset + part.done) % self.unit != 0) {
            self.go_buffered("blocks of different lengths, not all of whole disk blocks")?;
        }
        if let Some(edges) = &mut self.edges {
            edges.restart();
        }
        let chain = self.chain(queue)?;
        let Some(last) = chain.last() else { return Ok(()) };
        let (count, end) = (chain.len(), last.position + u64::from(last.from.len));
        for (number, write) in (1..).zip(chain) {
            let Write { from, position, offset } = write;
            self.push(Operation::Write { from, position }, self.sent(offset), number < count)?;
        }
        self.grow(end)?;
        self.submit()
    }

    /// The writes of the missing parts of some blocks. A partial disk block that nothing precedes is
    /// written here.
    fn chain(&mut self, queue: &mut VecDeque<Queued>) -> Result<Vec<Write>> {
        let mut chain: Vec<Write> = Vec::new();
        // The block that lies behind the last write.
        let mut follows = None;
        // Bytes at the start of a block that go with the end of the block before.
        let mut head = 0;
        for place in 0..queue.len() {
            let part = &queue[place];
            let (block, bytes, offset) = (part.claim.block(), part.claim.bytes(), part.offset);
            let done = part.done + std::mem::take(&mut head);
            let left = bytes - done;
            let whole = left / self.unit * self.unit;
            if whole > 0 {
                let joins = follows == Some(block) && done == 0;
                match chain.last_mut().filter(|last| joins && last.has_room(whole)) {
                    Some(last) => last.from.len += whole as u32,
                    None => chain.push(Write {
                        from: self.span(block, done, whole),
                        position: offset + done,
                        offset,
                    }),
                }
                let is_full = left == whole && bytes == self.blocks.block(block).len();
                follows = (is_full && self.ring.goes_on(block as u16)).then_some(block + 1);
            }
            if whole == left {
                continue;
            }
            let tail = Bytes { block, offset: done + whole, len: left - whole };
            if let Some((from, taken)) = self.join(tail, queue.get(place + 1))? {
                chain.push(Write { from, position: offset + tail.offset, offset });
                (head, follows) = (taken, None);
                continue;
            }
            // A partial disk block at the very end waits for the rest of it, and the end of a block
            // for the next block.
            let waits = self.edges.is_some() && !self.hurries && place + 1 == queue.len();
            if chain.is_empty() && !waits {
                self.write_rest(&mut queue[place])?;
            }
            break;
        }
        Ok(chain)
    }

    /// A disk block that joins the end of a block and the start of the next, and the number of bytes
    /// from the next. `None` if there is no next block, or if the rest of it could not be written
    /// with `O_DIRECT`.
    fn join(&mut self, tail: Bytes, next: Option<&Queued>) -> Result<Option<(Span, u64)>> {
        let (Some(edges), Some(next)) = (&mut self.edges, next) else { return Ok(None) };
        let len = self.unit.saturating_sub(tail.len);
        let fits = len % self.file.alignment().memory == 0 && len <= next.claim.bytes();
        if !self.direct || !fits || !edges.has_room() {
            return Ok(None);
        }
        let head = Bytes { block: next.claim.block(), offset: 0, len };
        Ok(Some((edges.join(&self.blocks, [tail, head])?, len)))
    }

    /// Whether to wait for more blocks: not for longer than a stream's tick.
    fn holds_back(&mut self, queue: &VecDeque<Queued>) -> bool {
        let (Some(first), Some(last)) = (queue.front(), queue.back()) else { return true };
        let bytes = last.offset + last.claim.bytes() - first.offset - first.done;
        if self.hurries || bytes >= self.gather {
            return false;
        }
        self.held.get_or_insert_with(Instant::now).elapsed() < TICK
    }

    /// Writes a partial disk block, through the page cache.
    fn write_rest(&self, part: &mut Queued) -> Result<()> {
        let view = self.blocks.block(part.claim.block()).map()?;
        let mut rest = vec![0; part.left() as usize];
        view.read_at(part.done, &mut rest)?;
        view.finish()?;
        let file = self.file.buffered()?.try_clone_to_owned().map(std::fs::File::from);
        file.and_then(|file| file.write_all_at(&rest, part.offset + part.done))
            .map_err(|error| self.failed("write", Errno::from(&error)))?;
        part.done = part.claim.bytes();
        Ok(())
    }

    /// Allocates space in time: half a step before it is needed.
    fn grow(&mut self, end: u64) -> Result<()> {
        let Room { end: room, step, pending } = self.room;
        if step == 0 || pending || end + step / 2 < room {
            return Ok(());
        }
        let start = room.max(end);
        self.room = Room { end: start + step, step, pending: true };
        self.push(Operation::MakeRoom { position: start, length: step }, Sent::Room, false)
    }

    /// Records the results of completed requests in their parts.
    pub(super) fn collect(
        &mut self,
        queue: &mut VecDeque<Queued>,
        direction: Direction,
    ) -> Result<()> {
        while let Some(completion) = self.ring.complete() {
            let Some(&sent) = self.requests.take(&completion) else { continue };
            let Sent::Block { offset, direct } = sent else {
                // Without space the write will fail and say why. If space cannot be allocated, it
                // is no longer requested.
                self.room.pending = false;
                if completion.result().is_err() {
                    self.room.step = 0;
                }
                continue;
            };
            let Some(first) = queue.iter().position(|part| part.offset == offset) else { continue };
            let parts = queue.range_mut(first..);
            self.complete(parts, completion.result(), direct, direction)?;
            let part = &queue[first];
            if direction == Direction::Load && !part.is_done() {
                self.read(part)?;
            }
        }
        Ok(())
    }

    /// Records the result of a request for the first of these parts, and for parts joined to it.
    fn complete<'q>(
        &mut self,
        mut parts: impl Iterator<Item = &'q mut Queued>,
        result: Result<u64, Errno>,
        direct: bool,
        direction: Direction,
    ) -> Result<()> {
        let Some(part) = parts.next() else { return Ok(()) };
        // The failed operation, and the error number if no byte was moved.
        let (call, nothing) = match direction {
            Direction::Load => ("read all", Errno::NODATA),
            Direction::Save => ("write", Errno::NOSPC),
        };
        match Verdict::of(result, part.left(), direct) {
            Verdict::Whole => {
                let mut more = result.map_or(0, |moved| moved - part.left());
                part.done = part.claim.bytes();
                let joined = if direction == Direction::Save { usize::MAX } else { 0 };
                for part in parts.take(joined) {
                    let here = more.min(part.left());
                    part.done += here;
                    more -= here;
                }
            }
            Verdict::Rest(moved) => part.done += moved,
            // Others may have been refused in the same way before.
            Verdict::NotDirect if !self.direct => {}
            Verdict::NotDirect => self.go_buffered("the file system refuses O_DIRECT (EINVAL)")?,
            // An earlier request of its chain was short.
            Verdict::Failed(Errno::CANCELED) => {}
            Verdict::Failed(errno) => return Err(self.failed(call, errno)),
            _ => return Err(self.failed(call, nothing)),
        }
        Ok(())
    }

    /// All further requests go through the page cache, even if the file system advertises direct
    /// I/O.
    fn go_buffered(&mut self, why: &str) -> Result<()> {
        let set = self.ring.set_file(BUFFERED, self.file.buffered()?);
        set.map_err(|errno| self.failed("use", errno))?;
        self.direct = false;
        self.unit = 1;
        self.why_buffered = Some(why.into());
        Ok(())
    }

    /// Waits for the requests in flight, ignoring their results. Requests that could not be
    /// submitted never complete.
    pub(super) fn settle(&mut self) {
        while self.ring.in_flight() > self.ring.unsent() {
            let _ = wait_for_any(vec![Wait::readable(self.ring.as_fd())], TICK);
            self.ring.reap(|completion| {
                self.requests.take(&completion);
            });
        }
    }

    pub(super) fn ready(&self) -> Option<Wait<'_>> {
        (self.ring.in_flight() > 0).then(|| Wait::readable(self.ring.as_fd()))
    }

    /// Bytes of a block of the ring.
    fn span(&self, block: usize, offset: u64, length: u64) -> Span {
        let number = self.edges.as_ref().map_or(block as u16, |edges| edges.number(block));
        Span { buffer: number, offset, len: length as u32 }
    }

    fn sent(&self, offset: u64) -> Sent {
        Sent::Block { offset, direct: self.direct }
    }

    fn push(&mut self, operation: Operation, sent: Sent, linked: bool) -> Result<()> {
        let file = if self.direct { OPENED } else { BUFFERED };
        let pushed = self.requests.push(&mut self.ring, (operation, file), linked, sent);
        pushed.map_err(|errno| self.failed("queue a request", errno))
    }

    fn submit(&mut self) -> Result<()> {
        self.ring.submit().map_err(|errno| self.failed("submit requests", errno))
    }

    fn failed(&self, call: &str, errno: Errno) -> Error {
        failed(&self.file.path().display().to_string(), call, errno)
    }
}
