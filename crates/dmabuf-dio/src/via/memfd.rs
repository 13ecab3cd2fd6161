// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memfd, with huge pages where there are any, and `io_uring` with registered buffers.
//!
//! A second thread allocates the pages, in order; each piece is registered when it is there, and
//! its requests are in flight while the next piece is being allocated.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use io_uring::IoUring;
use rustix::io::Errno as Os;

use super::{Fresh, Moved, Task};
use crate::backend::Backend;
use crate::buf::DmaBuf;
use crate::error::{Attempt, Direction, Error, Result};
use crate::extent::Extent;
use crate::memory::{self, HUGE_PAGE, Mapping, PageSizes, page_size};
use crate::options::Options;
use crate::uring::{Memory, Place};

/// How much is allocated between two looks at whether it is still wanted.
const STEP: u64 = 16 << 20;
/// The most buffers that are registered; the kernel takes 16384.
const MAX_PIECES: u64 = 8192;
/// The most bytes in one of them.
const MAX_PIECE: u64 = 1 << 30;

/// Loads into a new memfd, in the name of `backend`; of reserved huge pages if `hugetlb` and if
/// there are any.
pub(crate) fn load(backend: Backend, task: &Task<'_>, hugetlb: bool) -> Result<Fresh, Attempt> {
    let layout = task.layout()?;
    let mut ring = super::ring(backend, task.options.depth())?;
    memory::ensure_available(layout.buffer)?;
    let (buf, mapping) = allocate(layout.buffer, hugetlb)?;
    let direct = task.file.direct.is_some();
    let len = if direct { layout.buffer } else { layout.data_offset + task.length };
    let extent = Extent { file: layout.base, buf: 0, len };
    let mut moved = fill(task, &mut ring, &mapping, extent)?;
    moved.pages = PageSizes::of(&mapping);
    moved.notes.extend(page_note(moved.pages, buf.len()));
    // What lies before and after the range came along with its blocks.
    zero(&mapping, 0, layout.data_offset);
    let end = layout.data_offset + task.length;
    zero(&mapping, end, layout.buffer - end);
    Ok(Fresh { buf, moved })
}

/// Moves between a file and a range of an existing memfd.
pub(crate) fn transfer(task: &Task<'_>, buf: &DmaBuf, extent: Extent) -> Result<Moved, Attempt> {
    let mut ring = super::ring(Backend::Memfd, task.options.depth())?;
    if task.direction == Direction::Load && !buf.is_writable() {
        return Err(Error::ReadOnlyBuffer.into());
    }
    let mapping = Mapping::new(buf.as_fd(), buf.len(), buf.is_writable())?;
    mapping.advise_huge();
    let mut moved = fill(task, &mut ring, &mapping, extent)?;
    moved.pages = PageSizes::of(&mapping);
    Ok(moved)
}

/// A memfd in the largest pages to be had, and its mapping.
fn allocate(len: u64, hugetlb: bool) -> Result<(DmaBuf, Mapping)> {
    if hugetlb
        && len >= HUGE_PAGE
        && let Ok(got) = DmaBuf::memfd_huge(len)
    {
        return Ok(got);
    }
    let buf = DmaBuf::memfd(len)?;
    let mapping = Mapping::new(buf.as_fd(), buf.len(), true)?;
    mapping.advise_huge();
    Ok((buf, mapping))
}

/// Says what would give huge pages, if there are none.
fn page_note(pages: Option<PageSizes>, len: u64) -> Option<String> {
    let pages = pages?;
    if pages.page_size >= HUGE_PAGE || len < HUGE_PAGE {
        return None;
    }
    Some(format!(
        "the memory came in pages of {} KiB: for huge ones, \
         echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        page_size() / 1024
    ))
}

fn zero(mapping: &Mapping, offset: u64, len: u64) {
    assert!(offset + len <= mapping.len());
    // SAFETY: the range lies in the mapping, which is writable, and nobody else has the buffer.
    unsafe { std::ptr::write_bytes(mapping.at(offset), 0, len as usize) };
}

/// Moves an extent of a mapped memfd.
fn fill(task: &Task<'_>, ring: &mut IoUring, mapping: &Mapping, extent: Extent) -> Result<Moved> {
    let supply = Supply::default();
    let start = extent.buf & !(page_size() - 1);
    let end = extent.buf_end();
    std::thread::scope(|scope| {
        let loading = task.direction == Direction::Load;
        if loading {
            scope.spawn(|| supply.allocate(mapping, start, end));
        }
        let _stop = StopOnDrop(&supply);
        let supply = loading.then_some(&supply);
        let mut memory = UserMemory::new(mapping, start, end, task.options, ring, supply);
        let mut edge = |part: Extent| edge(task, mapping, part);
        // SAFETY: the mapping outlives this call and the range lies in it.
        let result = unsafe { task.on_ring(ring, extent, &mut memory, &mut edge) };
        let note = memory.note.take();
        let _ = ring.submitter().unregister_buffers();
        result.map(|mut moved| {
            moved.notes.extend(note);
            moved
        })
    })
}

/// Moves less than a block.
fn edge(task: &Task<'_>, mapping: &Mapping, part: Extent) -> Result<u64> {
    assert!(part.buf_end() <= mapping.len());
    let (start, len) = (mapping.at(part.buf), part.len as usize);
    match task.direction {
        Direction::Load => {
            // SAFETY: the range lies in the mapping, which is writable; it is not Rust's memory,
            // and for the time of the call nobody else in this process uses it.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, len) };
            super::buffered::read_edge(task, bytes, part.file)
        }
        Direction::Save => {
            // SAFETY: the range lies in the mapping; nobody in this process writes it for the
            // time of the call.
            let bytes = unsafe { std::slice::from_raw_parts(start, len) };
            super::buffered::write_all(task, bytes, part.file)?;
            task.watch.add(part.len);
            Ok(0)
        }
    }
}

/// What the second thread has allocated so far.
#[derive(Debug, Default)]
struct Supply {
    state: Mutex<Supplied>,
    changed: Condvar,
    stop: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Supplied {
    until: u64,
    error: Option<Os>,
}

struct StopOnDrop<'a>(&'a Supply);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Supply {
    fn state(&self) -> MutexGuard<'_, Supplied> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allocate(&self, mapping: &Mapping, start: u64, end: u64) {
        let mut at = start;
        while at < end && !self.stop.load(Ordering::Relaxed) {
            let step = STEP.min(end - at);
            let result = mapping.populate(at, step, true);
            at += step;
            let mut state = self.state();
            match result {
                // Before Linux 5.14 the requests themselves have to fault the pages in.
                Ok(()) | Err(Os::INVAL) => state.until = at,
                Err(errno) => state.error = Some(errno),
            }
            let failed = state.error.is_some();
            drop(state);
            self.changed.notify_all();
            if failed {
                return;
            }
        }
    }

    /// Whether everything before `end` is there; with `wait`, waits for it.
    fn reaches(&self, end: u64, wait: bool) -> rustix::io::Result<bool> {
        let mut state = self.state();
        loop {
            if state.until >= end {
                return Ok(true);
            }
            if let Some(errno) = state.error {
                return Err(errno);
            }
            if !wait {
                return Ok(false);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A mapping, registered piece by piece.
struct UserMemory<'a> {
    mapping: &'a Mapping,
    start: u64,
    end: u64,
    piece: u64,
    /// How many pieces are registered.
    registered: u64,
    /// Whether to register the next one.
    register: bool,
    note: Option<String>,
    supply: Option<&'a Supply>,
}

impl<'a> UserMemory<'a> {
    fn new(
        mapping: &'a Mapping,
        start: u64,
        end: u64,
        options: &Options,
        ring: &IoUring,
        supply: Option<&'a Supply>,
    ) -> Self {
        let least = memory::round_up((end - start).div_ceil(MAX_PIECES), page_size());
        let piece = options.gather().max(least.unwrap_or(MAX_PIECE)).min(MAX_PIECE);
        let pieces = (end - start).div_ceil(piece);
        let mut memory =
            Self { mapping, start, end, piece, registered: 0, register: true, note: None, supply };
        if let Err(error) = ring.submitter().register_buffers_sparse(pieces as u32) {
            memory.give_up(&error);
        }
        memory
    }

    /// Goes on with memory that is not registered, which costs a page-table walk per request.
    fn give_up(&mut self, error: &std::io::Error) {
        self.register = false;
        let errno = crate::Errno::from(error);
        self.note = Some(match errno.raw() {
            libc::ENOMEM => format!(
                "not all of the buffer could be registered with io_uring: RLIMIT_MEMLOCK is {}; \
                 to change that: ulimit -l unlimited",
                super::memlock()
            ),
            _ => format!("the buffer could not be registered with io_uring: {errno}"),
        });
    }

    fn piece_end(&self, index: u64) -> u64 {
        (self.start + (index + 1) * self.piece).min(self.end)
    }

    fn register_next(&mut self, ring: &IoUring) {
        let from = self.start + self.registered * self.piece;
        let piece = libc::iovec {
            iov_base: self.mapping.at(from).cast(),
            iov_len: (self.piece_end(self.registered) - from) as usize,
        };
        // SAFETY: the range is mapped until after the buffers are unregistered.
        let result = unsafe {
            ring.submitter().register_buffers_update(self.registered as u32, &[piece], None)
        };
        match result {
            Ok(()) => self.registered += 1,
            Err(error) => self.give_up(&error),
        }
    }
}

impl Memory for UserMemory<'_> {
    fn prepare(&mut self, ring: &IoUring, end: u64, wait: bool) -> Result<bool> {
        let needed =
            if self.register { self.piece_end((end - 1 - self.start) / self.piece) } else { end };
        if let Some(supply) = self.supply {
            let wanted = self.end - self.start;
            let there = supply
                .reaches(needed, wait)
                .map_err(|_| Error::NoMemory { wanted, available: None })?;
            if !there {
                return Ok(false);
            }
        }
        while self.register && self.start + self.registered * self.piece < end {
            self.register_next(ring);
        }
        Ok(true)
    }

    fn place(&self, offset: u64) -> (Place, u64) {
        let addr = self.mapping.at(offset) as u64;
        let index = (offset - self.start) / self.piece;
        let place = if index < self.registered {
            Place::Fixed { index: index as u16, addr }
        } else {
            Place::Plain { addr }
        };
        (place, self.piece_end(index))
    }
}
