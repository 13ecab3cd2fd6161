// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers of every exporter, and attaching them.

use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::rc::Rc;

use dmabuf_dio_sys::dmabuf::{Access, begin_cpu_access, end_cpu_access};
use dmabuf_dio_sys::{Errno, dio, heap, udmabuf};

use crate::fence::Fence;
use crate::mapping::Mapping;
use crate::pages::{PAGE, Page, stamp, store as store_bytes, zero_page, zero_pages};
use crate::world::{Buffer, Kind, Outcome, World};

/// Puts a buffer in place of another.
pub(crate) fn place(world: &mut World<'_>, place: u64, buffer: Buffer) {
    if let Some(old) = world.buffers.get_mut(place as usize) {
        *old = Some(buffer);
    }
}

pub(crate) fn of_heap(world: &mut World<'_>, at: u64, pages: u64) -> Outcome {
    let Some(heap) = &world.machine.heap else { return Ok(()) };
    let length = pages * PAGE as u64;
    let fd = heap::alloc(heap.as_fd(), length).map_err(|errno| format!("the heap: {errno}"))?;
    let map = Some(Mapping::of(fd.as_fd(), length as usize, true)?);
    let pages = zero_pages(pages);
    let kind = Kind::Heap;
    place(
        world,
        at,
        Buffer { kind, fd: Some(fd), map, context: None, pages, writable: true, imported: false },
    );
    Ok(())
}

/// The pages of a range of a memfd; holes are filled.
#[allow(clippy::struct_excessive_bools)] // independent of each other
struct Taken {
    pages: Vec<Page>,
    range: std::ops::Range<u64>,
    allocated: bool,
    collapsed: bool,
    clean: bool,
    /// Older kernels make udmabufs of it, newer ones refuse.
    sealed: bool,
}

fn take(world: &mut World<'_>, store: u64, page: u64, pages: u64) -> Option<Taken> {
    let store = world.store_mut(store)?;
    let end = store.pages.len();
    let range = (page as usize).min(end)..((page + pages) as usize).min(end);
    if range.is_empty() {
        return None;
    }
    Some(Taken {
        range: (range.start * PAGE) as u64..(range.end * PAGE) as u64,
        clean: store.dirty[range.clone()].contains(&false),
        pages: store.pages[range]
            .iter_mut()
            .map(|page| page.get_or_insert_with(zero_page).clone())
            .collect(),
        allocated: store.allocated,
        collapsed: store.collapsed,
        sealed: store.sealed,
    })
}

pub(crate) fn of_memfd(
    world: &mut World<'_>,
    at: u64,
    store: u64,
    page: u64,
    pages: u64,
) -> Outcome {
    let Some(device) = &world.machine.udmabuf else { return Ok(()) };
    let Some(taken) = take(world, store, page, pages) else { return Ok(()) };
    let Some(memfd) = &world.stores[store as usize] else { return Ok(()) };
    let length = taken.range.end - taken.range.start;
    let fd = match udmabuf::create(device.as_fd(), memfd.fd.as_fd(), taken.range.start, length) {
        Err(Errno::INVAL) if taken.sealed => return Ok(()),
        other => other.map_err(|errno| format!("udmabuf: {errno}"))?,
    };
    let Taken { allocated, collapsed, clean, .. } = taken;
    let kind = Kind::Udmabuf { allocated, collapsed, clean };
    let (fd, pages) = (Some(fd), taken.pages);
    place(
        world,
        at,
        Buffer { kind, fd, map: None, context: None, pages, writable: true, imported: false },
    );
    Ok(())
}

/// Does nothing if the ranges overlap: then the order of transfers into them would matter.
pub(crate) fn of_memfds(
    world: &mut World<'_>,
    at: u64,
    one: (u64, u64, u64),
    other: (u64, u64, u64),
) -> Outcome {
    let Some(device) = &world.machine.udmabuf else { return Ok(()) };
    let Some(first) = take(world, one.0, one.1, one.2) else { return Ok(()) };
    let Some(second) = take(world, other.0, other.1, other.2) else { return Ok(()) };
    if first.pages.iter().any(|page| second.pages.iter().any(|other| Rc::ptr_eq(page, other))) {
        return Ok(());
    }
    let part = |store: u64, range| {
        let memfd = world.stores[store as usize].as_ref().ok_or("no memfd")?.fd.as_fd();
        Ok::<_, String>(udmabuf::Part { memfd, range })
    };
    let parts = [part(one.0, first.range)?, part(other.0, second.range)?];
    let fd = match udmabuf::create_list(device.as_fd(), parts) {
        Err(Errno::INVAL) if first.sealed || second.sealed => return Ok(()),
        other => other.map_err(|errno| format!("udmabuf of two parts: {errno}"))?,
    };
    let kind = Kind::Udmabuf {
        allocated: first.allocated || second.allocated,
        collapsed: first.collapsed || second.collapsed,
        clean: first.clean || second.clean,
    };
    let pages = [first.pages, second.pages].concat();
    let fd = Some(fd);
    place(
        world,
        at,
        Buffer { kind, fd, map: None, context: None, pages, writable: true, imported: false },
    );
    Ok(())
}

/// `struct odd_create`
#[repr(C)]
struct OddCreate {
    pages: u32,
    oddities: u32,
}

/// `None` if this kernel does not have the oddity.
pub(crate) fn odd_buffer(device: &OwnedFd, pages: u64, oddities: u64) -> Option<OwnedFd> {
    let create = OddCreate { pages: pages as u32, oddities: oddities as u32 };
    // _IOW(0x0d, 0, struct odd_create)
    let request = (1 << 30) | ((size_of::<OddCreate>() as u64) << 16) | (0x0d << 8);
    // SAFETY: the call reads a `struct odd_create`, whose layout `OddCreate` has.
    let ret = unsafe { libc::ioctl(device.as_raw_fd(), request, &raw const create) };
    // SAFETY: the call succeeded and returned a new descriptor, which nothing else owns.
    (ret >= 0).then(|| unsafe { OwnedFd::from_raw_fd(ret) })
}

pub(crate) fn odd(world: &mut World<'_>, at: u64, pages: u64, oddities: u64) {
    let Some(device) = &world.machine.odd else { return };
    let lent = oddities == 0 && world.machine.odd_named;
    let Some(fd) = odd_buffer(device, pages, oddities).map(Some) else { return };
    let pages = zero_pages(pages);
    let kind = Kind::Odd { lent };
    place(
        world,
        at,
        Buffer { kind, fd, map: None, context: None, pages, writable: true, imported: false },
    );
}

/// May the module refuse such a buffer, and for this reason?
fn refusable(kind: Kind, refusal: u32) -> bool {
    match (kind, refusal) {
        (Kind::Odd { lent }, _) => !lent,
        (Kind::Udmabuf { allocated, .. }, dio::REFUSED_UNFILLED) => allocated,
        (Kind::Udmabuf { collapsed, .. }, dio::REFUSED_MAPPING) => collapsed,
        _ => false,
    }
}

pub(crate) fn attach(world: &mut World<'_>, at: u64) -> Outcome {
    let Some(buffer) = world.buffers.get_mut(at as usize).and_then(Option::as_mut) else {
        return Ok(());
    };
    let Some(fd) = &buffer.fd else { return Ok(()) };
    let context = dio::open().map_err(|errno| format!("a context: {errno}"))?;
    let mut attach = dio::Attach::default();
    match dio::attach(context.as_fd(), fd.as_fd(), &mut attach) {
        Err(Errno::OPNOTSUPP) if refusable(buffer.kind, attach.refusal) => {
            world.machine.did("ATTACH refused");
            return Ok(());
        }
        Err(errno) => {
            return Err(format!(
                "ATTACH of {:?}: {errno}, refusal {}",
                buffer.kind, attach.refusal
            ));
        }
        Ok(()) if buffer.kind == (Kind::Odd { lent: false }) => {
            return Err("ATTACH borrows what must not be lent".into());
        }
        Ok(()) if attach.length != buffer.length() as u64 => {
            return Err(format!("ATTACH: {} bytes in place of {}", attach.length, buffer.length()));
        }
        Ok(()) => {}
    }
    world.machine.did(match buffer.kind {
        Kind::Heap => "ATTACH of a heap's",
        Kind::Load => "ATTACH of LOAD's",
        Kind::Udmabuf { .. } => "ATTACH of a udmabuf",
        Kind::Odd { .. } => "ATTACH of another exporter's",
    });
    buffer.context = Some(context);
    if buffer.map.is_none() {
        buffer.map = Some(Mapping::of(fd.as_fd(), buffer.length(), buffer.writable)?);
    }
    buffer.check()
}

pub(crate) fn detach(world: &mut World<'_>, at: u64) -> Outcome {
    if let Some(buffer) = world.buffers.get_mut(at as usize).and_then(Option::as_mut) {
        buffer.context = None;
        buffer.check()?;
        if buffer.fd.is_none() {
            world.buffers[at as usize] = None;
        }
    }
    Ok(())
}

pub(crate) fn close(world: &mut World<'_>, at: u64) -> Outcome {
    if let Some(buffer) = world.buffers.get_mut(at as usize).and_then(Option::as_mut) {
        buffer.check()?;
        buffer.fd = None;
        buffer.map = None;
        if buffer.context.is_none() {
            world.buffers[at as usize] = None;
        }
    }
    Ok(())
}

pub(crate) fn fence(world: &mut World<'_>, at: u64, stores: bool, microseconds: u64) -> Outcome {
    let Some(Some(buffer)) = world.buffers.get(at as usize) else { return Ok(()) };
    // While it is not signalled, begin of CPU access waits.
    if let Some(fd) = buffer.fd.as_ref().filter(|_| !buffer.imported) {
        world.fence = Fence::on(fd.as_fd(), at, stores, microseconds)?;
    }
    Ok(())
}

pub(crate) fn fill(
    world: &mut World<'_>,
    at: u64,
    offset: u64,
    length: u64,
    number: u64,
) -> Outcome {
    let Some(buffer) = world.buffers.get(at as usize).and_then(Option::as_ref) else {
        return Ok(());
    };
    let (Some(fd), Some(map), true) = (&buffer.fd, &buffer.map, buffer.writable) else {
        return Ok(());
    };
    // Before the series, udmabuf does not mark what the CPU stores through it.
    if matches!(buffer.kind, Kind::Udmabuf { clean: true, .. }) && !world.machine.series {
        return Ok(());
    }
    let start = (offset as usize).min(buffer.length());
    let bytes = stamp(number, offset, (length as usize).min(buffer.length() - start));
    let failed = |errno| format!("DMA_BUF_IOCTL_SYNC: {errno}");
    begin_cpu_access(fd.as_fd(), Access::ReadWrite).map_err(failed)?;
    map.store(start, &bytes);
    store_bytes(&buffer.pages, start, &bytes);
    // Who begins to read before that ends takes what devices had.
    end_cpu_access(fd.as_fd(), Access::ReadWrite).map_err(failed)?;
    buffer.check()
}
