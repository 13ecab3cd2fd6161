// SPDX-License-Identifier: MIT OR Apache-2.0
//! A buffer's memory, and who looks at it.
//!
//! CPU access begins with the first view and ends with the last one. No transfer into the memory
//! starts while a view lives, so no byte changes under one. Nothing here needs the interpreter: a view
//! may end in any thread.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dmabuf_dio::lend::{Access, Mapping};
use dmabuf_dio::{DmaBuf, Error, Kind, Private, Refusal};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// How many views an exception names.
const NAMED: usize = 5;

/// The memory of a buffer. Shared by the Python objects that use it.
#[derive(Debug)]
pub(crate) struct Content {
    store: Store,
    /// Range of the content in the store, in bytes.
    start: u64,
    len: u64,
    writable: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
enum Store {
    Shared(DmaBuf),
    /// A memfd, and a dma-buf over its pages or why there is none.
    File(DmaBuf, Result<DmaBuf, Refusal>),
    /// Kept for its memory, which is used through the address.
    Private(#[allow(dead_code, reason = "owns the memory")] Box<Private>, Address),
}

/// The first byte of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address(pub(crate) NonNull<u8>);

// SAFETY: an address of memory that belongs to the process; views of it are counted.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

#[derive(Debug, Default)]
struct State {
    mapping: Option<Mapping>,
    /// CPU access under way, and the process that began it: a child of fork(2) must not end it.
    access: Option<(Access, u32)>,
    views: BTreeMap<u64, String>,
    next: u64,
    /// Somebody uses the memory without a view: CPU access goes on until nobody does.
    lingers: bool,
    readers: u32,
    writer: bool,
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
    /// Touching a page might kill the process.
    Shrinks,
    Failed(Error),
}

impl Trouble {
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Written => PyBufferError::new_err("a transfer into the buffer is running"),
            Self::Read => PyBufferError::new_err("a transfer from the buffer is running"),
            Self::Viewed(views) => PyBufferError::new_err(views),
            Self::Shrinks => PyBufferError::new_err(
                "the memfd may be truncated while it is looked at, which would kill the process: \
                 create it with MFD_ALLOW_SEALING",
            ),
            Self::Failed(error) => crate::error::raise(py, &error),
        }
    }
}

impl Content {
    /// The bytes from `start` of a buffer. `writable`: whether views may write them.
    pub(crate) fn shared(buf: DmaBuf, start: u64, len: u64, writable: bool) -> Arc<Self> {
        let writable = writable && buf.is_writable();
        Self::of(Store::Shared(buf), start, len, writable)
    }

    /// A file in memory, whole.
    pub(crate) fn file(
        memfd: DmaBuf,
        dmabuf: Result<DmaBuf, Refusal>,
        writable: bool,
    ) -> Arc<Self> {
        let (writable, len) = (writable && memfd.is_writable(), memfd.len());
        Self::of(Store::File(memfd, dmabuf), 0, len, writable)
    }

    pub(crate) fn private(memory: Private, writable: bool) -> Arc<Self> {
        let mut memory = Box::new(memory);
        let len = memory.len() as u64;
        // Taken once: from now on the memory is used through this address alone.
        let address = Address(NonNull::from(&mut memory[..]).cast());
        Self::of(Store::Private(memory, address), 0, len, writable)
    }

    fn of(store: Store, start: u64, len: u64, writable: bool) -> Arc<Self> {
        Arc::new(Self { store, start, len, writable, state: Mutex::default() })
    }

    /// The descriptor's buffer; `None` for private memory.
    pub(crate) fn buf(&self) -> Option<&DmaBuf> {
        match &self.store {
            Store::Shared(buf) | Store::File(buf, _) => Some(buf),
            Store::Private(..) => None,
        }
    }

    /// For a file in memory: the dma-buf over its pages, or why there is none.
    pub(crate) fn dmabuf(&self) -> Option<&Result<DmaBuf, Refusal>> {
        match &self.store {
            Store::File(_, dmabuf) => Some(dmabuf),
            Store::Shared(_) | Store::Private(..) => None,
        }
    }

    /// Offset of the content in the descriptor's buffer, in bytes.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a view: its address, and its number. May block until devices that use the buffer have
    /// finished.
    pub(crate) fn begin_view(&self, label: String) -> Result<(Address, u64), Trouble> {
        let mut state = self.state();
        if state.writer {
            return Err(Trouble::Written);
        }
        let first = match &self.store {
            Store::Private(_, address) => *address,
            Store::Shared(buf) | Store::File(buf, _) => {
                let first = self.map(buf, &mut state)?;
                if state.access.is_none() && buf.kind() == Kind::DmaBuf {
                    let access = if self.writable { Access::ReadWrite } else { Access::Read };
                    buf.begin_cpu_access(access).map_err(Trouble::Failed)?;
                    state.access = Some((access, std::process::id()));
                }
                first
            }
        };
        let number = state.next;
        state.next += 1;
        state.views.insert(number, label);
        Ok((first, number))
    }

    /// Maps the buffer, once: the address of the content.
    fn map(&self, buf: &DmaBuf, state: &mut State) -> Result<Address, Trouble> {
        if state.mapping.is_none() {
            let mapping = buf.mapping(self.writable).map_err(Trouble::Failed)?;
            if mapping.shrinks() {
                return Err(Trouble::Shrinks);
            }
            state.mapping = Some(mapping);
        }
        let first = state.mapping.as_ref().and_then(|mapping| NonNull::new(mapping.as_ptr()));
        let first = first.ok_or(Trouble::Shrinks)?;
        // SAFETY: the content lies in the buffer, all of which is mapped.
        Ok(Address(unsafe { first.add(self.start as usize) }))
    }

    /// Ends a view. `hidden`: somebody goes on using the memory without one, as far as is known;
    /// `None` leaves that as it was.
    pub(crate) fn end_view(&self, number: u64, hidden: Option<bool>) {
        let mut state = self.state();
        state.views.remove(&number);
        if let Some(hidden) = hidden {
            state.lingers = hidden;
        }
        if state.views.is_empty() && !state.lingers {
            self.end_access(&mut state);
        }
    }

    fn end_access(&self, state: &mut State) {
        if let (Some((access, process)), Some(buf)) = (state.access.take(), self.buf()) {
            if process == std::process::id() {
                // Nobody is left who could be told.
                let _ = buf.end_cpu_access(access);
            }
        }
    }

    /// What still lives, in words; `None` if nothing does.
    pub(crate) fn views(&self) -> Option<String> {
        describe(&self.state().views)
    }

    /// Whether CPU access is under way.
    pub(crate) fn is_accessed(&self) -> bool {
        self.state().access.is_some()
    }

    /// Begins a transfer into the memory, which excludes views and other transfers.
    pub(crate) fn begin_write(self: &Arc<Self>) -> Result<Transfer, Trouble> {
        let mut state = self.state();
        if state.writer {
            return Err(Trouble::Written);
        }
        if state.readers > 0 {
            return Err(Trouble::Read);
        }
        if let Some(views) = describe(&state.views) {
            return Err(Trouble::Viewed(views));
        }
        // Who used the memory without a view is gone, says the caller.
        state.lingers = false;
        self.end_access(&mut state);
        state.writer = true;
        Ok(Transfer { content: Arc::clone(self), writes: true })
    }

    /// Begins a transfer from the memory.
    pub(crate) fn begin_read(self: &Arc<Self>) -> Result<Transfer, Trouble> {
        let mut state = self.state();
        if state.writer {
            return Err(Trouble::Written);
        }
        state.readers += 1;
        Ok(Transfer { content: Arc::clone(self), writes: false })
    }

    /// Whether a transfer is under way.
    pub(crate) fn is_busy(&self) -> Option<Trouble> {
        let state = self.state();
        match (state.writer, state.readers) {
            (true, _) => Some(Trouble::Written),
            (false, 1..) => Some(Trouble::Read),
            (false, 0) => None,
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let mut state =
            std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.end_access(&mut state);
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
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut state = self.content.state();
        if self.writes {
            state.writer = false;
        } else {
            state.readers -= 1;
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
