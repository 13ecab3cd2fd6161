// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memfd, in huge pages where there are any.

use std::os::fd::AsFd as _;

use super::{Fresh, Moved, Task, staged, user};
use crate::backend::Backend;
use crate::buf::DmaBuf;
use crate::error::{Attempt, Direction, Error, Result};
use crate::extent::Extent;
use crate::memory::{self, HUGE_PAGE, Mapping, PageSizes, page_size};

/// Below this size setting up a tmpfs takes longer than it saves.
const WORTH_A_TMPFS: u64 = 4 << 20;

/// What the memory may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Whatever has the largest pages.
    Any,
    /// A memfd, in reserved huge pages if there are any.
    Memfd,
    /// A memfd of the kernel's usual memory, of which every kernel makes a udmabuf.
    Plain,
}

/// Loads into new memory, in the name of `backend`.
pub(crate) fn load(backend: Backend, task: &Task<'_>, kind: Memory) -> Result<Fresh, Attempt> {
    let layout = task.layout()?;
    let ring = user::ring(backend, task, layout.buffer)?;
    memory::ensure_available(layout.buffer)?;
    let wanted = task.options.huge_pages;
    let huge = if wanted { allocate_huge(layout.buffer, kind) } else { None };
    // What a stage is read into comes by a ring, or in one request.
    let mapped = if huge.is_none() && ring.is_none() && layout.buffer > task.chunk() {
        let buf = DmaBuf::memfd(layout.buffer)?;
        let mapping = Mapping::new(buf.as_fd(), buf.len(), true)?;
        Some((buf, mapping))
    } else {
        huge
    };
    let (buf, mut moved) = if let Some((buf, mapping)) = mapped {
        let moved = user::load(task, ring, &mapping, layout)?;
        (buf, moved)
    } else {
        let buf = DmaBuf::memfd(layout.buffer)?;
        let moved = staged::load(task, ring, &buf, layout)?;
        (buf, moved)
    };
    if wanted {
        moved.notes.extend(page_note(moved.pages, buf.len()));
    }
    Ok(Fresh { buf, moved })
}

/// Moves between a file and a range of an existing memfd.
pub(crate) fn transfer(task: &Task<'_>, buf: &DmaBuf, extent: Extent) -> Result<Moved, Attempt> {
    let ring = user::ring(Backend::Memfd, task, extent.len)?;
    if task.direction == Direction::Load && !buf.is_writable() {
        return Err(Error::ReadOnlyBuffer.into());
    }
    let mapping = buf.mapping(buf.is_writable())?;
    mapping.advise(true);
    let mut moved = user::fill(task, ring, &mapping, extent)?;
    moved.pages = PageSizes::of(&mapping);
    Ok(moved)
}

/// Memory in huge pages and its mapping, if there is any.
fn allocate_huge(len: u64, kind: Memory) -> Option<(DmaBuf, Mapping)> {
    if len < HUGE_PAGE {
        return None;
    }
    if kind != Memory::Plain
        && let Ok(reserved) = DmaBuf::memfd_huge(len)
    {
        return Some(reserved);
    }
    let buf = if memory::memfds_get_huge_pages() {
        DmaBuf::memfd(len).ok()?
    } else if kind == Memory::Any && len >= WORTH_A_TMPFS {
        DmaBuf::tmpfs(len).ok()?
    } else {
        return None;
    };
    let mapping = buf.mapping(true).ok()?;
    mapping.advise(true);
    Some((buf, mapping))
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
