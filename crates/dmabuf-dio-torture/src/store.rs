// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memfds, in every state that udmabuf may find them in.

use std::os::fd::AsFd as _;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};

use crate::mapping::{COLLAPSE, Mapping, PAGE_OUT};
use crate::pages::{PAGE, difference, stamp, store as store_bytes, zero_page};
use crate::world::{Outcome, Store, World};

/// Pages of a memfd of hugetlb.
pub(crate) const HUGE: u64 = 512;

pub(crate) fn create(world: &mut World<'_>, place: u64, pages: u64, huge: bool) -> Outcome {
    let failed = |errno| format!("memfd: {errno}");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let flags = if huge { flags | MemfdFlags::HUGETLB } else { flags };
    let fd = memfd_create("torture", flags).map_err(failed)?;
    ftruncate(&fd, pages * PAGE as u64).map_err(failed)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK).map_err(failed)?;
    let (pages, dirty) = (vec![None; pages as usize], vec![huge; pages as usize]);
    if let Some(store) = world.stores.get_mut(place as usize) {
        *store = Some(Store {
            fd,
            pages,
            dirty,
            allocated: false,
            collapsed: huge,
            huge,
            sealed: false,
        });
    }
    Ok(())
}

/// Is written at once: not every kernel fills its pages for udmabufs.
pub(crate) fn huge(world: &mut World<'_>, place: u64, number: u64) -> Outcome {
    if !world.machine.huge {
        return Ok(());
    }
    create(world, place, HUGE, true)?;
    write(world, place, 0, HUGE, number, true)
}

fn map(store: &Store) -> Result<Mapping, String> {
    let map = if store.huge { Mapping::whole } else { Mapping::of };
    map(store.fd.as_fd(), store.pages.len() * PAGE, !store.sealed)
}

fn range(store: &Store, page: u64, pages: u64) -> std::ops::Range<usize> {
    let end = store.pages.len();
    (page as usize).min(end)..((page + pages) as usize).min(end)
}

pub(crate) fn write(
    world: &mut World<'_>,
    place: u64,
    page: u64,
    pages: u64,
    number: u64,
    mapped: bool,
) -> Outcome {
    let Some(store) = world.store_mut(place) else { return Ok(()) };
    let range = range(store, page, pages);
    let at = range.start * PAGE;
    let bytes = stamp(number, at as u64, range.len() * PAGE);
    if store.sealed && !bytes.is_empty() {
        let written = rustix::io::pwrite(&store.fd, &bytes, at as u64);
        return match written {
            Err(rustix::io::Errno::PERM) => Ok(()),
            other => Err(format!("pwrite to a sealed memfd: {other:?}")),
        };
    }
    if mapped || store.huge {
        map(store)?.store(at, &bytes);
    } else {
        let mut done = 0;
        while done < bytes.len() {
            done += rustix::io::pwrite(&store.fd, &bytes[done..], (at + done) as u64)
                .map_err(|errno| format!("pwrite to a memfd: {errno}"))?;
        }
    }
    store.dirty[range.clone()].fill(true);
    for (place, bytes) in range.zip(bytes.chunks(PAGE)) {
        let page = store.pages[place].get_or_insert_with(zero_page);
        store_bytes(std::slice::from_ref(page), 0, bytes);
    }
    Ok(())
}

pub(crate) fn scatter(world: &mut World<'_>, one: u64, other: u64, number: u64) -> Outcome {
    let length = world.store_mut(one).map_or(0, |store| store.pages.len());
    for page in 0..length as u64 {
        write(world, one, page, 1, number, false)?;
        write(world, other, page, 1, number + 1, false)?;
    }
    Ok(())
}

pub(crate) fn touch(world: &mut World<'_>, place: u64, page: u64, pages: u64) -> Outcome {
    let Some(store) = world.store_mut(place) else { return Ok(()) };
    let range = range(store, page, pages);
    if range.is_empty() {
        return Ok(());
    }
    let map = map(store)?;
    let actual = map.bytes();
    for place in range {
        let expected = store.pages[place].as_ref().map_or([0; PAGE], |page| *page.borrow());
        difference("the memfd's mapping", &actual[place * PAGE..(place + 1) * PAGE], &expected)?;
    }
    Ok(())
}

pub(crate) fn allocate(world: &mut World<'_>, place: u64, page: u64, pages: u64) -> Outcome {
    let Some(store) = world.store_mut(place) else { return Ok(()) };
    let range = range(store, page, pages);
    if range.is_empty() || store.huge {
        return Ok(());
    }
    store.allocated = true;
    let (at, length) = (range.start * PAGE, range.len() * PAGE);
    fallocate(&store.fd, FallocateFlags::empty(), at as u64, length as u64)
        .map_err(|errno| format!("fallocate of a memfd: {errno}"))
}

/// Buffers keep the pages, the memfd gets others. A huge page that is pinned is zeroed in place
/// instead, so memfds that may have some are left alone.
pub(crate) fn punch(world: &mut World<'_>, place: u64, page: u64, pages: u64) -> Outcome {
    let Some(store) = world.store_mut(place) else { return Ok(()) };
    let range = range(store, page, pages);
    if store.collapsed || store.sealed || range.is_empty() {
        return Ok(());
    }
    let (at, length) = (range.start * PAGE, range.len() * PAGE);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&store.fd, flags, at as u64, length as u64)
        .map_err(|errno| format!("punch of a memfd: {errno}"))?;
    store.dirty[range.clone()].fill(false);
    store.pages[range].fill(None);
    Ok(())
}

/// `MADV_PAGEOUT` takes only what is mapped. Pages that may never have been filled are not touched.
pub(crate) fn out(world: &mut World<'_>, place: u64) -> Outcome {
    let Some(store) = world.store_mut(place) else { return Ok(()) };
    let map = map(store)?;
    for (place, page) in store.pages.iter().enumerate() {
        if page.is_some() && (store.dirty[place] || !store.allocated) {
            map.touch(place * PAGE);
        }
    }
    if !store.huge {
        map.advise(PAGE_OUT);
    }
    drop(map);
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
    store.check()
}

/// `F_SEAL_FUTURE_WRITE`
pub(crate) fn seal(world: &mut World<'_>, place: u64) -> Outcome {
    let Some(store) = world.store_mut(place) else { return Ok(()) };
    store.sealed = true;
    fcntl_add_seals(&store.fd, SealFlags::FUTURE_WRITE)
        .map_err(|errno| format!("sealing a memfd: {errno}"))
}

pub(crate) fn collapse(world: &mut World<'_>, place: u64) -> Outcome {
    let Some(store) = world.store_mut(place) else { return Ok(()) };
    if store.huge {
        return store.check();
    }
    store.collapsed = true;
    map(store)?.advise(COLLAPSE);
    store.check()
}
