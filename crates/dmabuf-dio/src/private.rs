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
    mapping: Arc<Mapping>,
    start: usize,
    len: usize,
    /// How the data was transferred.
    pub report: Report,
}

impl Private {
    pub(crate) fn new(mapping: Arc<Mapping>, start: u64, len: u64, report: Report) -> Self {
        assert!(start + len <= mapping.len());
        Self { mapping, start: start as usize, len: len as usize, report }
    }
}

/// Loads into new memory with the same layout as a buffer.
pub(crate) fn load(task: &Task<'_>, layout: Layout) -> Result<(Arc<Mapping>, Transferred)> {
    available::ensure(layout.buffer, Charged::Us)?;
    let (ring, note) =
        match task.needs_ring(layout.buffer).then(|| lend::create(task.depth(), false)) {
            None => (None, None),
            Some(Ok(ring)) => (Some(ring), None),
            Some(Err(error)) => (None, Some(format!("one request at a time: {error}"))),
        };
    let mapping = Arc::new(Mapping::anonymous(layout.buffer)?);
    mapping.advise(task.options.huge_pages);
    let mut moved = mapped::load(task, ring, &mapping, layout)?;
    moved.notes.extend(note);
    if task.options.huge_pages {
        let remedy = || huge::private_huge_remedy().into();
        moved.notes.extend(huge::page_note(moved.pages, mapping.len(), remedy));
    }
    Ok((mapping, moved))
}

impl Deref for Private {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in the mapping, which is anonymous memory that lives as long as
        // self; the kernel has finished with it, and it is written only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().add(self.start), self.len) }
    }
}

impl DerefMut for Private {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the mapping is writable, and `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_ptr().add(self.start), self.len) }
    }
}
