// SPDX-License-Identifier: MIT OR Apache-2.0
//! READ and WRITE of disks that are unplugged, or give no answer, meanwhile. The calls end; what they say
//! is done is there, and the rest is old, new or zero. Partial blocks at the ends of WRITE pass through the page
//! cache, which may lose them with the disk.

use std::path::PathBuf;
use std::time::Duration;

use dmabuf_dio_sys::{Errno, dio};

use crate::fault::keep_signals_away;
use crate::file::Known;
use crate::judge::{Moved, Span, into_file, into_pages};
use crate::mapper::SECTOR;
use crate::pages::{PAGE, bytes, is_multiple};
use crate::plug::{Plug, SIZE};
use crate::transfer::{How, module_call, refused};
use crate::world::{Outcome, World};

/// Which disk is unplugged, and after how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull {
    pub(crate) disk: u64,
    pub(crate) microseconds: u64,
}

/// The disk's node, if there is something to try.
fn ready(
    world: &World<'_>,
    buf: u64,
    span: Span,
    plug: Plug,
    storing: bool,
) -> Result<Option<PathBuf>, String> {
    let how = How::Module { chunk: 0, depth: 0 };
    let seen = world.attached(buf).is_some_and(|(buffer, _)| buffer.map.is_some());
    let whole = [span.at, span.offset, span.length].iter().all(|at| is_multiple(*at, SECTOR));
    let inside = whole && span.length > 0 && span.at + span.length <= SIZE as u64;
    if !seen || !inside || refused(world, buf, span, how, storing).is_some() {
        return Ok(None);
    }
    plug.insert()
}

/// Makes a call, during which a thread pulls the plug.
fn pulled(plug: Plug, microseconds: u64, call: impl FnOnce() -> Moved) -> Result<Moved, String> {
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            keep_signals_away();
            std::thread::sleep(Duration::from_micros(microseconds));
            plug.pull()
        });
        let moved = call();
        other.join().map_err(|_| "pulling a plug: a panic".to_owned())?.map(|()| moved)
    })
}

/// How a transfer may end; a short one becomes an error.
fn ended(world: &World<'_>, span: Span, plug: Plug, moved: Moved) -> Result<Moved, String> {
    let short = moved.done < span.length;
    world.machine.did(plug.name());
    if short {
        world.machine.did("transfer that a disk ended");
    }
    match moved.errno {
        None if short && plug.ends() => Ok(Moved { errno: Some(Errno::NODEV), ..moved }),
        None => Ok(moved),
        Some(Errno::INVAL) if !is_multiple(span.at ^ span.offset, moved.align.max(1).into()) => {
            Ok(moved)
        }
        Some(Errno::IO | Errno::NODEV | Errno::NXIO | Errno::NOSPC | Errno::TIMEDOUT)
            if plug.ends() =>
        {
            Ok(moved)
        }
        Some(errno) => Err(format!("{plug:?}: {errno} after {} bytes", moved.done)),
    }
}

fn transfer(
    world: &World<'_>,
    buf: u64,
    span: Span,
    shape: (u64, u64),
    pull: Pull,
    storing: bool,
) -> Result<Option<(Known, Moved)>, String> {
    let plug = Plug::of(pull.disk);
    let Some(node) = ready(world, buf, span, plug, storing)? else { return Ok(None) };
    let disk = Known::on_disk(&node, SIZE)?;
    disk.uncache()?;
    let Some((_, context)) = world.attached(buf) else { return Ok(None) };
    let range = (span.at, span.offset, span.length);
    let make = if storing { dio::read } else { dio::write };
    let moved = pulled(plug, pull.microseconds, || {
        module_call(context, disk.fd(span.direct), range, shape, make)
    })?;
    ended(world, span, plug, moved).map(|moved| Some((disk, moved)))
}

pub(crate) fn read(
    world: &mut World<'_>,
    buf: u64,
    span: Span,
    shape: (u64, u64),
    pull: Pull,
) -> Outcome {
    let Some((disk, moved)) = transfer(world, buf, span, shape, pull, true)? else {
        return Ok(());
    };
    let Some((buffer, _)) = world.attached(buf) else { return Ok(()) };
    let seen = buffer.seen()?;
    into_pages(&buffer.pages, span, disk.range(span.at, span.length), moved, &|page| {
        Some(seen.as_ref()?[page * PAGE..(page + 1) * PAGE].to_vec())
    })?;
    drop(disk);
    // It answers again.
    Plug::of(pull.disk).insert()?;
    world.check_buffers()
}

pub(crate) fn write(
    world: &mut World<'_>,
    buf: u64,
    span: Span,
    shape: (u64, u64),
    pull: Pull,
) -> Outcome {
    let Some((disk, moved)) = transfer(world, buf, span, shape, pull, false)? else {
        return Ok(());
    };
    let Some((buffer, _)) = world.attached(buf) else { return Ok(()) };
    let mut source =
        bytes(&buffer.pages, span.offset as usize..(span.offset + span.length) as usize);
    let old = disk.bytes.clone();
    // Whoever has it open keeps its name from the next one.
    drop(disk);
    let plug = Plug::of(pull.disk);
    let Some(node) = plug.insert()? else { return Err("a disk is gone".into()) };
    let mut again = Known::again(&node, old)?;
    let actual = again.actual()?;
    if plug.ends() {
        let at = span.at as usize;
        let end = at + moved.done as usize;
        let whole = at.next_multiple_of(PAGE)..end / PAGE * PAGE;
        for place in (at..end).filter(|place| !whole.contains(place)) {
            if actual[place] == again.bytes[place] {
                source[place - at] = actual[place];
            }
        }
    }
    into_file(&mut again, &actual, span, &source, moved)?;
    world.check_buffers()
}
