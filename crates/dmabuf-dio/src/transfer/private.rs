// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads into private memory.

use std::sync::Arc;

use io_uring::IoUring;

use super::layout::Layout;
use super::mapped::{self, Origin};
use super::task::{Task, Transferred};
use crate::error::Result;
use crate::lend;
use crate::memory::Mapping;
use crate::memory::huge;

/// Loads over the content of memory that has room for the layout.
pub(crate) fn load_over(
    task: &Task<'_>,
    mapping: &Arc<Mapping>,
    layout: Layout,
) -> Result<Transferred> {
    let (ring, note) = ring(task, layout.buffer);
    let extent = task.extent_in(layout, mapping.len());
    let mut moved = mapped::fill(task, ring, mapping, extent, Origin::Given)?;
    moved.notes.extend(note);
    Ok(moved)
}

/// A ring if it pays, or a note on why there is none.
fn ring(task: &Task<'_>, len: u64) -> (Option<IoUring>, Option<String>) {
    match task.needs_ring(len).then(|| lend::create(task.depth(), false)) {
        None => (None, None),
        Some(Ok(ring)) => (Some(ring), None),
        Some(Err(error)) => (None, Some(format!("one request at a time: {error}"))),
    }
}

/// Loads into new memory with the same layout as a buffer.
pub(crate) fn load(task: &Task<'_>, layout: Layout) -> Result<(Arc<Mapping>, Transferred)> {
    let mapping = Arc::new(task.options.private_memory(layout.buffer, Mapping::anonymous)?);
    let (ring, note) = ring(task, layout.buffer);
    let mut moved = mapped::load(task, ring, &mapping, layout)?;
    moved.notes.extend(note);
    if task.options.lock {
        mapping.lock()?;
    }
    if task.options.huge_pages {
        let remedy = || huge::private_huge_remedy().into();
        moved.notes.extend(huge::page_note(moved.pages, mapping.len(), remedy));
    }
    Ok((mapping, moved))
}
