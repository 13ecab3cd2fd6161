// SPDX-License-Identifier: MIT OR Apache-2.0
//! READ, WRITE and `copy_file_range()` between a buffer and a file.

use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use dmabuf_dio_sys::{Errno, dio};

use crate::disturb::beside;
use crate::fault::{Armed, Fault, each};
use crate::fence::{Fence, around};
use crate::judge::{Moved, Span, into_file, into_pages};
use crate::pages::{PAGE, bytes, is_multiple};
use crate::world::{Kind, Outcome, World};

/// How a transfer is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Module { chunk: u64, depth: u64 },
    Copy,
}

type Call<'a> = &'a dyn Fn(BorrowedFd<'_>, u64, u64, u64) -> Moved;

/// Could the disk be the reason for an error?
pub(crate) fn may_fail(world: &World<'_>, span: Span) -> bool {
    let broken = world.broken(span.file);
    let whole = |at: u64, up: u64| (at + up) as usize / PAGE * PAGE;
    let range = whole(span.at, 0)..whole(span.at + span.length, PAGE as u64 - 1);
    let overlap = range.start.max(broken.start)..range.end.min(broken.end);
    let direct = world.file(span.file).is_some_and(|file| file.is_direct(span.direct));
    // The page cache reads more than it is asked for.
    !broken.is_empty() && (!direct || !overlap.is_empty())
}

/// Is an error that a transfer ended with explained?
pub(crate) fn explained(
    world: &World<'_>,
    span: Span,
    moved: Moved,
    fault: Fault,
    fired: bool,
) -> Outcome {
    let Some(errno) = moved.errno else { return Ok(()) };
    let direct = world.file(span.file).is_some_and(|file| file.is_direct(span.direct));
    let misaligned = match moved.align {
        // copy_file_range() does not say.
        0 => !is_multiple(span.at ^ span.offset, PAGE as u64),
        align => !is_multiple(span.at ^ span.offset, align.into()),
    };
    match errno {
        Errno::INVAL if direct && misaligned => Ok(()),
        Errno::IO if may_fail(world, span) => Ok(()),
        _ if fired && fault.excuses(errno) => Ok(()),
        _ => Err(format!("{errno} after {} bytes", moved.done)),
    }
}

/// Counts the errors that were expected.
pub(crate) fn note_errors(world: &World<'_>, moved: Moved, fault: Fault, fired: bool) {
    match moved.errno {
        Some(Errno::IO) => world.machine.did("device error"),
        Some(Errno::NOMEM) => world.machine.did("allocation failure"),
        Some(Errno::INVAL) => world.machine.did("misalignment"),
        _ => {}
    }
    match fault {
        Fault::Signal(_) => world.machine.did("signal"),
        Fault::Freeze { how, .. } if fired => world.machine.did(how.name()),
        Fault::Nth(_) if fired => world.machine.did("allocation made to fail"),
        _ => {}
    }
}

/// A call is repeated for what a signal has left of it.
fn complete(fault: Fault, span: Span, call: &dyn Fn(u64, u64, u64) -> Moved) -> (Moved, bool) {
    let (mut moved, fired) = fault.around(|| call(span.at, span.offset, span.length));
    let mut done = moved.done;
    while moved.errno == Some(Errno::INTR) && fault.continues(moved.done) {
        moved = call(span.at + done, span.offset + done, span.length.saturating_sub(done));
        done += moved.done;
    }
    moved.done = done;
    (moved, fired)
}

pub(crate) fn module_call(
    context: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    range: (u64, u64, u64),
    shape: (u64, u64),
    make: fn(BorrowedFd<'_>, &mut dio::ReadWrite) -> Result<(), Errno>,
) -> Moved {
    let mut rw = dio::ReadWrite {
        file_fd: file.as_raw_fd(),
        file_offset: range.0,
        buf_offset: range.1,
        length: range.2,
        chunk: shape.0,
        depth: shape.1 as u32,
        ..dio::ReadWrite::default()
    };
    let errno = make(context, &mut rw).err();
    Moved { done: rw.done, errno, align: rw.align }
}

/// `copy_file_range()` until nothing comes; `into`: from the file into the buffer.
pub(crate) fn copy_call(
    buffer: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    range: (u64, u64, u64),
    into: bool,
) -> Moved {
    let (mut at, mut offset, length) = range;
    let start = at;
    while at - start < length {
        let rest = (length - (at - start)) as usize;
        let copied = if into {
            rustix::fs::copy_file_range(file, Some(&mut at), buffer, Some(&mut offset), rest)
        } else {
            rustix::fs::copy_file_range(buffer, Some(&mut offset), file, Some(&mut at), rest)
        };
        match copied {
            Ok(0) => break,
            Ok(_) => {}
            Err(errno) => {
                let errno = Some(Errno::from_raw(errno.raw_os_error()));
                return Moved { done: at - start, errno, align: 0 };
            }
        }
    }
    Moved { done: at - start, errno: None, align: 0 }
}

/// Whether a call is to be refused, and how.
pub(crate) fn refused(
    world: &World<'_>,
    buf: u64,
    span: Span,
    how: How,
    storing: bool,
) -> Option<Errno> {
    let (buffer, _) = world.attached(buf)?;
    if let How::Copy = how {
        // An exporter without file I/O
        let odd = matches!(buffer.kind, Kind::Odd { .. }) && span.length > 0;
        return odd.then_some(Errno::OPNOTSUPP);
    }
    if storing && !buffer.writable {
        Some(Errno::ACCESS)
    } else if span.offset + span.length > buffer.length() as u64 {
        Some(Errno::RANGE)
    } else {
        None
    }
}

/// Is there something to try that is not refused?
pub(crate) fn goes(world: &World<'_>, buf: u64, span: Span, how: How, storing: bool) -> bool {
    !pointless(world, buf, span, how, !storing) && refused(world, buf, span, how, storing).is_none()
}

/// Does the range, or the state of buffer and file, make no sense to try?
pub(crate) fn pointless(world: &World<'_>, buf: u64, span: Span, how: How, writing: bool) -> bool {
    let (Some((buffer, _)), Some(file)) = (world.attached(buf), world.file(span.file)) else {
        return true;
    };
    let end = file.bytes.len() as u64;
    let fails = !world.broken(span.file).is_empty();
    let whole = |at: u64| is_multiple(at, PAGE as u64);
    // What the page cache loses is not reported.
    let lost = fails && !(file.is_direct(span.direct) && whole(span.at) && whole(span.length));
    // Without a mapping nobody sees what an incomplete transfer has left.
    let unseen = buffer.map.is_none()
        && (fails || world.armed != Armed::Nothing || span.at + span.length > end);
    match how {
        How::Copy if !world.machine.series || buffer.fd.is_none() || !buffer.writable => true,
        How::Copy if span.offset + span.length > buffer.length() as u64 => true,
        _ if writing => lost || file.disk && span.at + span.length > end,
        _ => unseen,
    }
}

fn with_call<T>(
    how: How,
    world: &World<'_>,
    buf: u64,
    span: Span,
    storing: bool,
    then: &dyn Fn(Call<'_>, BorrowedFd<'_>) -> T,
) -> Option<T> {
    let (buffer, context) = world.attached(buf)?;
    let file = world.file(span.file)?.fd(span.direct);
    Some(match how {
        How::Module { chunk, depth } => {
            let make = if storing { dio::read } else { dio::write };
            then(
                &|file, at, offset, length| {
                    module_call(context, file, (at, offset, length), (chunk, depth), make)
                },
                file,
            )
        }
        How::Copy => {
            let buffer = buffer.fd.as_ref()?.as_fd();
            then(
                &|file, at, offset, length| copy_call(buffer, file, (at, offset, length), storing),
                file,
            )
        }
    })
}

fn run(
    how: How,
    world: &World<'_>,
    buf: u64,
    span: Span,
    storing: bool,
    fault: Fault,
    fence: Option<Fence>,
) -> Result<(Moved, bool), String> {
    let whole = || {
        with_call(how, world, buf, span, storing, &|call, file| {
            beside(world, || {
                complete(fault, span, &|at, offset, length| call(file, at, offset, length))
            })
        })
    };
    let concerns = fence.as_ref().is_some_and(|fence| fence.concerns(buf, storing));
    if fence.is_some() {
        world.machine.did(if concerns { "fence that concerns it" } else { "fence of no concern" });
    }
    let (moved, fenced) = around(fence, concerns, whole);
    let (moved, fired) = moved.ok_or("the objects are gone")?;
    if let Some(wrong) = fenced.filter(|_| moved.done > 0) {
        return Err(wrong.into());
    }
    world.machine.did(match (how, storing) {
        (How::Module { .. }, true) => "READ",
        (How::Module { .. }, false) => "WRITE",
        (How::Copy, true) => "copy_file_range into a buffer",
        (How::Copy, false) => "copy_file_range from a buffer",
    });
    note_errors(world, moved, fault, fired);
    match refused(world, buf, span, how, storing) {
        Some(expected) if moved.errno != Some(expected) || moved.done != 0 => {
            Err(format!("{:?}, {} bytes, in place of {expected}", moved.errno, moved.done))
        }
        Some(_) => Ok((Moved::default(), false)),
        None => explained(world, span, moved, fault, fired).map(|()| (moved, fired)),
    }
}

/// From the file into the buffer.
pub(crate) fn read(world: &mut World<'_>, buf: u64, span: Span, how: How) -> Outcome {
    if pointless(world, buf, span, how, false) {
        return Ok(());
    }
    let armed = std::mem::take(&mut world.armed);
    let mut fence = world.fence.take();
    each(armed, &mut |fault| {
        let fence = fence.take();
        let (moved, fired) = run(how, world, buf, span, true, fault, fence)?;
        let Some((buffer, _)) = world.attached(buf) else { return Ok(false) };
        if refused(world, buf, span, how, true).is_none() {
            let source =
                world.file(span.file).map_or(&[][..], |file| file.range(span.at, span.length));
            let seen = buffer.seen()?;
            into_pages(&buffer.pages, span, source, moved, &|page| {
                Some(seen.as_ref()?[page * PAGE..(page + 1) * PAGE].to_vec())
            })?;
        }
        world.check_buffers()?;
        Ok(fired)
    })
}

/// From the buffer into the file.
pub(crate) fn write(world: &mut World<'_>, buf: u64, span: Span, how: How) -> Outcome {
    if pointless(world, buf, span, how, true) {
        return Ok(());
    }
    let armed = std::mem::take(&mut world.armed);
    let mut fence = world.fence.take();
    each(armed, &mut |fault| {
        let fence = fence.take();
        let (moved, fired) = run(how, world, buf, span, false, fault, fence)?;
        if refused(world, buf, span, how, false).is_some() {
            return Ok(fired);
        }
        let Some((buffer, _)) = world.attached(buf) else { return Ok(false) };
        let range: Range<usize> = span.offset as usize..(span.offset + span.length) as usize;
        let source = bytes(&buffer.pages, range);
        let actual = world.actual_file(span.file)?;
        if let Some(file) = world.file_mut(span.file) {
            into_file(file, &actual, span, &source, moved)?;
        }
        Ok(fired)
    })
}
