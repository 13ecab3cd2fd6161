// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memfd, in huge pages where there are any.

use std::os::fd::AsFd;

use super::supply::Supply;
use super::{Fresh, Moved, Task, user};
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
    let (buf, mapping, supply) = if wanted {
        allocate_huge(layout.buffer, kind).map_or_else(|| allocate(layout.buffer, true), Ok)?
    } else {
        allocate(layout.buffer, false)?
    };
    let mut moved = user::load(task, ring, &mapping, layout, &supply)?;
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
    let mapping = Mapping::new(buf.as_fd(), buf.len(), buf.is_writable())?;
    mapping.advise(true);
    let mut moved = user::fill(task, ring, &mapping, extent, &Supply::by_touch())?;
    moved.pages = PageSizes::of(&mapping);
    Ok(moved)
}

/// Memory that is in huge pages for sure, its mapping, and how to make the pages ready.
fn allocate_huge(len: u64, kind: Memory) -> Option<(DmaBuf, Mapping, Supply)> {
    if kind != Memory::Plain
        && len >= HUGE_PAGE
        && let Ok((buf, mapping)) = DmaBuf::memfd_huge(len)
    {
        return Some((buf, mapping, Supply::by_touch()));
    }
    if kind == Memory::Any
        && len >= WORTH_A_TMPFS
        && !memory::memfds_get_huge_pages()
        && let Ok(buf) = DmaBuf::tmpfs(len)
    {
        let mapping = Mapping::new(buf.as_fd(), len, true).ok()?;
        return Some((buf, mapping, Supply::by_touch()));
    }
    None
}

/// A memfd, in transparent huge pages if they are wanted and allowed.
fn allocate(len: u64, huge: bool) -> Result<(DmaBuf, Mapping, Supply)> {
    let buf = DmaBuf::memfd(len)?;
    let mapping = Mapping::new(buf.as_fd(), buf.len(), true)?;
    let supply = if len < HUGE_PAGE {
        Supply::by_touch()
    } else if huge && memory::memfds_get_huge_pages() {
        mapping.advise(true);
        Supply::by_touch()
    } else {
        // Zeroing small pages is left to the requests, so that two threads share the work.
        Supply::by_reservation(buf.try_clone()?.into_fd())
    };
    Ok((buf, mapping, supply))
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
