// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots: buffers as fixed buffers of a ring. They outlive their contexts.

use std::rc::Rc;

use dmabuf_dio_sys::{Errno, dio};

use crate::disturb::beside;
use crate::fault::each;
use crate::judge::{Moved, Span, into_file, into_pages};
use crate::pages::{PAGE, Page, bytes, is_multiple};
use crate::ring::Ring;
use crate::transfer::{may_fail, note_errors};
use crate::world::{Buffer, Device, Kind, Outcome, SLOTS, Slot, World};

fn ring<'a>(world: &'a mut World<'_>) -> Result<&'a Ring, String> {
    if world.ring.is_none() {
        world.ring = Some(Ring::new(SLOTS as u32)?);
    }
    world.ring.as_ref().ok_or_else(|| "no ring".into())
}

/// Why registering has to fail, the errors that are possible.
fn refusals(world: &World<'_>, place: u64, buffers: &[&Buffer], flags: u64) -> Vec<Errno> {
    let mut errors = Vec::new();
    if world.slots[place as usize].is_some() {
        errors.push(Errno::BUSY);
    }
    for buffer in buffers {
        if flags & u64::from(dio::SLOT_READ) != 0 && !buffer.writable {
            errors.push(Errno::ACCESS);
        }
        // Without loans nobody synchronises devices.
        if matches!(buffer.kind, Kind::Udmabuf { .. }) && !world.machine.series {
            errors.push(Errno::OPNOTSUPP);
        }
    }
    errors
}

fn judge(result: Result<(), Errno>, refusals: &[Errno], what: &str) -> Result<bool, String> {
    match result {
        Ok(()) if refusals.is_empty() => Ok(true),
        Ok(()) => Err(format!("{what} succeeds in place of {refusals:?}")),
        Err(errno) if refusals.contains(&errno) => Ok(false),
        Err(errno) => Err(format!("{what}: {errno}, expected {refusals:?}")),
    }
}

pub(crate) fn register(
    world: &mut World<'_>,
    place: u64,
    buf: u64,
    page: u64,
    length: u64,
    flags: u64,
) -> Outcome {
    if !world.machine.slots || place as usize >= SLOTS || length == 0 {
        return Ok(());
    }
    ring(world)?;
    let Some((buffer, context)) = world.attached(buf) else { return Ok(()) };
    let start = page * PAGE as u64;
    let mut errors = refusals(world, place, &[buffer], flags);
    if start + length > buffer.length() as u64 {
        errors.push(Errno::RANGE);
    }
    let slot = dio::Slot { buf_offset: start, length, index: place as u32, flags: flags as u32 };
    let count = length.div_ceil(PAGE as u64) as usize;
    let pages: Vec<Page> = buffer.pages.iter().skip(page as usize).take(count).cloned().collect();
    // The ring is borrowed apart from the rest.
    let Some(ring) = &world.ring else { return Ok(()) };
    if judge(ring.register(context, &slot), &errors, "REGISTER")? {
        world.machine.did("REGISTER");
        world.slots[place as usize] = Some(Slot { pages, length: length as usize, flags });
    }
    Ok(())
}

/// A structure is longer than the module's with zeroes behind it, or it is refused; one of many
/// pages is not looked through.
pub(crate) fn sizes(world: &mut World<'_>, place: u64, buf: u64) -> Outcome {
    if !world.machine.slots || place as usize >= SLOTS {
        return Ok(());
    }
    clear(world, place)?;
    ring(world)?;
    let Some((buffer, context)) = world.attached(buf) else { return Ok(()) };
    let Some(ring) = &world.ring else { return Ok(()) };
    let slot = dio::Slot { buf_offset: 0, length: 1, index: place as u32, flags: 3 };
    let refusals = refusals(world, place, &[buffer], 3);
    let known = size_of::<dio::Slot>();
    for (size, garbage, wanted) in [
        (known - 4, None, Some(Errno::INVAL)),
        (known + 1, Some(known), Some(Errno::TOOBIG)),
        (PAGE, Some(PAGE - 1), Some(Errno::TOOBIG)),
        (PAGE + 1, None, Some(Errno::TOOBIG)),
        (1 << 20, None, Some(Errno::TOOBIG)),
    ] {
        let mut bytes = vec![0; size.max(known)];
        bytes[..8].copy_from_slice(&slot.buf_offset.to_ne_bytes());
        bytes[8..16].copy_from_slice(&slot.length.to_ne_bytes());
        bytes[16..20].copy_from_slice(&slot.index.to_ne_bytes());
        bytes[20..24].copy_from_slice(&slot.flags.to_ne_bytes());
        if let Some(at) = garbage {
            bytes[at] = 1;
        }
        let result = ring.register_bytes(context, &bytes[..size]);
        if result.err() != wanted {
            return Err(format!("REGISTER with {size} bytes: {result:?}, expected {wanted:?}"));
        }
    }
    world.machine.did("REGISTER of a wrong size");
    // The last size that is right
    let mut bytes = vec![0; PAGE];
    bytes[8..16].copy_from_slice(&slot.length.to_ne_bytes());
    bytes[16..20].copy_from_slice(&slot.index.to_ne_bytes());
    bytes[20..24].copy_from_slice(&slot.flags.to_ne_bytes());
    if judge(ring.register_bytes(context, &bytes), &refusals, "REGISTER with a page")? {
        ring.clear(place as u32).map_err(|errno| format!("emptying a slot: {errno}"))?;
    }
    Ok(())
}

pub(crate) fn join(world: &mut World<'_>, place: u64, buf: u64, buf2: u64, flags: u64) -> Outcome {
    if !world.machine.join || place as usize >= SLOTS {
        return Ok(());
    }
    ring(world)?;
    let (Some(one), Some(other)) = (world.attached(buf), world.attached(buf2)) else {
        return Ok(());
    };
    let errors = refusals(world, place, &[one.0, other.0], flags);
    let pages: Vec<Page> = [one.0.pages.clone(), other.0.pages.clone()].concat();
    if one.0.pages.iter().any(|page| other.0.pages.iter().any(|same| Rc::ptr_eq(page, same))) {
        return Ok(());
    }
    let Some(ring) = &world.ring else { return Ok(()) };
    if judge(ring.join(&[one.1, other.1], place as u32, flags as u32), &errors, "JOIN")? {
        world.machine.did("JOIN");
        let length = pages.len() * PAGE;
        world.slots[place as usize] = Some(Slot { pages, length, flags });
    }
    Ok(())
}

pub(crate) fn clear(world: &mut World<'_>, place: u64) -> Outcome {
    let Some(slot) = world.slots.get_mut(place as usize) else { return Ok(()) };
    if slot.take().is_none() {
        return Ok(());
    }
    ring(world)?.clear(place as u32).map_err(|errno| format!("emptying a slot: {errno}"))
}

/// Nobody can see these pages any more, and what they hold is not known.
fn forget(world: &mut World<'_>, pages: &[Page]) -> Outcome {
    let has = |of: &[Page]| of.iter().any(|one| pages.iter().any(|page| Rc::ptr_eq(one, page)));
    for buffer in &mut world.buffers {
        buffer.take_if(|buffer| has(&buffer.pages));
    }
    for store in &mut world.stores {
        store.take_if(|store| {
            store.pages.iter().flatten().any(|page| has(std::slice::from_ref(page)))
        });
    }
    for place in 0..SLOTS {
        if world.slots[place].as_ref().is_some_and(|slot| has(&slot.pages)) {
            clear(world, place as u64)?;
        }
    }
    Ok(())
}

pub(crate) fn transfer(
    world: &mut World<'_>,
    write: bool,
    place: u64,
    skip: u64,
    span: Span,
) -> Outcome {
    let Some(Some(slot)) = world.slots.get(place as usize) else { return Ok(()) };
    let (pages, length, flags) = (slot.pages.clone(), slot.length as u64, slot.flags);
    let needed = if write { dio::SLOT_WRITE } else { dio::SLOT_READ };
    let Some(file) = world.file(span.file) else { return Ok(()) };
    let direct = file.is_direct(span.direct);
    let aligned = |at: u64| is_multiple(at, 512);
    let end = file.bytes.len() as u64;
    let fails = !world.broken(span.file).is_empty();
    // Whoever uses a slot synchronises devices.
    let has = |device: &Device| {
        device.pages.iter().any(|one| pages.iter().any(|page| Rc::ptr_eq(one, page)))
    };
    if world.devices.iter().flatten().any(has) {
        return Ok(());
    }
    // Beyond the end of a disk, and where the page cache loses what it was given.
    if write && (file.disk && span.at + span.length > end || fails && !direct) {
        return Ok(());
    }
    let span = Span { offset: skip, ..span };
    let armed = std::mem::take(&mut world.armed);
    each(armed, &mut |fault| {
        let Some(file) = world.file(span.file) else { return Ok(false) };
        let fd = file.fd(span.direct);
        let Some(ring) = &world.ring else { return Ok(false) };
        // io_uring says what was moved before an error, and the error to the request for the rest.
        let call = || {
            let mut moved = Moved::default();
            loop {
                let (skip, at) = (skip + moved.done, span.at + moved.done);
                let rest = span.length - moved.done;
                match ring.transfer(write, place as u32, skip, rest as u32, fd, at) {
                    Ok(part) => {
                        moved.done += part;
                        if part == 0 || part >= rest || !write && at + part >= end {
                            return moved;
                        }
                    }
                    Err(errno) => return Moved { errno: Some(errno), ..moved },
                }
            }
        };
        let (moved, fired) = beside(world, || fault.around(call));
        let misaligned = direct && !(aligned(span.at) && aligned(skip) && aligned(span.length));
        let outside = skip + span.length > length || u64::from(needed) & flags == 0;
        match moved.errno {
            _ if outside && moved.done > 0 => {
                return Err(format!("{} bytes moved outside the slot", moved.done));
            }
            Some(Errno::FAULT) if outside => return Ok(fired),
            None if outside => return Err("a request outside the slot succeeded".into()),
            Some(Errno::INVAL) if misaligned && moved.done == 0 => return Ok(fired),
            Some(errno)
                if !(fired
                    && (fault.excuses(errno) || errno == Errno::INTR && fault.continues(1))
                    || errno == Errno::IO && may_fail(world, span)) =>
            {
                return Err(format!("the request: {errno}, outside: {outside}"));
            }
            _ => (),
        }
        world.machine.did(if write { "WRITE_FIXED" } else { "READ_FIXED" });
        note_errors(world, moved, fault, fired);
        if write {
            let source = bytes(&pages, skip as usize..(skip + span.length) as usize);
            let actual = world.actual_file(span.file)?;
            if let Some(file) = world.file_mut(span.file) {
                into_file(file, &actual, span, &source, moved)?;
            }
        } else {
            let source =
                world.file(span.file).map_or(&[][..], |file| file.range(span.at, span.length));
            let seen =
                into_pages(&pages, span, source, moved, &|page| world.actual_page(&pages[page]))?;
            if !seen {
                forget(world, &pages)?;
                return Ok(false);
            }
            world.check_buffers()?;
        }
        Ok(fired)
    })
}
