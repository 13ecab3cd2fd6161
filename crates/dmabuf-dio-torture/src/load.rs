// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers that are made with a file's content.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use dmabuf_dio_sys::{Errno, dio, heap};
use rustix::fs::{OFlags, fcntl_getfl};

use crate::buffer::place;
use crate::disturb::beside;
use crate::fault::{Armed, each};
use crate::judge::{Moved, Span};
use crate::mapping::Mapping;
use crate::pages::{PAGE, Page, is_multiple, store, zero_pages};
use crate::transfer::{may_fail, note_errors};
use crate::world::{Buffer, Kind, Outcome, World};

/// The shape of a load's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) chunk: u64,
    pub(crate) depth: u64,
    pub(crate) gather: u64,
    pub(crate) writable: bool,
    /// After a signal: 1 another range is loaded, 2 with other access.
    pub(crate) other: u64,
}

fn loader<'a>(world: &'a mut World<'_>) -> Result<&'a OwnedFd, String> {
    if world.loader.is_none() {
        world.loader = Some(dio::open().map_err(|errno| format!("a context: {errno}"))?);
    }
    world.loader.as_ref().ok_or_else(|| "no context".into())
}

/// LOAD as it is without any options.
pub(crate) fn request(
    context: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    file_offset: u64,
    length: u64,
) -> Result<OwnedFd, Errno> {
    let (file_fd, fd_flags) = (file.as_raw_fd(), (OFlags::RDWR | OFlags::CLOEXEC).bits());
    let mut load = dio::Load { file_fd, fd_flags, file_offset, length, ..dio::Load::default() };
    dio::load(context, &mut load)
}

fn call(world: &World<'_>, span: Span, shape: Shape) -> (dio::Load, Result<OwnedFd, Errno>) {
    let file = world.file(span.file).map_or(-1, |file| file.fd(span.direct).as_raw_fd());
    let access = if shape.writable { OFlags::RDWR } else { OFlags::RDONLY };
    let mut load = dio::Load {
        file_fd: file,
        fd_flags: (access | OFlags::CLOEXEC).bits(),
        depth: shape.depth as u32,
        file_offset: span.at,
        length: span.length,
        gather: shape.gather,
        chunk: shape.chunk,
        ..dio::Load::default()
    };
    let result = match &world.loader {
        Some(context) => dio::load(context.as_fd(), &mut load),
        None => Err(Errno::BADF),
    };
    (load, result)
}

/// Checks a new buffer, and puts it into its place.
pub(crate) fn take(
    world: &mut World<'_>,
    at: u64,
    fd: OwnedFd,
    span: Span,
    kind: Kind,
    writable: bool,
) -> Outcome {
    let source = world.file(span.file).map_or(&[][..], |file| file.range(span.at, span.length));
    let pages = zero_pages(span.length.div_ceil(PAGE as u64));
    store(&pages, 0, source);
    put(world, at, fd, pages, kind, writable)
}

/// As `take`, with the pages' bytes.
pub(crate) fn put(
    world: &mut World<'_>,
    at: u64,
    fd: OwnedFd,
    pages: Vec<Page>,
    kind: Kind,
    writable: bool,
) -> Outcome {
    let access = fcntl_getfl(&fd).map_err(|errno| format!("F_GETFL: {errno}"))?;
    if access.contains(OFlags::RDWR) != writable {
        return Err(format!("the buffer is open as {access:?}, writable: {writable}"));
    }
    let map = Some(Mapping::of(fd.as_fd(), pages.len() * PAGE, writable)?);
    let buffer =
        Buffer { kind, fd: Some(fd), map, context: None, pages, writable, imported: false };
    buffer.check()?;
    place(world, at, buffer);
    Ok(())
}

pub(crate) fn load(world: &mut World<'_>, at: u64, span: Span, shape: Shape) -> Outcome {
    if world.file(span.file).is_none() || span.length == 0 {
        return Ok(());
    }
    loader(world)?;
    let armed = std::mem::take(&mut world.armed);
    each(armed, &mut |fault| {
        let (mut span, mut shape) = (span, shape);
        let ((mut load, mut result), fired) =
            beside(world, || fault.around(|| call(world, span, shape)));
        // It has memory, if no data yet.
        while matches!(result, Err(Errno::INTR)) && fault.continues(1) {
            match shape.other {
                1 => span.at = (span.at + PAGE as u64) / PAGE as u64 * PAGE as u64,
                2 => shape.writable = !shape.writable,
                _ => {}
            }
            (load, result) = call(world, span, shape);
        }
        let moved = Moved { errno: result.as_ref().err().copied(), ..Moved::default() };
        note_errors(world, moved, fault, fired);
        let file = world.file(span.file).ok_or("no file")?;
        let ends = span.at + span.length > file.bytes.len() as u64;
        let direct = file.is_direct(span.direct);
        match result {
            Ok(_) if ends => Err("LOAD succeeds beyond the end of the file".to_owned())?,
            Ok(_) if load.done != span.length => Err(format!("LOAD: {} bytes done", load.done))?,
            Ok(fd) => {
                world.machine.did("LOAD");
                take(world, at, fd, span, Kind::Load, shape.writable)?;
            }
            Err(Errno::NODATA) if ends => {}
            Err(Errno::INVAL)
                if direct && load.align > 0 && !is_multiple(span.at, load.align.into()) => {}
            Err(Errno::IO) if may_fail(world, span) => {}
            Err(errno) if fired && fault.excuses(errno) => {}
            Err(errno) => Err(format!("LOAD: {errno} after {} bytes", load.done))?,
        }
        Ok(fired)
    })
}

pub(crate) fn heap(world: &mut World<'_>, at: u64, span: Span) -> Outcome {
    let (Some(heap), true) = (&world.machine.heap, world.machine.series) else { return Ok(()) };
    let Some(file) = world.file(span.file) else { return Ok(()) };
    if span.length == 0 || world.armed != Armed::Nothing {
        return Ok(());
    }
    let available = file.range(span.at, span.length).len() as u64;
    let direct = file.is_direct(span.direct);
    match heap::alloc_read_file(heap.as_fd(), span.length, file.fd(span.direct), span.at) {
        Ok((_, read)) if read != available => {
            Err(format!("the heap read {read} of {available} bytes"))
        }
        Ok((fd, _)) => {
            world.machine.did("heap with a file");
            take(world, at, fd, span, Kind::Heap, true)
        }
        Err(Errno::IO) if may_fail(world, span) => Ok(()),
        Err(Errno::INVAL) if direct && !is_multiple(span.at, PAGE as u64) => Ok(()),
        Err(errno) => Err(format!("the heap: {errno}")),
    }
}
