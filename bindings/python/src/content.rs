// SPDX-License-Identifier: MIT OR Apache-2.0
//! A buffer's memory, and its views.
//!
//! CPU access begins with the first view and ends with the last one. No transfer into the memory
//! starts while a view exists, so the bytes of a view do not change; only a load that hands out new
//! memory fills it under views, which its caller gets when the load has ended. Nothing here needs the
//! GIL: a view may end in any thread.
//!
//! Views and transfers are counted in `users`, whose lock is held only briefly, so that threads that
//! hold the GIL may wait for it. Mapping the memory and CPU access may block: threads take turns at
//! it, and `ground` has the result. No lock is held when the turn is waited for.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

use dmabuf_dio::lend::{Access, Mapping};
use dmabuf_dio::{Buffer, Errno, Error, Kind};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::lock::{Guard, Lock, Turn};
use crate::page::page_size;

/// How many views an exception names.
const NAMED: usize = 5;

/// The memory of a buffer. Shared by the Python objects that use it.
#[derive(Debug)]
pub(crate) struct Content {
    buf: Buffer,
    /// Range of the content in it, in bytes.
    start: u64,
    len: u64,
    writable: bool,
    /// A file on a tmpfs, which its owner could truncate. As for every file that is mapped, nobody may meanwhile.
    is_kept: bool,
    users: Lock<Users>,
    turn: Turn,
    ground: Lock<Ground>,
}

/// The first byte of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address(pub(crate) NonNull<u8>);

// SAFETY: an address of memory that belongs to the process; views of it are counted.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// The users of the memory.
#[derive(Debug, Default)]
struct Users {
    views: BTreeMap<u64, String>,
    next: u64,
    /// The memory may be in use as long as the buffer exists, which cannot be detected.
    pinned: bool,
    readers: u32,
    writer: bool,
}

impl Users {
    /// The obstacle to freeing the memory, if any.
    fn trouble(&self) -> Option<Trouble> {
        match (self.writer, describe(&self.views), self.readers) {
            (true, ..) => Some(Trouble::Written),
            (false, Some(views), _) => Some(Trouble::Viewed(views)),
            (false, None, 1..) => Some(Trouble::Read),
            (false, None, 0) => None,
        }
    }
}

/// The mapping under the views.
#[derive(Debug, Default)]
struct Ground {
    mapping: Option<Mapping>,
    /// CPU access under way, and the process that began it: a child of fork(2) must not end it.
    access: Option<(Access, u32)>,
}

/// Why a view or a transfer cannot begin.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A transfer into the buffer is under way.
    Written,
    /// A transfer from the buffer is under way.
    Read,
    /// Views live.
    Viewed(String),
    /// Views are read-only.
    ReadOnly,
    /// The memory may be in use, which cannot be detected.
    Pinned,
    /// Touching a page might kill the process.
    Shrinks,
    Failed(Error),
}

impl Trouble {
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Written => PyBufferError::new_err("a transfer into the buffer is running"),
            Self::Read => PyBufferError::new_err("a transfer from the buffer is running"),
            Self::Viewed(views) => PyBufferError::new_err(format!("the buffer is in use: {views}")),
            Self::ReadOnly => PyBufferError::new_err(
                "the buffer is read-only: load it with writable=True, or use Buffer.alloc()",
            ),
            Self::Pinned => PyBufferError::new_err(
                "numpy.ndarray(buffer=...) was made of the buffer and may still use it: \
                 numpy.frombuffer() says when it is done",
            ),
            Self::Shrinks => PyBufferError::new_err(
                "the memfd may be truncated while it is looked at, which would kill the process: \
                 create it with MFD_ALLOW_SEALING",
            ),
            Self::Failed(error) => crate::error::raise(py, &error),
        }
    }
}

impl Content {
    /// The loaded part of a buffer. `writable`: whether views may write it.
    pub(crate) fn loaded(buf: Buffer, writable: bool) -> Arc<Self> {
        let range = buf.range();
        Self::part(buf, range.start, range.end - range.start, writable)
    }

    /// The bytes from `start` of a buffer.
    pub(crate) fn part(buf: Buffer, start: u64, len: u64, writable: bool) -> Arc<Self> {
        Arc::new(Self::of(buf, start, len, writable))
    }

    /// A kept file.
    pub(crate) fn kept(buf: Buffer) -> Arc<Self> {
        let range = buf.range();
        let mut content = Self::of(buf, range.start, range.end - range.start, false);
        content.is_kept = true;
        Arc::new(content)
    }

    fn of(buf: Buffer, start: u64, len: u64, writable: bool) -> Self {
        let writable = writable && buf.is_writable();
        Self {
            buf,
            start,
            len,
            writable,
            is_kept: false,
            users: Lock::default(),
            turn: Turn::default(),
            ground: Lock::default(),
        }
    }

    pub(crate) fn buf(&self) -> &Buffer {
        &self.buf
    }

    /// Offset of the content in the buffer, in bytes.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// What the address of private memory lacks to a multiple of the page size: parts of loads begin
    /// anywhere. It counts as an offset, which says how tensors are aligned.
    pub(crate) fn skew(&self) -> u64 {
        if self.buf.kind() != Kind::Private {
            return 0;
        }
        let page = page_size() as u64;
        self.buf.map().map_or(0, |view| view.as_ptr().addr() as u64 % page)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether a range lies in it.
    pub(crate) fn has(&self, start: u64, length: u64) -> bool {
        start.checked_add(length).is_some_and(|end| end <= self.len)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    fn users(&self) -> Guard<'_, Users> {
        self.users.lock()
    }

    /// Counts a view from now on. `pins`: the memory is used for as long as the buffer lives.
    pub(crate) fn begin_view(self: &Arc<Self>, label: String, pins: bool) -> Result<View, Trouble> {
        let mut users = self.users();
        if users.writer {
            return Err(Trouble::Written);
        }
        let number = users.next;
        users.next += 1;
        users.views.insert(number, label);
        users.pinned |= pins;
        Ok(View { content: Arc::clone(self), number })
    }

    /// Maps the buffer, once: the address of the content. To be called in turn.
    fn map(&self) -> Result<Address, Trouble> {
        if self.buf.kind() == Kind::Private {
            // Mapped for as long as it lives
            let view = self.buf.map().map_err(Trouble::Failed)?;
            let first = NonNull::new(view.as_ptr().cast_mut()).ok_or(Trouble::Shrinks)?;
            // SAFETY: the content lies in the memory.
            return Ok(Address(unsafe { first.add(self.start as usize) }));
        }
        let is_mapped = self.ground.lock().mapping.is_some();
        if !is_mapped {
            let mapping = self.buf.mapping(self.writable).map_err(Trouble::Failed)?;
            if mapping.shrinks() && !self.is_kept {
                return Err(Trouble::Shrinks);
            }
            self.ground.lock().mapping = Some(mapping);
        }
        let ground = self.ground.lock();
        let first = ground.mapping.as_ref().and_then(|mapping| NonNull::new(mapping.as_ptr()));
        let first = first.ok_or(Trouble::Shrinks)?;
        // SAFETY: the content lies in the buffer, all of which is mapped.
        Ok(Address(unsafe { first.add(self.start as usize) }))
    }

    /// To be called in turn.
    fn end_access(&self) {
        let access = self.ground.lock().access.take();
        if let Some((access, process)) = access {
            if process == std::process::id() {
                // An error can no longer be reported.
                let _ = self.buf.end_cpu_access(access);
            }
        }
    }

    /// The existing views, as text; `None` if there are none.
    pub(crate) fn views(&self) -> Option<String> {
        describe(&self.users().views)
    }

    /// Whether CPU access is under way. May block as [`View::open`].
    pub(crate) fn is_accessed(&self) -> bool {
        self.turn.with(|| self.ground.lock().access.is_some())
    }

    /// Begins a transfer into the memory, which excludes views and other transfers.
    pub(crate) fn begin_write(self: &Arc<Self>) -> Result<Transfer, Trouble> {
        let mut users = self.users();
        if let Some(trouble) = users.trouble() {
            return Err(trouble);
        }
        if !self.writable {
            return Err(Trouble::ReadOnly);
        }
        if users.pinned {
            return Err(Trouble::Pinned);
        }
        users.writer = true;
        Ok(Transfer { content: Arc::clone(self), writes: true })
    }

    /// Begins a transfer from the memory.
    pub(crate) fn begin_read(self: &Arc<Self>) -> Result<Transfer, Trouble> {
        let mut users = self.users();
        if users.writer {
            return Err(Trouble::Written);
        }
        users.readers += 1;
        Ok(Transfer { content: Arc::clone(self), writes: false })
    }

    /// The obstacle to freeing the memory, if any.
    pub(crate) fn in_use(&self) -> Option<Trouble> {
        self.users().trouble()
    }

    /// Whether the memory must stay until the buffer object is gone.
    pub(crate) fn is_pinned(&self) -> bool {
        self.users().pinned
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.end_access();
    }
}

/// Seals memory that was just loaded, unless it is to be writable.
pub(crate) fn seal(buf: &mut Buffer, writable: bool) -> Result<(), Error> {
    if writable || !matches!(buf.kind(), Kind::Memfd | Kind::File) {
        return Ok(());
    }
    match buf.seal() {
        // A child that another thread forked meanwhile has it mapped, and does not write to it.
        Err(error) if error.errno() == Some(Errno::BUSY) => buf.seal_future_writes(),
        sealed => sealed,
    }
}

/// Frees memory without holding the GIL: unmapping gigabytes of small pages takes time, and so may
/// the end of CPU access.
pub(crate) fn let_go<T: Send>(held: T) {
    let mut held = Some(held);
    let _ = Python::try_attach(|py| py.detach(|| drop(held.take())));
    // At the end of the interpreter it goes here.
}

/// A view that lives: it keeps the memory and is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct View {
    content: Arc<Content>,
    number: u64,
}

impl View {
    pub(crate) fn content(&self) -> &Arc<Content> {
        &self.content
    }

    /// The address of the content, and CPU access begun. May block until devices that use the buffer
    /// have finished: not to be called with the interpreter.
    pub(crate) fn open(&self) -> Result<Address, Trouble> {
        let content = &*self.content;
        if content.buf.kind() == Kind::Private {
            return content.map();
        }
        content.turn.with(|| {
            let first = content.map()?;
            let is_accessed = content.ground.lock().access.is_some();
            if !is_accessed && content.buf.kind() == Kind::DmaBuf {
                let access = if content.writable { Access::ReadWrite } else { Access::Read };
                content.buf.begin_cpu_access(access).map_err(Trouble::Failed)?;
                content.ground.lock().access = Some((access, std::process::id()));
            }
            Ok(first)
        })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let content = &*self.content;
        // A view that begins meanwhile waits for its turn.
        content.turn.with(|| {
            let mut users = content.users();
            users.views.remove(&self.number);
            let last = users.views.is_empty() && !users.pinned;
            drop(users);
            if last {
                content.end_access();
            }
        });
    }
}

/// A transfer under way.
#[derive(Debug)]
pub(crate) struct Transfer {
    content: Arc<Content>,
    writes: bool,
}

impl Transfer {
    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// Waits until the CPU access of views that have ended is over: to be called before bytes move into the
    /// memory. May block as [`View::open`].
    pub(crate) fn settle(&self) {
        self.content.turn.with(|| self.content.end_access());
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut users = self.content.users();
        if self.writes {
            users.writer = false;
        } else {
            users.readers -= 1;
        }
    }
}

fn describe(views: &BTreeMap<u64, String>) -> Option<String> {
    if views.is_empty() {
        return None;
    }
    let mut text = views.values().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if views.len() > NAMED {
        text.push_str(&format!(" and {} more", views.len() - NAMED));
    }
    let number = if views.len() == 1 {
        "1 view lives".into()
    } else {
        format!("{} views live", views.len())
    };
    Some(format!("{number}: {text}"))
}
