// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls by `io_uring`: slots, and reads and writes that use them.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use dmabuf_dio_sys::dio;
use io_uring::{opcode, squeue, types};

use super::call::Call;
use super::domain::MEMORY;
use super::known::Context;
use super::ring::Slot;
use super::structures::sized;
use super::system::{self, Answer, pack};
use super::world::{Outcome, World};
use crate::pages::{PAGE, difference};

/// Most contexts in the list of a JOIN
const LIST: u64 = 2048;

/// Runs a request on the ring that the call says.
fn run(world: &mut World<'_>, call: &Call, entry: &squeue::Entry) -> Option<Answer> {
    let answer = world.rings[call.get("ring") as usize % 2].as_mut()?.run(entry);
    match answer {
        Some(answer) => world.count(call, answer),
        None => world.quiet = false,
    }
    answer
}

fn command(
    world: &mut World<'_>,
    call: &Call,
    fd: i32,
    operation: u64,
    bytes: Vec<u8>,
) -> Option<Answer> {
    let placed = system::place(&sized(call, bytes), call.get("memory"), world.fds[0]);
    let reserved = call.get("command_reserved");
    if MEMORY.get(call.get("memory") as usize) == Some(&"buffer") {
        // What the kernel reads there is not known.
        world.quiet = false;
    }
    let packed = pack(&[(placed.address, 8), (call.get("size"), 4), (reserved, 4)]);
    let content: [u8; 16] = packed.try_into().unwrap_or_default();
    let entry = opcode::UringCmd16::new(types::Fd(fd), operation as u32).cmd(content).build();
    run(world, call, &entry)
}

fn must(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// What the kernel sees of a field of `width` bytes that ends at `end`: the bytes that a shorter
/// structure lacks are zero.
fn seen(call: &Call, field: &str, width: u64, end: u64) -> u64 {
    let there = call.get("size").saturating_sub(end - width).min(width);
    call.get(field) & 1u64.checked_shl(8 * there as u32).map_or(u64::MAX, |bit| bit - 1)
}

/// Notes a slot that was made, which must have been possible.
fn note(world: &mut World<'_>, call: &Call, index: u64, slot: Slot) -> Outcome {
    must(call.get("command_reserved") as u32 == 0, "a reserved field of the command is ignored")?;
    must((1..4).contains(&(slot.flags as u32)), "flags of a slot are ignored")?;
    must(slot.length > 0 && slot.length < 1 << 32, "the length of a slot")?;
    let Some(ring) = &mut world.rings[call.get("ring") as usize % 2] else { return Ok(()) };
    let known = !ring.unknown;
    let place = ring.slots.get_mut(index as u32 as usize).ok_or("a slot beyond the table")?;
    must(!known || place.is_none(), "a slot replaces another")?;
    *place = Some(slot);
    Ok(())
}

/// A slot was made while others make calls.
fn note_unknown(world: &mut World<'_>, call: &Call) -> Outcome {
    if let Some(ring) = &mut world.rings[call.get("ring") as usize % 2] {
        ring.unknown = true;
    }
    must(call.get("command_reserved") as u32 == 0, "a reserved field of the command is ignored")
}

pub(crate) fn register(world: &mut World<'_>, call: &Call) -> Outcome {
    let (context, fd) = (world.context(call, "ctx"), world.fd(call, "ctx"));
    let value = |field| call.get(field);
    let bytes = pack(&[
        (value("offset"), 8),
        (value("length"), 8),
        (value("index"), 4),
        (value("flags"), 4),
    ]);
    let operation = u64::from(dio::URING_REGISTER);
    let answer = command(world, call, fd, operation, bytes);
    let (Some(Ok(_)), Some(context)) = (answer, context) else { return Ok(()) };
    if !world.quiet {
        return note_unknown(world, call);
    }
    let (offset, length) = (seen(call, "offset", 8, 8), seen(call, "length", 8, 16));
    must(offset % PAGE as u64 == 0, "a slot begins inside a page")?;
    let flags = u64::from(seen(call, "flags", 4, 24) as u32);
    let slot = |part| Slot { length, flags, part };
    let Some(buffer) = context.buffer() else {
        return Err("a slot without a buffer".into());
    };
    let end = offset.checked_add(length);
    must(end.is_some_and(|end| end <= buffer.length), "a slot beyond the buffer")?;
    note(world, call, seen(call, "index", 4, 20), slot(Some((buffer, offset))))
}

pub(crate) fn join(world: &mut World<'_>, call: &Call) -> Outcome {
    let count = call.get("count") as u32;
    let places = ["one", "two"].map(|field| (world.context(call, field), world.fd(call, field)));
    let numbers = (0..u64::from(count).min(LIST)).map(|at| (places[at as usize % 2].1 as u64, 4));
    let list = pack(&numbers.collect::<Vec<_>>());
    let list = system::place(&list, call.get("list"), world.fds[0]).address;
    let value = |field| call.get(field);
    let bytes = pack(&[
        (list, 8),
        (value("count"), 4),
        (value("index"), 4),
        (value("flags"), 4),
        (value("reserved"), 4),
    ]);
    let fd = world.fd(call, "ctx");
    let answer = command(world, call, fd, u64::from(dio::URING_JOIN), bytes);
    if answer.is_none_or(|answer| answer.is_err()) || world.context(call, "ctx").is_none() {
        return Ok(());
    }
    if !world.quiet {
        return note_unknown(world, call);
    }
    must(seen(call, "reserved", 4, 24) as u32 == 0, "JOIN ignores a reserved field")?;
    let count = seen(call, "count", 4, 12) as u32;
    must((1..=1024).contains(&count), "JOIN of too many or none")?;
    let mut length = 0;
    for at in 0..count as usize {
        let buffer = places[at % 2].0.as_ref().and_then(|context: &Rc<Context>| context.buffer());
        length += buffer.ok_or("JOIN of a context without a buffer")?.length;
    }
    let flags = u64::from(seen(call, "flags", 4, 20) as u32);
    note(world, call, seen(call, "index", 4, 16), Slot { length, flags, part: None })
}

/// Any command to anything.
pub(crate) fn any(world: &mut World<'_>, call: &Call) {
    let (number, size) = (call.get("number"), call.get("size"));
    let operation = system::request(call.get("dir"), call.get("kind"), number, size);
    let fd = world.fd(call, "fd");
    let answer = command(world, call, fd, operation, vec![0; 24]);
    if answer.is_none_or(|answer| answer.is_ok()) {
        if let Some(ring) = &mut world.rings[call.get("ring") as usize % 2] {
            ring.unknown = true;
        }
    }
}

/// A read into a slot, or a write from it.
pub(crate) fn fixed(world: &mut World<'_>, call: &Call, write: bool) -> Outcome {
    world.shared.changed.store(true, Relaxed);
    let (skip, length) = (call.get("skip"), call.get("length") as u32);
    let (index, at) = (call.get("index") as u16, call.get("at"));
    let fd = types::Fd(world.fd(call, "fd"));
    let entry = if write {
        opcode::WriteFixed::new(fd, skip as *const u8, length, index).offset(at).build()
    } else {
        opcode::ReadFixed::new(fd, skip as *mut u8, length, index).offset(at).build()
    };
    let ring = world.rings[call.get("ring") as usize % 2].as_ref();
    let slot = ring.filter(|ring| !ring.unknown && world.quiet);
    // Only this file has none of the pages of buffers, as a memfd may have.
    let apart = !write || world.file(world.fd(call, "fd")).is_some();
    let slot = slot.map(|ring| ring.slots.get(usize::from(index)).cloned().flatten());
    let part = slot.clone().flatten().and_then(|slot| slot.part);
    let before = part.as_ref().filter(|_| apart).and_then(|(buffer, _)| world.seen(Some(buffer)));
    let Some(answer) = run(world, call, &entry) else { return Ok(()) };
    let Some(slot) = slot else { return Ok(()) };
    let done = answer.unwrap_or(0);
    must(done <= u64::from(length), "more was moved than was asked for")?;
    if done > 0 {
        let slot = slot.as_ref().ok_or("bytes are moved without a slot")?;
        must(slot.flags & if write { 2 } else { 1 } != 0, "a slot in the wrong direction")?;
        let end = skip.checked_add(u64::from(length));
        must(end.is_some_and(|end| end <= slot.length), "bytes are moved beyond a slot")?;
    }
    let after = part.as_ref().and_then(|(buffer, _)| world.seen(Some(buffer)));
    if let (Some(mut old), Some(new), Some((_, offset))) = (before, after, part) {
        let start = offset.saturating_add(skip).min(old.len() as u64) as usize;
        let end = (start + length as usize).min(old.len());
        if !write && slot.is_some() {
            old[start..end].copy_from_slice(&new[start..end]);
        }
        difference("the buffer of the slot", &new, &old)?;
    }
    Ok(())
}

/// `IORING_REGISTER_BUFFERS_UPDATE`
pub(crate) fn update(world: &mut World<'_>, call: &Call) -> Answer {
    let quiet = world.quiet;
    let ring = world.rings[call.get("ring") as usize % 2].as_mut().ok_or(libc::EBADF)?;
    let index = call.get("index") as u32;
    let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    // SAFETY: an empty buffer refers to no memory.
    let done = unsafe { ring.own.submitter().register_buffers_update(index, &[none], None) };
    if !quiet {
        ring.unknown = true;
    }
    done.map_err(|error| error.raw_os_error().unwrap_or(0))?;
    if let Some(slot) = ring.slots.get_mut(index as usize) {
        *slot = None;
    }
    Ok(0)
}

/// `IORING_REGISTER_CLONE_BUFFERS` into a ring, whose own slots go before.
pub(crate) fn clone(world: &mut World<'_>, call: &Call) -> Answer {
    let to = call.get("ring") as usize % 2;
    let (Some(source), Some(_)) = (&world.rings[1 - to], &world.rings[to]) else {
        return Err(libc::EBADF);
    };
    let (fd, slots, unknown) = (source.fd(), source.slots.clone(), source.unknown);
    let ring = world.rings[to].as_mut().ok_or(libc::EBADF)?;
    let _ = ring.own.submitter().unregister_buffers();
    ring.unknown = true;
    let cloned = ring.own.submitter().register_buffers_clone(fd);
    cloned.map_err(|error| error.raw_os_error().unwrap_or(0))?;
    ring.slots = slots;
    ring.unknown = unknown;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::call::Name;

    #[test]
    fn shorter_structure_lacks_bytes_of_a_field() {
        let flags = |size| {
            let call = Call::new(Name::Register).with(&[("flags", 0x0400_0002), ("size", size)]);
            seen(&call, "flags", 4, 24)
        };
        assert_eq!((flags(24), flags(23), flags(21), flags(20)), (0x0400_0002, 2, 2, 0));
        let call = Call::new(Name::Register).with(&[("length", u64::MAX), ("size", 16)]);
        assert_eq!(seen(&call, "length", 8, 16), u64::MAX);
    }
}
