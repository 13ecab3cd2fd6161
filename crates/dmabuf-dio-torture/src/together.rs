// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers at the same time, each in a thread. No byte of a buffer is stored by one and used by
//! another, and a file that one writes is no other's; pages, buffers and contexts are shared.

use std::cell::Cell;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::path::Path;
use std::sync::{Barrier, mpsc};
use std::time::Duration;

use dmabuf_dio_sys::dio;

use crate::disk::Disk;
use crate::fault::Fault;
use crate::file::freeze;
use crate::judge::{Moved, Span, into_pages, note_file};
use crate::ops::Op;
use crate::pages::{PAGE, bytes, difference, parts};
use crate::transfer::{How, explained, goes, module_call};
use crate::world::{DISK, Kind, Outcome, Stalled, World};

/// Nothing waits for the other's disk; whatever does would wait for ever.
const FOR_EVER: Duration = Duration::from_secs(30);

/// A transfer that is to run beside others.
struct Part {
    storing: bool,
    buf: u64,
    span: Span,
    shape: (u64, u64),
    context: RawFd,
    file: RawFd,
    /// The model of each page, by its address, and the part that is used.
    pages: Vec<(usize, Range<usize>)>,
}

impl Part {
    /// `None` if the operation is none, or does not go with others.
    fn of(world: &World<'_>, op: &Op) -> Option<Self> {
        let (storing, buf, span, shape) = match *op {
            Op::Read { buf, file, at, offset, length, chunk, depth, direct } => {
                (true, buf, Span { file, at, offset, length, direct }, (chunk, depth))
            }
            Op::Write { buf, file, at, offset, length, chunk, depth, direct } => {
                (false, buf, Span { file, at, offset, length, direct }, (chunk, depth))
            }
            _ => return None,
        };
        let how = How::Module { chunk: shape.0, depth: shape.1 };
        let (buffer, context) = world.attached(buf)?;
        let file = world.file(span.file)?;
        if !goes(world, buf, span, how, storing)
            || !world.broken(span.file).is_empty()
            || buffer.map.is_none()
            || span.at + span.length > file.bytes.len() as u64
        {
            return None;
        }
        let range = span.offset as usize..(span.offset + span.length) as usize;
        let pages = parts(range).map(|(page, part)| (buffer.pages[page].as_ptr() as usize, part));
        Some(Self {
            storing,
            buf,
            span,
            shape,
            context: context.as_raw_fd(),
            file: file.fd(span.direct).as_raw_fd(),
            pages: pages.collect(),
        })
    }

    fn collides(&self, other: &Self) -> bool {
        let writes = !self.storing || !other.storing;
        if writes && self.span.file == other.span.file {
            return true;
        }
        (self.storing || other.storing)
            && self.pages.iter().any(|(page, part)| {
                other.pages.iter().any(|(same, used)| {
                    page == same && part.start < used.end && used.start < part.end
                })
            })
    }

    fn call(&self) -> Moved {
        // SAFETY: context and file belong to the world, which lives until all calls are over.
        let (context, file) =
            unsafe { (BorrowedFd::borrow_raw(self.context), BorrowedFd::borrow_raw(self.file)) };
        let range = (self.span.at, self.span.offset, self.span.length);
        let make = if self.storing { dio::read } else { dio::write };
        module_call(context, file, range, self.shape, make)
    }

    /// Takes the transfer into the model.
    fn note(&self, world: &mut World<'_>, moved: Moved) -> Outcome {
        explained(world, self.span, moved, Fault::None, false)?;
        let Some((buffer, _)) = world.attached(self.buf) else { return Ok(()) };
        if self.storing {
            let source = world
                .file(self.span.file)
                .map_or(&[][..], |file| file.range(self.span.at, self.span.length));
            let seen = buffer.seen()?;
            into_pages(&buffer.pages, self.span, source, moved, &|page| {
                Some(seen.as_ref()?[page * PAGE..(page + 1) * PAGE].to_vec())
            })?;
            return Ok(());
        }
        let range = self.span.offset as usize..(self.span.offset + self.span.length) as usize;
        let source = bytes(&buffer.pages, range);
        let actual = world.actual_file(self.span.file)?;
        world.file_mut(self.span.file).map_or(Ok(()), |file| {
            note_file(file, &actual, self.span, &source, moved)?;
            difference("the file", &actual, &file.bytes)
        })
    }
}

/// Waits until a thread waits in its call.
fn await_blocked(thread: rustix::thread::Pid) {
    let path = format!("/proc/self/task/{}/syscall", thread.as_raw_nonzero());
    let ioctl = format!("{} ", libc::SYS_ioctl);
    for _ in 0..10_000 {
        match std::fs::read_to_string(&path) {
            Ok(call) if !call.starts_with(&ioctl) => {}
            _ => return,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Something gives no answer. It does so again when this is dropped.
struct Stall<'a> {
    what: Option<Stalled>,
    disk: Option<&'a Disk>,
    folder: &'a Path,
    ended: Cell<bool>,
}

impl<'a> Stall<'a> {
    fn start(world: &'a World<'_>, what: Option<Stalled>) -> Result<Self, String> {
        let (disk, folder) = (world.disk.as_ref(), world.machine.folder.as_path());
        match what {
            Some(Stalled::Disk) => {
                world.machine.did("transfers beside a disk that does not answer");
                disk.map_or(Ok(()), |disk| disk.stall(true))?;
            }
            Some(Stalled::Files) => {
                world.machine.did("transfers on a file system that is frozen");
                freeze(folder, true)?;
            }
            None => {}
        }
        Ok(Self { what, disk, folder, ended: Cell::new(what.is_none()) })
    }

    fn end(&self) -> Outcome {
        match self.what {
            _ if self.ended.replace(true) => Ok(()),
            Some(Stalled::Disk) => self.disk.map_or(Ok(()), |disk| disk.stall(false)),
            Some(Stalled::Files) => freeze(self.folder, false),
            None => Ok(()),
        }
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Makes all calls at once. If something is to give no answer, it gives one when the others have
/// ended.
fn at_once(world: &World<'_>, parts: &[Part]) -> Result<Vec<Moved>, String> {
    let waits = |part: &Part| match world.stalled {
        Some(Stalled::Disk) => part.span.file == DISK,
        Some(Stalled::Files) => !part.storing && part.span.file != DISK,
        None => false,
    };
    let waiting = parts.iter().filter(|part| waits(part)).count();
    // Transfers wait for each other if a device needs it, and on buffers of exporters that the module was told of.
    let named = |part: &Part| {
        world.attached(part.buf).is_some_and(|(buffer, _)| matches!(buffer.kind, Kind::Odd { .. }))
    };
    let stalls = (1..parts.len()).contains(&waiting)
        && world.devices.iter().all(Option::is_none)
        && !parts.iter().any(named);
    let stalled = world.stalled.filter(|_| stalls);
    let stalls = stalled.is_some();
    let stall = Stall::start(world, stalled)?;
    let first = |part: &Part| stalls && waits(part);
    let start = Barrier::new(parts.iter().filter(|part| !first(part)).count());
    let mut results = vec![Moved::default(); parts.len()];
    let (mut waited, mut early) = (false, false);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let places = |wanted| (0..parts.len()).filter(move |place| first(&parts[*place]) == wanted);
        for place in places(true) {
            let (sender, part, (begun, begins)) = (sender.clone(), &parts[place], mpsc::channel());
            scope.spawn(move || {
                let _ = begun.send(rustix::thread::gettid());
                let _ = sender.send((place, part.call()));
            });
            begins.recv().into_iter().for_each(await_blocked);
        }
        for place in places(false) {
            let (sender, start, part) = (sender.clone(), &start, &parts[place]);
            scope.spawn(move || {
                start.wait();
                let _ = sender.send((place, part.call()));
            });
        }
        drop(sender);
        let mut resumed = Ok(());
        for ended in 0..parts.len() {
            if stalls && ended == parts.len() - waiting {
                resumed = stall.end();
            }
            // Those that do not wait for the disk end first.
            let others = ended < parts.len() - waiting;
            let mut next = receiver.recv_timeout(FOR_EVER);
            while let Err(mpsc::RecvTimeoutError::Timeout) = next {
                if stalls && others && !waited {
                    waited = true;
                    resumed = stall.end();
                }
                next = receiver.recv_timeout(FOR_EVER);
            }
            if let Ok((place, moved)) = next {
                // What is in the page cache is read without the disk.
                early |= stalled == Some(Stalled::Files)
                    && others
                    && !waited
                    && first(&parts[place])
                    && moved.done > 0;
                results[place] = moved;
            }
        }
        resumed
    })?;
    if early {
        return Err("WRITE to a file system that is frozen goes on".into());
    }
    if waited { Err("a transfer waits for the disk of another".into()) } else { Ok(results) }
}

/// Runs those of the operations that go together.
pub(crate) fn run(world: &mut World<'_>, ops: &[Op]) -> Outcome {
    let mut chosen: Vec<Part> = Vec::new();
    for part in ops.iter().filter_map(|op| Part::of(world, op)) {
        if !chosen.iter().any(|other| other.collides(&part)) {
            chosen.push(part);
        }
    }
    let results = at_once(world, &chosen)?;
    if chosen.len() > 1 {
        world.machine.did("transfers at the same time");
    }
    for (part, moved) in chosen.iter().zip(results) {
        let name = if part.storing { "READ" } else { "WRITE" };
        let span = part.span;
        part.note(world, moved).map_err(|why| {
            format!(
                "{name} buf={} file={} at={} offset={} length={}: {why}",
                part.buf, span.file, span.at, span.offset, span.length
            )
        })?;
    }
    world.check_buffers()
}
