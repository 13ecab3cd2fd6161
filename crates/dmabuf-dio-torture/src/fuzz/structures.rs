// SPDX-License-Identifier: MIT OR Apache-2.0
//! ioctls with their structures, and what must hold of what they leave.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use super::call::Call;
use super::domain::MEMORY;
use super::known::Buffer;
use super::system::{self, Answer, pack, unpack};
use super::world::{Outcome, World};
use crate::mapping::Mapping;
use crate::pages::{PAGE, difference};

const MAGIC: u64 = 0xdb;

/// A call that has returned.
pub(crate) struct Returned {
    pub(crate) answer: Answer,
    /// The structure before
    given: Vec<u8>,
    /// And after, where it can be looked at
    after: Option<Vec<u8>>,
}

impl Returned {
    /// A field that is given; what is missing counts as zero.
    fn given(&self, at: usize, width: usize) -> u64 {
        let mut whole = self.given.clone();
        whole.resize(whole.len().max(at + width), 0);
        unpack(&whole, at, width).unwrap_or(0)
    }

    fn after(&self, at: usize, width: usize) -> Option<u64> {
        unpack(self.after.as_ref()?, at, width)
    }

    fn is(&self, errno: i32) -> bool {
        self.answer == Err(errno)
    }
}

/// Makes a structure as long as the call says.
pub(crate) fn sized(call: &Call, mut bytes: Vec<u8>) -> Vec<u8> {
    let (size, known) = (call.get("size").min(16 << 10) as usize, bytes.len());
    bytes.resize(size, 0);
    if size > known {
        bytes[size - 1] = call.get("tail") as u8;
    }
    bytes
}

/// Makes a call with a structure. `outputs`: the bytes that it may change. `None`: another thread
/// makes it.
fn ioctl(
    world: &mut World<'_>,
    call: &Call,
    fd: i32,
    request: u64,
    given: Vec<u8>,
    outputs: Range<usize>,
) -> Result<Option<Returned>, String> {
    let memory = call.get("memory");
    let placed = system::place(&given, memory, world.fds[0]);
    if call.get("beside") != 0 {
        world.quiet = false;
        let address = placed.address;
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        let made = thread.spawn(move || {
            let _ = system::ioctl(fd, request, address);
        });
        world.beside.extend(made);
        return Ok(None);
    }
    let answer = system::ioctl(fd, request, placed.address);
    world.count(call, answer);
    if world.quiet && !placed.is_alone() {
        return Err("it has changed bytes before its structure".into());
    }
    let after = placed.bytes().filter(|_| world.quiet);
    if let Some(after) = &after {
        let start = outputs.start.min(given.len());
        let end = outputs.end.min(given.len()).max(start);
        difference("inputs", &after[..start], &given[..start])?;
        difference("what is behind the outputs", &after[end..], &given[end..])?;
    }
    let word = MEMORY.get(memory as usize).copied().unwrap_or_default();
    let after = after.filter(|_| word != "read-only");
    if answer.is_ok() && !given.is_empty() && word == "read-only" && !outputs.is_empty() {
        return Err("it succeeds without a place for its outputs".into());
    }
    Ok(Some(Returned { answer, given, after }))
}

fn number(call: &Call, nr: u64) -> u64 {
    system::request(call.get("dir"), MAGIC, nr, call.get("size"))
}

fn must(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

pub(crate) fn info(world: &mut World<'_>, call: &Call) -> Outcome {
    let bytes = pack(&[
        (0, 8),
        (0, 4),
        (call.get("reserved"), 4),
        (0, 8),
        (0, 8),
        (0, 8),
        (0, 4),
        (call.get("reserved2"), 4),
    ]);
    let (fd, given) = (world.fd(call, "ctx"), sized(call, bytes));
    let Some(info) = ioctl(world, call, fd, number(call, 0), given, 0..48)? else { return Ok(()) };
    if world.context(call, "ctx").is_some() && info.answer.is_ok() {
        must(info.given(12, 4) == 0 && info.given(44, 4) == 0, "INFO ignores a reserved field")?;
        must(info.after(12, 4).unwrap_or(0) == 0, "INFO fills a reserved field")?;
        must(info.after(8, 4).is_none_or(|depth| depth == 64), "INFO: max_depth")?;
    }
    Ok(())
}

pub(crate) fn attach(world: &mut World<'_>, call: &Call) -> Outcome {
    let dmabuf = world.fd(call, "fd");
    let bytes = pack(&[
        (dmabuf as u64, 4),
        (call.get("flags"), 4),
        (call.get("length"), 8),
        (call.get("segments"), 4),
        (call.get("refusal"), 4),
    ]);
    let context = world.context(call, "ctx");
    let (fd, given) = (world.fd(call, "ctx"), sized(call, bytes));
    let made = ioctl(world, call, fd, number(call, 1), given, 8..24)?;
    let (Some(made), Some(context)) = (made, context) else { return Ok(()) };
    let refusal = made.after(20, 4).unwrap_or(0);
    if made.is(libc::EFAULT) {
        // It may have attached a buffer, and not been able to say so.
        world.quiet = false;
    }
    if made.answer.is_err() {
        must(
            !made.is(libc::EOPNOTSUPP)
                || made.after.is_none()
                || made.given.len() < 24
                || (1..=6).contains(&refusal),
            "ATTACH is refused without a reason",
        )?;
        must(
            made.is(libc::EOPNOTSUPP)
                || made.after(20, 4).is_none_or(|told| told == made.given(20, 4)),
            "ATTACH has a reason and another error",
        )?;
        return Ok(());
    }
    must(made.given(4, 4) == 0, "ATTACH ignores flags")?;
    must(made.given(20, 4) == 0, "ATTACH ignores what must be zero")?;
    must(!world.quiet || context.buffer().is_none(), "ATTACH attaches a second buffer")?;
    // Where it is cannot be said by a shorter structure.
    let fd = made.given(0, 4) as i32;
    // SAFETY: it is only looked at, whatever it is.
    let size =
        rustix::fs::seek(unsafe { BorrowedFd::borrow_raw(fd) }, rustix::fs::SeekFrom::End(0));
    let length = size.map_err(|errno| format!("ATTACH takes what is no dma-buf: {errno}"))?;
    must(made.after(8, 8).is_none_or(|told| told == length), "ATTACH: another length")?;
    let segments = made.after(16, 4).unwrap_or(1);
    must((1..=length.div_ceil(PAGE as u64)).contains(&segments), "ATTACH: segments")?;
    must(refusal == 0, "ATTACH succeeds with a reason against it")?;
    // SAFETY: as above.
    let map = Mapping::of(unsafe { BorrowedFd::borrow_raw(fd) }, length as usize, false).ok();
    *context.buffer.borrow_mut() = Some(Rc::new(Buffer { length, map }));
    Ok(())
}

/// What was moved where: a buffer and a file before a call and after it.
struct Sides {
    buffer: Option<Vec<u8>>,
    file: Option<Vec<u8>>,
}

fn sides(world: &World<'_>, buffer: Option<&Buffer>, file: i32) -> Sides {
    let seen = world.seen(buffer);
    let bytes = seen.as_ref().and_then(|_| world.file(file));
    Sides { buffer: seen, file: bytes }
}

/// Bytes outside a range are as they were; `grows`: the file may have become longer.
fn outside(what: &str, after: &[u8], before: &[u8], range: &Range<usize>, grows: bool) -> Outcome {
    let mut expected = before.to_vec();
    if grows && after.len() > before.len() {
        expected.resize(after.len(), 0);
    }
    let end = expected.len().min(after.len());
    let part = range.start.min(end)..range.end.min(end).max(range.start.min(end));
    expected[part.clone()].copy_from_slice(&after[part]);
    difference(what, after, &expected)
}

fn range(at: u64, length: u64) -> Range<usize> {
    at.min(1 << 40) as usize..at.saturating_add(length).min(1 << 40) as usize
}

/// The bytes that were moved are those of the other side.
fn moved(to: &[u8], at: u64, from: &[u8], offset: u64, done: u64) -> Outcome {
    let target = to.get(range(at, done)).ok_or("more was done than there is room for")?;
    let source = from.get(range(offset, done)).ok_or("more was done than there is")?;
    difference("what was moved", target, source)
}

pub(crate) fn transfer(world: &mut World<'_>, call: &Call, write: bool) -> Outcome {
    world.shared.changed.store(true, Relaxed);
    let file = world.fd(call, "fd");
    let value = |field| call.get(field);
    let bytes = pack(&[
        (file as u64, 4),
        (value("flags"), 4),
        (value("at"), 8),
        (value("offset"), 8),
        (value("length"), 8),
        (value("chunk"), 8),
        (value("depth"), 4),
        (value("align"), 4),
        (value("done"), 8),
        (value("direct"), 8),
        (value("refusal"), 4),
        (value("reserved"), 4),
    ]);
    let context = world.context(call, "ctx");
    let buffer = context.as_ref().and_then(|context| context.buffer());
    let mut before = sides(world, buffer.as_deref(), file);
    if MEMORY.get(value("memory") as usize) == Some(&"buffer") {
        // The structure itself changes it.
        before.buffer = None;
    }
    let cancelled = context.as_ref().is_some_and(|context| context.cancelled.get());
    let (fd, given) = (world.fd(call, "ctx"), sized(call, bytes));
    let number = number(call, if write { 3 } else { 2 });
    let Some(made) = ioctl(world, call, fd, number, given, 44..68)? else { return Ok(()) };
    if context.is_none() || made.is(libc::ENOTTY) || made.is(libc::E2BIG) {
        return Ok(());
    }
    let [at, offset, length] = [8, 16, 24].map(|place| made.given(place, 8));
    let done = made.after(48, 8).filter(|_| !made.is(libc::EFAULT));
    if let Ok(done) = made.answer.and(Ok(done)) {
        must(made.given(4, 4) == 0, "flags are ignored")?;
        must(made.given(68, 4) == 0, "a reserved field is ignored")?;
        must(!cancelled, "it succeeds after CANCEL")?;
        if let Some(buffer) = &buffer {
            let end = offset.checked_add(length);
            must(end.is_some_and(|end| end <= buffer.length), "a range beyond the buffer")?;
        } else {
            must(!world.quiet, "it succeeds without a buffer")?;
        }
        must(!write || done.is_none_or(|done| done == length), "WRITE succeeds with a part")?;
    }
    if let Some(done) = done {
        let (direct, align) = (made.after(56, 8).unwrap_or(0), made.after(44, 4).unwrap_or(0));
        must(done <= length, "more was done than was asked for")?;
        must(direct <= done, "more was direct than was done")?;
        must(align == 0 || made.is(libc::EINVAL), "an alignment without EINVAL")?;
        let refusal = made.after(64, 4).unwrap_or(0);
        must(refusal == 0 || made.is(libc::EBUSY) && refusal == 4, "a refusal without EBUSY")?;
        must(done == 0 || !cancelled, "bytes are moved after CANCEL")?;
    }
    let after = sides(world, buffer.as_deref(), file);
    compare(write, &before, &after, (at, offset, length), made.answer, done)
}

fn compare(
    write: bool,
    before: &Sides,
    after: &Sides,
    (at, offset, length): (u64, u64, u64),
    answer: Answer,
    done: Option<u64>,
) -> Outcome {
    if let (Some(old), Some(new)) = (&before.buffer, &after.buffer) {
        if !write {
            outside("the buffer", new, old, &range(offset, length), false)?;
        } else if before.file.is_some() {
            // It has none of the buffer's pages, as a memfd may have.
            difference("the buffer", new, old)?;
        }
    }
    let (Some(old), Some(new), Some(bytes)) = (&before.file, &after.file, &after.buffer) else {
        return Ok(());
    };
    let part = if write { range(at, length) } else { 0..0 };
    outside("the file", new, old, &part, write)?;
    let Some(done) = done.filter(|done| *done > 0 || answer.is_ok()) else { return Ok(()) };
    if write {
        return moved(new, at, bytes, offset, done);
    }
    if answer.is_ok() && done < length {
        must(at.saturating_add(done) >= new.len() as u64, "READ ends before the file does")?;
    }
    if done == 0 { Ok(()) } else { moved(bytes, offset, new, at, done) }
}

/// The number that the next descriptor gets.
fn next_descriptor() -> Answer {
    let fd = system::call(libc::SYS_dup, [0, 0, 0, 0, 0, 0])?;
    let _ = system::close(fd as i32);
    Ok(fd)
}

pub(crate) fn load(world: &mut World<'_>, call: &Call) -> Outcome {
    let file = world.fd(call, "fd");
    let value = |field| call.get(field);
    let bytes = pack(&[
        (file as u64, 4),
        (value("fd_flags"), 4),
        (value("flags"), 4),
        (value("depth"), 4),
        (value("at"), 8),
        (value("length"), 8),
        (value("gather"), 8),
        (value("chunk"), 8),
        (value("dmabuf_fd"), 4),
        (0, 4),
        (0, 8),
        (0, 8),
        (0, 8),
        (0, 4),
        (value("reserved"), 4),
    ]);
    let context = world.context(call, "ctx");
    let cancelled = context.as_ref().is_some_and(|context| context.cancelled.get());
    let (fd, given) = (world.fd(call, "ctx"), sized(call, bytes));
    let next = next_descriptor();
    let Some(made) = ioctl(world, call, fd, number(call, 4), given, 48..84)? else { return Ok(()) };
    if context.is_none() {
        return Ok(());
    }
    if made.answer.is_err() {
        must(!world.quiet || next_descriptor() == next, "LOAD fails and leaves a descriptor")?;
        if made.is(libc::EFAULT) || made.is(libc::ENOTTY) || made.is(libc::E2BIG) {
            return Ok(());
        }
        let told = made.after(48, 4).filter(|told| *told != made.given(48, 4));
        must(
            told.is_none_or(|told| told == u64::from(u32::MAX)),
            "LOAD fails and tells a descriptor",
        )?;
        let (done, direct) = (made.after(64, 8).unwrap_or(0), made.after(72, 8).unwrap_or(0));
        must(done <= made.given(24, 8) && direct <= done, "LOAD: done, direct")?;
        return Ok(());
    }
    let length = made.given(24, 8);
    must(made.given(8, 4) == 0 && made.given(84, 4) == 0, "LOAD ignores what must be zero")?;
    must(length > 0, "LOAD of nothing")?;
    must(!cancelled, "LOAD succeeds after CANCEL")?;
    let flags = made.given(4, 4) as i32;
    must(flags & !(libc::O_RDWR | libc::O_CLOEXEC) == 0, "LOAD ignores fd_flags")?;
    let Some(new) = made.after(48, 4) else { return Ok(()) };
    let size = length.next_multiple_of(PAGE as u64);
    must(made.after(56, 8).is_none_or(|told| told == size), "LOAD: buf_length")?;
    must(made.after(64, 8).is_none_or(|told| told == length), "LOAD: done")?;
    must(made.after(72, 8).is_none_or(|told| told <= length), "LOAD: direct")?;
    let state = |what: i32| system::call(libc::SYS_fcntl, [new, what as u64, 0, 0, 0, 0]);
    let mode = state(libc::F_GETFL).map_err(|_| "LOAD tells no descriptor")?;
    must(mode as i32 & libc::O_ACCMODE == flags & libc::O_ACCMODE, "LOAD: access mode")?;
    let closes = state(libc::F_GETFD).unwrap_or(0) as i32 & libc::FD_CLOEXEC != 0;
    must(closes == (flags & libc::O_CLOEXEC != 0), "LOAD: O_CLOEXEC")?;
    // SAFETY: it is the new dma-buf, and is only looked at.
    let map = Mapping::of(unsafe { BorrowedFd::borrow_raw(new as i32) }, size as usize, false);
    // After a signal, what was loaded before may be older than the file.
    let known = size <= 1 << 20 && !world.signalled;
    if let (true, Ok(map), Some(bytes)) = (known, map, world.file(file)) {
        let seen = map.bytes();
        moved(&seen, 0, &bytes, made.given(16, 8), length)?;
        let rest = &seen[length as usize..];
        difference("the end of the last page", rest, &vec![0; rest.len()])?;
    }
    world.put(call.get("to") as usize, new as i32, None);
    Ok(())
}

/// Any ioctl on anything.
pub(crate) fn any(world: &mut World<'_>, call: &Call) -> Outcome {
    // What it does to whom is not known.
    world.quiet = false;
    world.shared.changed.store(true, Relaxed);
    let (size, number) = (call.get("size"), call.get("number"));
    let request = system::request(call.get("dir"), call.get("kind"), number, size);
    let (fd, given) = (world.fd(call, "fd"), sized(call, vec![0; 64]));
    ioctl(world, call, fd, request, given, 0..1 << 14).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::call::Name;

    fn bytes(buffer: &[u8], file: &[u8]) -> Sides {
        Sides { buffer: Some(buffer.to_vec()), file: Some(file.to_vec()) }
    }

    #[test]
    fn only_the_range_may_change() {
        let before = bytes(&[1; 4], &[7, 8, 9]);
        let read = |after: &[u8], done| {
            compare(false, &before, &bytes(after, &[7, 8, 9]), (1, 1, 2), Ok(0), Some(done))
        };
        assert_eq!(read(&[1, 8, 9, 1], 2), Ok(()));
        // What a failed call leaves in the range is undefined.
        let failed = bytes(&[1, 3, 3, 1], &[7, 8, 9]);
        assert_eq!(compare(false, &before, &failed, (1, 1, 2), Err(5), Some(0)), Ok(()));
        assert!(read(&[1, 8, 9, 9], 2).is_err_and(|why| why.starts_with("the buffer")));
        assert!(read(&[1, 8, 1, 1], 2).is_err_and(|why| why.starts_with("what was moved")));
        assert!(read(&[1, 8, 1, 1], 1).is_err_and(|why| why.starts_with("READ ends")));
    }

    #[test]
    fn a_file_grows_with_zeroes() {
        let before = bytes(&[1, 2], &[7]);
        let write =
            |file: &[u8]| compare(true, &before, &bytes(&[1, 2], file), (2, 0, 2), Ok(0), Some(2));
        assert_eq!(write(&[7, 0, 1, 2]), Ok(()));
        assert!(write(&[7, 5, 1, 2]).is_err_and(|why| why.starts_with("the file")));
        assert!(write(&[7, 0, 1]).is_err_and(|why| why.starts_with("more was done")));
    }

    #[test]
    fn structures_have_any_size() {
        let call = |size| Call::new(Name::Info).with(&[("size", size), ("tail", 9)]);
        assert_eq!(sized(&call(2), vec![1; 4]), [1, 1]);
        assert_eq!(sized(&call(6), vec![1; 4]), [1, 1, 1, 1, 0, 9]);
    }
}
