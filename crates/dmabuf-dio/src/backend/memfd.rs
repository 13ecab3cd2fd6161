// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memfd, in huge pages if possible.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use super::Backend;
use super::driver::{Driver, Reach};
use crate::buffer::shared::Shared;
use crate::direction::Direction;
use crate::errno::IntoErrno;
use crate::error::{Error, Result};
use crate::file::extent::Extent;
use crate::kind::Kind;
use crate::memory::Mapping;
use crate::memory::available::{self, Charged};
use crate::memory::huge;
use crate::memory::page::{huge_page, page_size};
use crate::memory::place::{self, Place};
use crate::memory::sizes::PageSizes;
use crate::refusal;
use crate::refusal::attempt::Attempt;
use crate::transfer::task::{Fresh, Task, Transferred};
use crate::transfer::{mapped, staged};

pub(crate) struct Memfd;

impl Driver for Memfd {
    fn backend(&self) -> Backend {
        Backend::Memfd
    }

    fn load(&self, task: &Task<'_>, _: Kind) -> Result<Fresh, Attempt> {
        let exact = task.options.kind == Kind::File;
        load(Backend::Memfd, task, if exact { Purpose::File } else { Purpose::Memfd })
    }

    fn transfer(
        &self,
        task: &Task<'_>,
        buf: &Shared,
        extent: Extent,
    ) -> Result<Transferred, Attempt> {
        transfer(task, buf, extent)
    }

    fn reach(&self, buf: &Shared) -> Result<Reach, Attempt> {
        let mapping = buf.mapping(true)?;
        mapping.advise(true);
        Ok(Reach::MappedRing(Arc::new(mapping)))
    }

    fn try_out(&self) -> Result<String, Attempt> {
        refusal::ring(Backend::Memfd, 1, false)?;
        Shared::memfd(page_size())?.map()?;
        Ok("loads into a memfd by io_uring: not a dma-buf, devices cannot import it".into())
    }
}

/// The purpose of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A plain memfd: as long as the content, except in reserved huge pages.
    Memfd,
    /// A memfd that is opened by path: as long as the content.
    File,
    /// A udmabuf: whole pages, of whatever size the kernel picks. Before Linux 6.13 the kernel's
    /// mapping of a udmabuf over large pages is wrong (`vmap_udmabuf()`).
    Udmabuf,
    /// A udmabuf without reserved huge pages, which not every kernel supports.
    PlainUdmabuf,
}

/// Loads into new memory on behalf of `backend`.
pub(super) fn load(backend: Backend, task: &Task<'_>, purpose: Purpose) -> Result<Fresh, Attempt> {
    let layout = task.layout()?;
    let ring = refusal::ring_for(backend, task, layout.buffer)?;
    available::ensure(layout.buffer, Charged::Us)?;
    let place = task.options.place(layout.buffer)?;
    let place = place.as_ref();
    if matches!(purpose, Purpose::Memfd | Purpose::File) {
        task.options.check_lock(layout.buffer)?;
    }
    let len = match purpose {
        Purpose::Memfd | Purpose::File => layout.data_offset + task.length,
        Purpose::Udmabuf | Purpose::PlainUdmabuf => layout.buffer,
    };
    let wanted = task.options.huge_pages;
    let huge = if wanted { allocate_huge(len, purpose, place)? } else { None };
    // A staging buffer is filled with whole blocks, by a ring or in one request.
    let staged = task.has_whole_blocks(layout) && (ring.is_some() || layout.buffer <= task.chunk());
    let mapped = if huge.is_none() && !staged {
        let buf = allocate(len, place)?;
        let mapping = map(&buf)?;
        Some((buf, mapping))
    } else {
        huge
    };
    let (buf, mut moved) = if let Some((buf, mapping)) = mapped {
        let moved = mapped::load(task, ring, &Arc::new(mapping), layout)?;
        (buf, moved)
    } else {
        let buf = allocate(len, place)?;
        let moved = staged::load(task, ring, &buf, layout)?;
        (buf, moved)
    };
    if wanted {
        moved.notes.extend(huge::page_note(moved.pages, buf.len(), huge::shared_huge_remedy));
    }
    Ok(Fresh { buf, moved })
}

/// Creates a memfd of exactly that length, with pages in this place.
pub(super) fn allocate(len: u64, place: Option<&Place>) -> Result<Shared> {
    let buf = Shared::memfd_exact(len)
        .map_err(|errno| Error::Buffer { call: "create", errno: errno.into_errno() })?;
    if place.is_some() {
        // The file keeps the place, whoever touches or writes it first: `shmem_set_policy()` in mm/shmem.c.
        place::mapped(place, || map(&buf))?;
    }
    Ok(buf)
}

/// A new memfd of exactly that length, mapped for writing, in huge pages if possible and `wanted`: reserved ones are
/// left to others, as not every kernel makes a dma-buf of them.
pub(crate) fn mapped(len: u64, wanted: bool, place: Option<&Place>) -> Result<(Shared, Mapping)> {
    if wanted {
        if let Some(huge) = allocate_huge(len, Purpose::File, place)? {
            return Ok(huge);
        }
    }
    let buf = allocate(len, place)?;
    let mapping = map(&buf)?;
    Ok((buf, mapping))
}

/// Maps all pages of a new memfd, with room for its last huge page.
fn map(buf: &Shared) -> Result<Mapping> {
    let pages = buf.len().next_multiple_of(page_size());
    Ok(buf.vouch_for(if pages < huge_page() {
        Mapping::new(buf.as_fd(), pages, true)?
    } else {
        Mapping::in_huge_pages(buf.as_fd(), pages)?
    }))
}

/// Transfers between a file and a range of an existing memfd.
fn transfer(task: &Task<'_>, buf: &Shared, extent: Extent) -> Result<Transferred, Attempt> {
    let ring = refusal::ring_for(Backend::Memfd, task, extent.len)?;
    if task.direction == Direction::Load && !buf.is_writable() {
        return Err(Error::ReadOnlyBuffer.into());
    }
    // A memfd that is sealed against writing can still be saved.
    let mapping = Arc::new(if task.direction == Direction::Load && has_no_pages(buf) {
        first_mapping(task, buf)?
    } else {
        let mapping = buf.mapping(task.direction == Direction::Load)?;
        mapping.advise(true);
        mapping
    });
    let mut moved = mapped::fill(task, ring, &mapping, extent, mapped::Origin::Given)?;
    if task.options.reports_pages {
        moved.pages = PageSizes::of(&mapping);
    }
    Ok(moved)
}

/// Whether nothing of a memfd, or a file on a tmpfs, is in memory yet.
fn has_no_pages(buf: &Shared) -> bool {
    rustix::fs::fstat(buf.as_fd()).is_ok_and(|stat| stat.st_blocks == 0)
}

/// Maps a memfd that the load is the first to fill: in huge pages if possible, as in [`load`].
fn first_mapping(task: &Task<'_>, buf: &Shared) -> Result<Mapping> {
    available::ensure(buf.len(), Charged::Us)?;
    let mut mapping = map(buf)?;
    mapping.advise(task.options.huge_pages);
    if task.options.huge_pages && !huge::memfds_get_huge_pages() {
        mapping.collapse();
    }
    Ok(mapping)
}

/// Allocates memory in huge pages and maps it; `None` if there is none.
fn allocate_huge(
    len: u64,
    purpose: Purpose,
    place: Option<&Place>,
) -> Result<Option<(Shared, Mapping)>> {
    if len < huge_page() {
        return Ok(None);
    }
    if purpose == Purpose::Udmabuf {
        if let Some(reserved) = reserved(len, place)? {
            return Ok(Some(reserved));
        }
    }
    let given = huge::memfds_get_huge_pages();
    let memfd = matches!(purpose, Purpose::Memfd | Purpose::File);
    if given || memfd {
        let Ok(buf) = allocate(len, None) else { return Ok(None) };
        let Ok(mut mapping) = place::mapped(place, || map(&buf)) else { return Ok(None) };
        mapping.advise(true);
        if given || mapping.collapse() {
            return Ok(Some((buf, mapping)));
        }
    }
    if purpose == Purpose::Memfd { reserved(len, place) } else { Ok(None) }
}

/// Memory in reserved huge pages, mapped; `None` if there are not enough.
fn reserved(len: u64, place: Option<&Place>) -> Result<Option<(Shared, Mapping)>> {
    if !place.is_none_or(|place| place.has_reserved(len)) {
        return Ok(None);
    }
    let made = place::during(place, || Shared::memfd_huge(len))?;
    let Ok((buf, mut mapping)) = made else { return Ok(None) };
    mapping.put(place)?;
    Ok(Some((buf, mapping)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Length of the mapping that starts at an address.
    fn mapped(start: *mut u8) -> Option<u64> {
        let start = format!("{:08x}-", start.addr());
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let rest = maps.lines().find_map(|line| line.strip_prefix(&start))?;
        let end = u64::from_str_radix(rest.split(' ').next()?, 16).ok()?;
        Some(end - u64::from_str_radix(start.trim_end_matches('-'), 16).ok()?)
    }

    #[test]
    fn last_huge_page_is_mapped_whole() {
        for (len, wanted) in [
            (page_size(), page_size()),
            (huge_page() - page_size(), huge_page() - page_size()),
            (3 * huge_page() + 1, 4 * huge_page()),
        ] {
            let buf = allocate(len, None).expect("a memfd");
            let mapping = map(&buf).expect("mapped");
            mapping.advise(true);
            assert_eq!(mapping.len(), len.next_multiple_of(page_size()));
            assert_eq!(mapped(mapping.as_ptr()).unwrap_or(wanted), wanted, "{len}");
        }
    }

    #[test]
    fn huge_allocation_matches_what_memfds_get() {
        let allocate_huge = |len, purpose| allocate_huge(len, purpose, None).expect("allocated");
        assert!(allocate_huge(huge_page() - 1, Purpose::Memfd).is_none());
        let given = huge::memfds_get_huge_pages();
        let collapsed =
            map(&allocate(huge_page(), None).expect("a memfd")).expect("mapped").collapse();
        for (purpose, can) in [
            (Purpose::Memfd, given || collapsed),
            (Purpose::File, given || collapsed),
            (Purpose::PlainUdmabuf, given),
        ] {
            // The kernel refuses to collapse pages that others hold for a moment.
            let tries = if can { 100 } else { 1 };
            let found = (0..tries).find_map(|_| allocate_huge(huge_page() + 5, purpose));
            let Some((buf, mapping)) = found else {
                assert!(!can, "{purpose:?}: given {given}, collapsed {collapsed}");
                continue;
            };
            assert!(buf.len() > huge_page(), "{purpose:?}");
            assert_eq!(mapping.len(), buf.len().next_multiple_of(page_size()));
        }
    }
}
