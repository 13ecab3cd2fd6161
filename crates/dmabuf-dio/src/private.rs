// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of a file in private memory.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::error::Result;
use crate::lend;
use crate::memory::Mapping;
use crate::memory::available::{self, Charged};
use crate::memory::huge;
use crate::report::Report;
use crate::transfer::layout::Layout;
use crate::transfer::mapped;
use crate::transfer::task::{Task, Transferred};

/// The content of a file, in memory that no other process or device can reach. Created by
/// [`Loader::load_private`](crate::Loader::load_private), freed when dropped.
///
/// It dereferences to the bytes of the range. Their address is congruent to their offset in the
/// file, modulo the page size.
#[derive(Debug)]
#[non_exhaustive]
pub struct Private {
    memory: PrivateMemory,
    /// How the data was transferred.
    pub report: Report,
}

impl Private {
    pub(crate) fn new(memory: PrivateMemory, report: Report) -> Self {
        Self { memory, report }
    }

    /// The memory alone, which others may have as well.
    pub fn into_memory(self) -> PrivateMemory {
        self.memory
    }
}

/// The memory of a [`Private`]: it lives as long as any of its owners, which know its address. Clones
/// refer to the same memory.
#[derive(Clone, Debug)]
pub struct PrivateMemory {
    mapping: Arc<Mapping>,
    start: usize,
    len: usize,
}

impl PrivateMemory {
    fn new(mapping: &Arc<Mapping>, start: u64, len: u64) -> Self {
        assert!(start + len <= mapping.len());
        Self { mapping: Arc::clone(mapping), start: start as usize, len: len as usize }
    }

    /// The address of the range's first byte, congruent to its offset in the file modulo the page
    /// size; valid as long as any owner of the memory. The bytes are undefined until the load has
    /// ended without error. Whoever accesses them must know that nobody else does: the load until it
    /// ends, then the owner of the [`Private`].
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: the range lies in the mapping: `new` checks that.
        unsafe { self.mapping.as_ptr().add(self.start) }
    }

    /// Length of the range in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no range is")]
    pub fn len(&self) -> u64 {
        self.len as u64
    }
}

/// Loads into new memory with the same layout as a buffer. `ready` gets it before anything is read.
pub(crate) fn load(
    task: &Task<'_>,
    layout: Layout,
    ready: impl FnOnce(PrivateMemory),
) -> Result<(PrivateMemory, Transferred)> {
    available::ensure(layout.buffer, Charged::Us)?;
    let (ring, note) =
        match task.needs_ring(layout.buffer).then(|| lend::create(task.depth(), false)) {
            None => (None, None),
            Some(Ok(ring)) => (Some(ring), None),
            Some(Err(error)) => (None, Some(format!("one request at a time: {error}"))),
        };
    let mapping = Arc::new(Mapping::anonymous(layout.buffer)?);
    mapping.advise(task.options.huge_pages);
    let memory = PrivateMemory::new(&mapping, layout.data_offset, task.length);
    ready(memory.clone());
    let mut moved = mapped::load(task, ring, &mapping, layout)?;
    moved.notes.extend(note);
    if task.options.huge_pages {
        let remedy = || huge::private_huge_remedy().into();
        moved.notes.extend(huge::page_note(moved.pages, mapping.len(), remedy));
    }
    Ok((memory, moved))
}

impl Deref for Private {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is anonymous memory that lives as long as self; the kernel has finished
        // with it, and it is written only through `&mut self`: other owners have its address, whose
        // use is unsafe.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.memory.len) }
    }
}

impl DerefMut for Private {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the memory is writable.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.memory.len) }
    }
}
