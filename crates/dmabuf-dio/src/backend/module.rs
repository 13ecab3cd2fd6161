// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module's ioctls.

use std::os::fd::AsRawFd as _;

use dmabuf_dio_sys::dio::Load;
use rustix::fs::OFlags;

use super::Backend;
use super::driver::{Driver, Reach};
use crate::buffer::shared::Shared;
use crate::direction::Direction;
use crate::errno::Errno;
use crate::error::Error;
use crate::file::File;
use crate::file::extent::Extent;
use crate::kind::Kind;
use crate::lend::{self, Attached, Context, LendError, MoveError, NotLent};
use crate::memory::{available, place};
use crate::refusal;
use crate::refusal::attempt::Attempt;
use crate::threads;
use crate::transfer::task::{Fresh, Task, Transferred};

pub(crate) struct Module;

impl Driver for Module {
    fn backend(&self) -> Backend {
        Backend::Module
    }

    /// Allocates a buffer and loads into it in one call.
    fn load(&self, task: &Task<'_>, _: Kind) -> Result<Fresh, Attempt> {
        let context = Context::open().map_err(refused)?;
        if task.watch.is_cancelled() {
            return Err(task.cancelled(0).into());
        }
        let mut notes = Vec::new();
        let layout = task.layout()?;
        let (chunk, depth) = requests(task, &context);
        let mut request = Load {
            file_fd: task.file.fd().as_raw_fd(),
            fd_flags: (OFlags::RDWR | OFlags::CLOEXEC).bits(),
            file_offset: layout.base,
            length: layout.data_offset + task.length,
            chunk,
            depth,
            gather: task.options.allocation_step.unwrap_or(0),
            ..Load::default()
        };
        let is_cancelled = || task.watch.is_cancelled();
        let place = task.options.place(layout.buffer)?;
        let call = |request: &mut Load| -> Result<_, Error> {
            let load = || context.load(request, is_cancelled);
            watched(task, &context, || place::during(place.as_ref(), load))?
        };
        let mut result = call(&mut request)?;
        if matches!(result, Err(Errno::INVAL)) && request.align != 0 && task.file.is_direct() {
            notes.push(alignment_note(task, request.align));
            request.file_fd = task.file.buffered()?.as_raw_fd();
            result = call(&mut request)?;
        }
        let fd = match result {
            Ok(fd) => fd,
            Err(errno) if is_unavailable(errno) => {
                return Err(refusal::call(Backend::Module, errno).into());
            }
            Err(Errno::NOMEM) => {
                let (available, reserve) = (available::for_the_kernel(), refusal::reserve());
                return Err(Error::NoMemory { wanted: layout.buffer, available, reserve }.into());
            }
            Err(errno) => {
                let done = request.done.saturating_sub(layout.data_offset);
                return Err(explain(task, errno, done, None).into());
            }
        };
        task.watch.set(task.length);
        let mut buf = Shared::from_parts(fd, request.buf_length);
        layout.zero_before(&mut buf)?;
        let moved = Transferred {
            direct: request.direct.min(task.length),
            segments: Some(request.segments),
            notes,
            ..Transferred::default()
        };
        Ok(Fresh { buf, moved })
    }

    /// Transfers between a file and a range of an existing buffer.
    fn transfer(
        &self,
        task: &Task<'_>,
        buf: &Shared,
        extent: Extent,
    ) -> Result<Transferred, Attempt> {
        let context = Context::open().map_err(refused)?;
        if task.direction == Direction::Load && !buf.is_writable() {
            return Err(Error::ReadOnlyBuffer.into());
        }
        let attached = context.attach(buf).map_err(refused)?;
        if task.watch.is_cancelled() {
            return Err(task.cancelled(0).into());
        }
        let mut moved =
            Transferred { segments: Some(attached.segments()), ..Transferred::default() };
        let call = |file: &File| {
            watched(task, attached.context(), || transfer_extent(task, &attached, file, extent))
        };
        let mut result = call(task.file)?;
        match result {
            Err(MoveError { align: Some(align), .. }) if task.file.is_direct() => {
                let note = alignment_note(task, align);
                result = call(&task.file.without_direct(note.clone())?)?;
                moved.notes.push(note);
            }
            _ => {}
        }
        match result {
            Ok(rw) if rw.done < extent.len && task.direction == Direction::Load => {
                Err(task.short(task.offset + rw.done).into())
            }
            Ok(rw) => {
                task.watch.set(rw.done);
                moved.direct = rw.direct;
                Ok(moved)
            }
            Err(error) if is_unavailable(error.errno) => {
                Err(refusal::call(Backend::Module, error.errno).into())
            }
            Err(MoveError { errno, moved, not_lent, .. }) => {
                Err(explain(task, errno, moved.done, not_lent).into())
            }
        }
    }

    fn reach(&self, buf: &Shared) -> Result<Reach, Attempt> {
        let attached = Attached::of(buf);
        attached.map(Reach::Ioctl).map_err(refused)
    }

    fn try_out(&self) -> Result<String, Attempt> {
        let context = Context::open().map_err(refused)?;
        let info = context.info();
        Ok(format!(
            "loads into a dma-buf by ioctl: requests of {} KiB, {} in flight, the first when {} \
             MiB are allocated",
            info.default_chunk >> 10,
            info.default_depth,
            info.default_gather >> 20
        ))
    }
}

fn alignment_note(task: &Task<'_>, align: u32) -> String {
    format!(
        "buffered: O_DIRECT needs offsets in file and buffer that are congruent modulo {align}, \
         and those at {} are not",
        task.offset
    )
}

/// Makes a blocking call. Meanwhile it reports progress, and cancels the call on request.
fn watched<T: Send>(
    task: &Task<'_>,
    context: &Context,
    call: impl FnOnce() -> T + Send,
) -> Result<T, Error> {
    if task.is_one_request() {
        return Ok(call());
    }
    let before = context.moved().unwrap_or(0);
    let look = || {
        if let Some(now) = context.moved() {
            task.watch.set(now.saturating_sub(before));
        }
        if task.watch.is_cancelled() {
            context.cancel();
        }
    };
    threads::watched(call, look)
}

/// Bytes per request and requests in flight; 0 for the module's defaults.
fn requests(task: &Task<'_>, context: &Context) -> (u64, u32) {
    let info = context.info();
    let chunk = task.options.block_size.map_or(0, |chunk| chunk.min(info.max_chunk));
    let depth = task.options.queue_depth.map_or(0, |depth| depth.min(info.max_depth));
    (chunk, depth)
}

/// Transfers an extent of the attached buffer, across signals.
pub(super) fn transfer_extent(
    task: &Task<'_>,
    attached: &Attached,
    file: &File,
    extent: Extent,
) -> Result<lend::Moved, MoveError> {
    let requests = requests(task, attached.context());
    let is_cancelled = || task.watch.is_cancelled();
    attached.transfer_with(task.direction, file.fd(), extent, requests, is_cancelled)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn refused(error: LendError) -> Attempt {
    refusal::lending(Backend::Module, &error)
}

/// Whether an error number means that the module, not the input, is at fault.
fn is_unavailable(errno: Errno) -> bool {
    matches!(errno.raw(), libc::ENOTTY | libc::ENOSYS | libc::E2BIG)
}

/// Interprets the error of a call that the module has begun. A refused buffer is an error here too:
/// part of the data may have been moved, and other backends would lose data where the module
/// refuses.
pub(super) fn explain(
    task: &Task<'_>,
    errno: Errno,
    done: u64,
    not_lent: Option<NotLent>,
) -> Error {
    match errno.raw() {
        libc::EBUSY if not_lent == Some(NotLent::Unsynced) => Error::Unsynced {
            path: task.file.path.clone(),
            direction: task.direction,
            done,
            length: task.length,
        },
        libc::ECANCELED | libc::EINTR => task.cancelled(done),
        libc::ENODATA => task.short(task.offset + done),
        _ => task.failed(task.offset + done, errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Control, Watch};
    use crate::file::Spec;
    use crate::options::Options;

    #[test]
    fn unsynced_transfer_fails_before_losing_bytes() {
        let file = File::open(&Spec::Path("/proc/self/exe".into()), Direction::Load, false);
        let (file, options, control) =
            (file.expect("a file"), Options::default(), Control::default());
        let watch = Watch::start(&control, 100);
        for direction in [Direction::Load, Direction::Save] {
            let (offset, length) = (50, 100);
            let task =
                Task { file: &file, direction, offset, length, options: &options, watch: &watch };
            let error = explain(&task, Errno::BUSY, 60, Some(NotLent::Unsynced));
            match &error {
                Error::Unsynced { direction: way, done: 60, length: 100, .. } => {
                    assert_eq!(*way, direction);
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(error.errno(), Some(Errno::BUSY));
            let verb = if direction == Direction::Load { "load" } else { "save" };
            let hint = error.hint().to_string();
            assert!(hint.starts_with(&format!("{verb} before the device attaches")), "{hint}");
            let other = explain(&task, Errno::BUSY, 60, None);
            assert!(matches!(other, Error::Transfer { offset: 110, done: 60, .. }), "{other}");
        }
    }
}
