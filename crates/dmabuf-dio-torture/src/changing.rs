// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that another thread cuts and extends while a transfer runs. A byte before the cut stays;
//! one behind it is zero, or the old one again if the thread writes it, or what WRITE has stored
//! since.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use dmabuf_dio_sys::{Errno, dio};

use crate::fault::keep_signals_away;
use crate::judge::{Moved, Span, one_of};
use crate::load;
use crate::mapping::Mapping;
use crate::pages::{PAGE, bytes, is_multiple, store, zero_pages};
use crate::transfer::{How, goes, module_call};
use crate::world::{DISK, Kind, Outcome, World};

/// What the other thread does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Where it cuts.
    to: u64,
    /// It writes the old bytes again.
    rewrites: bool,
}

impl Cut {
    pub(crate) fn of(to: u64, kind: u64) -> Self {
        Self { to, rewrites: kind == 1 }
    }

    fn reaches(self, at: u64) -> bool {
        at >= self.to
    }

    /// May READ see a zero at that place, which the file has not in the end?
    fn shows_zero(self, at: u64) -> bool {
        self.rewrites && self.reaches(at)
    }
}

/// Makes a call while a thread cuts the file, and gives it its length again.
fn beside<T>(file: &File, old: &[u8], cut: Cut, call: impl FnOnce() -> T) -> Result<T, String> {
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let change = || -> std::io::Result<()> {
        file.set_len(cut.to)?;
        if cut.rewrites {
            file.write_all_at(&old[cut.to as usize..], cut.to)
        } else {
            file.set_len(old.len() as u64)
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            keep_signals_away();
            let mut changed = Ok(());
            while !over.load(Ordering::Acquire) {
                changed = changed.and(change());
                begun.store(true, Ordering::Release);
            }
            changed
        });
        while !begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let result = call();
        over.store(true, Ordering::Release);
        match other.join() {
            Ok(Ok(())) => Ok(result),
            Ok(Err(error)) => Err(format!("cutting a file: {error}")),
            Err(_) => Err("cutting a file: a panic".into()),
        }
    })
}

/// The file once it was cut and extended, if the range lies in it and it can be cut there.
fn cut_once(world: &World<'_>, span: Span, cut: Cut) -> Option<Vec<u8>> {
    let file = world.file(span.file)?;
    let end = file.bytes.len() as u64;
    let inside = span.length > 0 && span.at + span.length <= end && cut.to < end;
    let kept = if cut.rewrites { end } else { cut.to };
    (inside && span.file != DISK).then(|| {
        let mut bytes = file.bytes[..kept as usize].to_vec();
        bytes.resize(end as usize, 0);
        bytes
    })
}

/// What WRITE stores: where, what, and how much was said to be done.
type Stored<'a> = (u64, &'a [u8], u64);

/// Compares a file after its changes. `old`: its bytes without WRITE's.
fn compare(actual: &[u8], old: &[u8], cut: Cut, stored: Option<Stored<'_>>) -> Outcome {
    if actual.len() != old.len() {
        return Err(format!("the file has {} bytes of {}", actual.len(), old.len()));
    }
    for (at, (byte, old)) in actual.iter().zip(old).enumerate() {
        let new = stored.and_then(|(start, bytes, done)| {
            let skip = (at as u64).checked_sub(start)?;
            Some((*bytes.get(skip as usize)?, skip < done))
        });
        let right = match new {
            // What was said to be done is there, unless it was cut off later.
            Some((new, true)) if !cut.reaches(at as u64) => *byte == new,
            Some((new, _)) => *byte == new || byte == old || *byte == 0,
            None => byte == old,
        };
        if !right {
            return Err(format!(
                "the file: {byte:#04x} at {at:#x}, the old byte is {old:#04x}, the new one {new:x?}"
            ));
        }
    }
    Ok(())
}

/// Takes the file's bytes after its changes into the model.
fn settle(
    world: &mut World<'_>,
    place: u64,
    old: &[u8],
    cut: Cut,
    stored: Option<Stored<'_>>,
) -> Outcome {
    let actual = world.actual_file(place)?;
    compare(&actual, old, cut, stored)?;
    world.file_mut(place).into_iter().for_each(|file| file.bytes.clone_from(&actual));
    Ok(())
}

/// A short result is right only behind the cut.
fn ended(moved: Moved, span: Span, cut: Cut, file_is_direct: bool) -> Outcome {
    let align = if moved.align == 0 { PAGE as u64 } else { moved.align.into() };
    let least = cut.to.saturating_sub(span.at).min(span.length);
    match moved.errno {
        None | Some(Errno::NODATA) if moved.done >= least => Ok(()),
        Some(Errno::INVAL) if file_is_direct && !is_multiple(span.at ^ span.offset, align) => {
            Ok(())
        }
        errno => Err(format!("{errno:?} after {} bytes, at least {least} stay", moved.done)),
    }
}

pub(crate) fn read(
    world: &mut World<'_>,
    buf: u64,
    span: Span,
    shape: (u64, u64),
    cut: Cut,
) -> Outcome {
    let how = How::Module { chunk: shape.0, depth: shape.1 };
    if !goes(world, buf, span, how, true) {
        return Ok(());
    }
    let Some(old) = cut_once(world, span, cut) else { return Ok(()) };
    let (Some((buffer, context)), Some(file)) = (world.attached(buf), world.file(span.file)) else {
        return Ok(());
    };
    if buffer.map.is_none() {
        return Ok(());
    }
    let range = (span.at, span.offset, span.length);
    let moved = beside(&file.plain, &old, cut, || {
        module_call(context, file.fd(span.direct), range, shape, dio::read)
    })?;
    world.machine.did("READ of a file that changes");
    if moved.done < span.length && moved.errno.is_none() {
        world.machine.did("READ that a cut ended");
    }
    ended(moved, span, cut, file.is_direct(span.direct))?;
    let Some(seen) = buffer.seen()? else { return Ok(()) };
    let start = span.offset as usize;
    for skip in 0..span.length {
        let at = start + skip as usize;
        let (byte, new) = (seen[at], old[(span.at + skip) as usize]);
        let was = bytes(&buffer.pages, at..at + 1)[0];
        if skip >= moved.done {
            one_of("after the end of the transfer", at, byte, was, Some(new))?;
        } else if byte != new && !(byte == 0 && cut.shows_zero(span.at + skip)) {
            return Err(format!("{byte:#04x} at {at:#x} of the buffer, the file has {new:#04x}"));
        }
    }
    store(&buffer.pages, start, &seen[start..start + span.length as usize]);
    world.check_buffers()?;
    settle(world, span.file, &old, cut, None)
}

pub(crate) fn write(
    world: &mut World<'_>,
    buf: u64,
    span: Span,
    shape: (u64, u64),
    to: u64,
) -> Outcome {
    let how = How::Module { chunk: shape.0, depth: shape.1 };
    // The page cache and O_DIRECT have no block in common.
    let cut = Cut::of(to / PAGE as u64 * PAGE as u64, 0);
    if !goes(world, buf, span, how, false) {
        return Ok(());
    }
    let Some(old) = cut_once(world, span, cut) else { return Ok(()) };
    let (Some((buffer, context)), Some(file)) = (world.attached(buf), world.file(span.file)) else {
        return Ok(());
    };
    let source = bytes(&buffer.pages, span.offset as usize..(span.offset + span.length) as usize);
    let range = (span.at, span.offset, span.length);
    let moved = beside(&file.plain, &old, cut, || {
        module_call(context, file.fd(span.direct), range, shape, dio::write)
    })?;
    world.machine.did("WRITE to a file that changes");
    if moved.errno.is_none() && moved.done < span.length {
        return Err(format!("{} bytes of {} without an error", moved.done, span.length));
    }
    let whole = Cut { to: 0, rewrites: false };
    ended(moved, span, whole, file.is_direct(span.direct))?;
    settle(world, span.file, &old, cut, Some((span.at, &source, moved.done)))
}

pub(crate) fn load(world: &mut World<'_>, at: u64, span: Span, cut: Cut) -> Outcome {
    let Some(old) = cut_once(world, span, cut) else { return Ok(()) };
    let Some(file) = world.file(span.file) else { return Ok(()) };
    if !is_multiple(span.at, PAGE as u64) {
        return Ok(());
    }
    let context = dio::open().map_err(|errno| format!("a context: {errno}"))?;
    let loaded = beside(&file.plain, &old, cut, || {
        load::request(context.as_fd(), file.fd(span.direct), span.at, span.length)
    })?;
    world.machine.did("LOAD of a file that changes");
    let cuts = cut.to < span.at + span.length;
    match loaded {
        Err(Errno::NODATA) if cuts => {}
        Err(errno) => return Err(format!("LOAD: {errno}")),
        Ok(fd) => {
            let pages = zero_pages(span.length.div_ceil(PAGE as u64));
            let seen = Mapping::of(fd.as_fd(), pages.len() * PAGE, false)?.bytes();
            for (skip, byte) in seen.iter().enumerate() {
                let place = span.at + skip as u64;
                let new = if (skip as u64) < span.length { old[place as usize] } else { 0 };
                if *byte != new && !(*byte == 0 && cut.shows_zero(place)) {
                    return Err(format!("{byte:#04x} at {skip:#x}, the file has {new:#04x}"));
                }
            }
            store(&pages, 0, &seen);
            load::put(world, at, fd, pages, Kind::Load, true)?;
        }
    }
    settle(world, span.file, &old, cut, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUT: Cut = Cut { to: 4, rewrites: false };

    #[test]
    fn what_was_said_to_be_done_is_there_before_the_cut() {
        let old = [1, 1, 1, 1, 0, 0];
        let new = Some((2, &[7, 7, 7][..], 3));
        for (actual, right) in [
            ([1, 1, 7, 7, 7, 0], true),
            ([1, 1, 7, 7, 0, 0], true),
            ([1, 1, 7, 1, 7, 0], false),
            ([1, 1, 7, 0, 7, 0], false),
            ([1, 1, 7, 7, 7, 1], false),
            ([1, 7, 7, 7, 7, 0], false),
        ] {
            assert_eq!(compare(&actual, &old, CUT, new).is_ok(), right, "{actual:?}");
        }
        assert!(compare(&[1, 1, 1, 1, 0], &old, CUT, None).is_err());
        // What was not said to be done may be there.
        let part = Some((2, &[7, 7, 7][..], 1));
        assert!(compare(&[1, 1, 7, 7, 0, 0], &old, CUT, part).is_ok());
    }
}
