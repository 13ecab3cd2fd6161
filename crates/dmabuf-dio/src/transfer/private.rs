// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads into private memory.

use std::sync::Arc;

use super::layout::Layout;
use super::mapped;
use super::task::{Task, Transferred};
use crate::error::Result;
use crate::lend;
use crate::memory::Mapping;
use crate::memory::available::{self, Charged};
use crate::memory::huge;

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
