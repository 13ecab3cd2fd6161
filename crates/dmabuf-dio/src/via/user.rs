// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the process, as `io_uring` with registered buffers moves it.
//!
//! A second thread allocates the pages, in order; each piece is registered when it is there, and
//! its requests are in flight while the next piece is being allocated. What fits into one request
//! needs neither ring nor thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use io_uring::IoUring;
use rustix::io::Errno as Os;

use super::{Layout, Moved, Task, plain};
use crate::backend::{Backend, Refusal};
use crate::error::{Direction, Error, Result};
use crate::extent::Extent;
use crate::memory::{self, Mapping, PageSizes, page_size};
use crate::options::Options;
use crate::uring::{self, Job, Memory, Place};

/// How much is allocated between two looks at whether it is still wanted.
const STEP: u64 = 16 << 20;
/// The most buffers that are registered; the kernel takes 16384.
const MAX_PIECES: u64 = 8192;
/// The most bytes in one of them.
const MAX_PIECE: u64 = 1 << 30;

/// The ring that moving `len` bytes needs, if it needs one.
pub(crate) fn ring(
    backend: Backend,
    task: &Task<'_>,
    len: u64,
) -> Result<Option<IoUring>, Refusal> {
    if len <= task.options.chunk() {
        return Ok(None);
    }
    super::ring(backend, task.options.depth()).map(Some)
}

/// Loads the range of a task into new memory that is laid out for it.
pub(crate) fn load(
    task: &Task<'_>,
    ring: Option<IoUring>,
    mapping: &Mapping,
    layout: Layout,
) -> Result<Moved> {
    let end = layout.data_offset + task.length;
    let len = if task.file.direct.is_some() { layout.buffer } else { end };
    let mut moved = fill(task, ring, mapping, Extent { file: layout.base, buf: 0, len })?;
    moved.pages = PageSizes::of(mapping);
    // What lies before and after the range came along with its blocks.
    zero(mapping, 0, layout.data_offset);
    zero(mapping, end, layout.buffer - end);
    Ok(moved)
}

fn zero(mapping: &Mapping, offset: u64, len: u64) {
    assert!(offset + len <= mapping.len());
    // SAFETY: the range lies in the mapping, which is writable, and nobody else has the buffer.
    unsafe { std::ptr::write_bytes(mapping.at(offset), 0, len as usize) };
}

/// Moves an extent of mapped memory, without a ring in one request after the other.
pub(crate) fn fill(
    task: &Task<'_>,
    ring: Option<IoUring>,
    mapping: &Mapping,
    extent: Extent,
) -> Result<Moved> {
    let mut edge = |part: Extent| edge(task, mapping, part);
    let Some(mut ring) = ring else {
        let mut core = |job: &Job<'_>| plain::run(job, mapping);
        return task.in_parts(extent, &mut core, &mut edge);
    };
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
        let mut memory = UserMemory::new(mapping, start, end, task.options, &ring, supply);
        // SAFETY: the mapping outlives this call and the range lies in it.
        let mut core = |job: &Job<'_>| unsafe { uring::run(&mut ring, job, &mut memory) };
        let result = task.in_parts(extent, &mut core, &mut edge);
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
