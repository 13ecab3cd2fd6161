// SPDX-License-Identifier: MIT OR Apache-2.0
//! Anonymous memory of this process alone, in huge pages where the system allows them to anyone.

use super::{Layout, Moved, Task, user};
use crate::available::{self, Charged};
use crate::backend::Backend;
use crate::error::Result;
use crate::memory::{self, HUGE_PAGE, Mapping, page_size};

/// Loads into new memory, which is laid out as a buffer would be.
pub(crate) fn load(task: &Task<'_>, layout: Layout) -> Result<(Mapping, Moved)> {
    available::ensure(layout.buffer, Charged::Us)?;
    let (ring, note) = match user::ring(Backend::Private, task, layout.buffer) {
        Ok(ring) => (ring, None),
        Err(refusal) => (None, Some(format!("one request at a time: {}", refusal.reason))),
    };
    let mapping = Mapping::anonymous(layout.buffer)?;
    mapping.advise(task.options.huge_pages);
    let mut moved = user::load(task, ring, &mapping, layout)?;
    moved.notes.extend(note);
    let small = moved.pages.is_some_and(|pages| pages.page_size < HUGE_PAGE);
    if task.options.huge_pages && small && mapping.len() >= HUGE_PAGE {
        moved.notes.push(format!(
            "the memory came in pages of {} KiB: for huge ones, {}",
            page_size() / 1024,
            memory::private_huge_remedy()
        ));
    }
    Ok((mapping, moved))
}
