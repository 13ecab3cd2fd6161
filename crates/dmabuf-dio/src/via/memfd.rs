// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memfd, in huge pages where there are any.

use std::os::fd::AsFd;

use super::{Fresh, Moved, Task, user};
use crate::backend::Backend;
use crate::buf::DmaBuf;
use crate::error::{Attempt, Direction, Error, Result};
use crate::extent::Extent;
use crate::memory::{self, HUGE_PAGE, Mapping, PageSizes, page_size};

/// Loads into a new memfd, in the name of `backend`; of reserved huge pages if `hugetlb` and if
/// there are any.
pub(crate) fn load(backend: Backend, task: &Task<'_>, hugetlb: bool) -> Result<Fresh, Attempt> {
    let layout = task.layout()?;
    let ring = user::ring(backend, task, layout.buffer)?;
    memory::ensure_available(layout.buffer)?;
    let (buf, mapping) = allocate(layout.buffer, hugetlb)?;
    let mut moved = user::load(task, ring, &mapping, layout)?;
    moved.notes.extend(page_note(moved.pages, buf.len()));
    Ok(Fresh { buf, moved })
}

/// Moves between a file and a range of an existing memfd.
pub(crate) fn transfer(task: &Task<'_>, buf: &DmaBuf, extent: Extent) -> Result<Moved, Attempt> {
    let ring = user::ring(Backend::Memfd, task, extent.len)?;
    if task.direction == Direction::Load && !buf.is_writable() {
        return Err(Error::ReadOnlyBuffer.into());
    }
    let mapping = Mapping::new(buf.as_fd(), buf.len(), buf.is_writable())?;
    mapping.advise_huge();
    let mut moved = user::fill(task, ring, &mapping, extent)?;
    moved.pages = PageSizes::of(&mapping);
    Ok(moved)
}

/// A memfd in the largest pages to be had, and its mapping.
fn allocate(len: u64, hugetlb: bool) -> Result<(DmaBuf, Mapping)> {
    if hugetlb
        && len >= HUGE_PAGE
        && let Ok(got) = DmaBuf::memfd_huge(len)
    {
        return Ok(got);
    }
    let buf = DmaBuf::memfd(len)?;
    let mapping = Mapping::new(buf.as_fd(), buf.len(), true)?;
    mapping.advise_huge();
    Ok((buf, mapping))
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
