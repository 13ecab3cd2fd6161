// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saves: to a path, whose old file stays until the new one is complete, and within files that are open.

use std::io::{BufRead, Read};

use dmabuf_dio::{Backend, Buffer, Error, Report, Saver};

use super::load::may_refuse;
use super::place;
use super::saved::only;
use super::settings::{Settings, Told};
use super::{during, is_of_the_disk, may_fail_anyhow};
use crate::full::Small;
use crate::judge::{Moved, Span, into_file};
use crate::pages::{PAGE, difference, is_multiple, stamp as stamped};
use crate::world::{DISK, Outcome, World};

/// A range of the buffer at a place: place, offset, length.
type Part = (u64, u64, u64);

/// Of the buffer's bytes, as far as there are any.
fn source(world: &World<'_>, (at, offset, length): Part) -> Vec<u8> {
    let known = place::known(world, at);
    let end = known.len();
    known[(offset as usize).min(end)..((offset + length) as usize).min(end)].to_vec()
}

/// Is the error of a save one that was asked for?
fn explained(
    world: &World<'_>,
    result: &Result<Report, Error>,
    (at, offset, length): Part,
    buffer: &Buffer,
    settings: &Settings,
) -> Outcome {
    let beyond = offset + length > buffer.len();
    let refused = beyond || length == 0;
    match result {
        Ok(_) if refused => Err("a save that has to be refused succeeds".into()),
        Ok(report) if report.bytes != length => {
            Err(format!("a report of {} bytes in place of {length}", report.bytes))
        }
        Ok(_) => Ok(()),
        Err(Error::RangeBeyondBuffer { .. } | Error::EmptyRange { .. }) if refused => Ok(()),
        Err(Error::Cancelled { done, .. }) if settings.cancel > 0 && *done <= length => {
            world.machine.did("save cancelled");
            Ok(())
        }
        Err(Error::Unavailable { .. }) if may_refuse(at, buffer, settings.backend()) => {
            world.machine.did("backend that is not there");
            Ok(())
        }
        Err(error) => Err(format!("save of a {}: {error}", buffer.kind())),
    }
}

/// Saves to a path: a new file, or one that replaces another.
pub(crate) fn replace(
    world: &mut World<'_>,
    name: u64,
    part: Part,
    settings: &Settings,
) -> Outcome {
    let armed = std::mem::take(&mut world.armed);
    let Some(buffer) = place::open(world, part.0)? else { return Ok(()) };
    let told = Told::new(settings.cancel);
    let saver = Saver::new(world.saved.path(name)).options(settings.options());
    let saver = saver.cancel(told.token.clone()).progress(told.callback());
    let range = part.1..part.1 + part.2;
    let result = during(world, armed, || saver.save(&buffer, range));
    told.check(result.is_ok(), part.2)?;
    explained(world, &result, part, &buffer, settings)?;
    if result.is_ok() {
        world.machine.did("save");
        let bytes = source(world, part);
        world.saved.put(name, bytes);
    }
    world.saved.check(name)?;
    place::settle(world, part.0, 0, 0, &[], 0)
}

/// Gives bytes, and fails after `stop` of them.
struct Stopping {
    bytes: Vec<u8>,
    at: usize,
    stop: usize,
    /// What is given at a time.
    step: usize,
}

impl Read for Stopping {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let given = self.fill_buf()?;
        let length = given.len().min(out.len());
        out[..length].copy_from_slice(&given[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for Stopping {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        if self.at >= self.stop {
            return Err(std::io::Error::other("the source stops"));
        }
        let end = (self.at + self.step).min(self.stop).min(self.bytes.len());
        Ok(&self.bytes[self.at..end])
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount;
    }
}

/// Saves what a reader gives: a length, a stamp, and after how many bytes it fails.
pub(crate) fn from_reader(
    world: &mut World<'_>,
    name: u64,
    (length, stamp, stop): (u64, u64, u64),
    settings: &Settings,
) -> Outcome {
    let armed = std::mem::take(&mut world.armed);
    let bytes = stamped(stamp, 0, length as usize);
    let step = 1 + (stamp as usize * 977) % 9000;
    let mut reader = Stopping { bytes, at: 0, stop: stop as usize, step };
    let told = Told::new(settings.cancel);
    let saver = Saver::new(world.saved.path(name)).options(settings.options());
    let saver = saver.cancel(told.token.clone()).progress(told.callback());
    let result = during(world, armed, || saver.save_from(&mut reader, length));
    told.check(result.is_ok(), length)?;
    match result {
        Ok(_) if stop < length => return Err("a save of a reader that failed succeeds".into()),
        Ok(_) => {
            world.machine.did("save from a reader");
            world.saved.put(name, reader.bytes);
        }
        Err(Error::Source { .. }) if stop < length => world.machine.did("reader that fails"),
        Err(Error::Cancelled { .. }) if settings.cancel > 0 => world.machine.did("save cancelled"),
        Err(Error::EmptyRange { .. }) if length == 0 => {}
        Err(error) => return Err(format!("save from a reader: {error}")),
    }
    world.saved.check(name)
}

/// Saves to an open file, at an offset.
pub(crate) fn in_place(world: &mut World<'_>, at: u64, span: Span, settings: &Settings) -> Outcome {
    let armed = std::mem::take(&mut world.armed);
    let part = (at, span.offset, span.length);
    let whole = is_multiple(span.at | span.length | span.offset, PAGE as u64);
    // What the page cache loses is not reported.
    let cached = span.direct == 0 || !whole || settings.backend() == Some(Backend::Buffered);
    if !world.broken(span.file).is_empty() && cached {
        return Ok(());
    }
    let Some(buffer) = place::open(world, at)? else { return Ok(()) };
    let Some(file) = world.file(span.file) else { return Ok(()) };
    let beyond = file.disk && span.at + span.length > file.bytes.len() as u64;
    let told = Told::new(settings.cancel);
    let saver = Saver::to_fd(file.fd(u64::from(span.direct == 2))).options(settings.options());
    let saver = saver.offset(span.at).cancel(told.token.clone()).progress(told.callback());
    let range = span.offset..span.offset + span.length;
    let result = during(world, armed, || saver.save(&buffer, range));
    drop(saver);
    told.check(result.is_ok(), span.length)?;
    let refused = beyond || span.length == 0 || span.offset + span.length > buffer.len();
    let mut moved = Moved { done: span.length, errno: None, align: 0 };
    let stopped = Some(dmabuf_dio_sys::Errno::INTR);
    match &result {
        Ok(_) if beyond => return Err("a save beyond the end of a device succeeds".into()),
        Err(Error::Target { errno, .. }) if beyond && errno.raw() == libc::ENOSPC => {}
        Err(Error::Transfer { errno, done, .. }) if is_of_the_disk(world, span, *errno) => {
            world.machine.did("device error in the library");
            moved = Moved { done: *done, errno: stopped, align: 0 };
        }
        Err(Error::Target { errno, .. })
            if errno.raw() == libc::EIO && span.file == DISK && may_fail_anyhow(world, span) =>
        {
            // Made durable in vain
            moved = Moved { done: 0, errno: stopped, align: 0 };
        }
        Err(Error::Cancelled { done, .. }) if settings.cancel > 0 => {
            world.machine.did("save cancelled");
            moved = Moved { done: *done, errno: stopped, align: 0 };
        }
        _ => {
            explained(world, &result, part, &buffer, settings)?;
            if result.is_err() {
                moved = Moved { done: 0, errno: stopped, align: 0 };
            } else {
                world.machine.did("save in place");
            }
        }
    }
    let bytes = source(world, part);
    let actual = world.actual_file(span.file)?;
    let Some(file) = world.file_mut(span.file) else { return Ok(()) };
    if refused || matches!(result, Err(Error::Unavailable { .. })) {
        return difference("the file", &actual, &file.bytes);
    }
    into_file(file, &actual, span, &bytes, moved)?;
    place::settle(world, at, 0, 0, &[], 0)
}

/// Saves over a file of a tmpfs that has so many pages, of which the old file takes one.
pub(crate) fn small(world: &mut World<'_>, part: Part, left: u64, direct: u64) -> Outcome {
    let Some(buffer) = place::open(world, part.0)? else { return Ok(()) };
    if part.2 == 0 || part.1 + part.2 > buffer.len() {
        return Ok(());
    }
    let small = Small::mount(world, left + 1)?;
    let path = small.0.join("saved-0");
    let old = stamped(99, 0, PAGE);
    std::fs::write(&path, &old).map_err(|error| format!("the old file: {error}"))?;
    let saver = Saver::new(&path).direct(direct != 0);
    let result = saver.save(&buffer, part.1..part.1 + part.2);
    let fits = part.2.div_ceil(PAGE as u64) <= left;
    let full = |error: &Error| match error {
        Error::Target { errno, .. } | Error::Transfer { errno, .. } => errno.raw() == libc::ENOSPC,
        _ => false,
    };
    let new = source(world, part);
    let expected = match &result {
        Ok(_) if fits => &new,
        Ok(_) => return Err(format!("a save of {} bytes where {left} pages are left", part.2)),
        Err(error) if !fits && full(error) => &old,
        Err(error) => return Err(format!("save with {left} pages left: {error}")),
    };
    world.machine.did(if fits { "save with some room" } else { "save without room" });
    let actual = std::fs::read(&path).map_err(|error| format!("the file: {error}"))?;
    difference("the file on a small tmpfs", &actual, expected)?;
    only(&small.0, 0..1, |_| "saved-0".into())
}
