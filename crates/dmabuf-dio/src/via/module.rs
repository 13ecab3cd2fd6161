// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module's ioctls.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use dmabuf_dio_sys::dio::{self, Attach, Info, Load, ReadWrite};
use rustix::fs::OFlags;
use rustix::io::Errno as Os;

use super::watched::watched;
use super::{Fresh, Moved, Task, resume};
use crate::backend::{Backend, NotLent, Refusal};
use crate::buf::DmaBuf;
use crate::error::{Attempt, Direction, Error};
use crate::extent::Extent;
use crate::file::File;
use crate::node::Node;

const NODE: Node = Node {
    path: dio::DEVICE,
    access: "rw",
    missing: ": the kernel module is not loaded",
    remedy: "sudo modprobe dmabuf_dio, or sudo make dkms in the source to install it",
};

/// An open file of the module's device, for one transfer: once it is cancelled it is of no use.
/// (A [`Gathering`](crate::gather::Gathering) keeps one for many, and cancels none.)
#[derive(Debug)]
pub(crate) struct Context {
    fd: OwnedFd,
    pub(crate) info: Info,
}

impl Context {
    /// Opens the device in the name of `backend`.
    pub(crate) fn open(backend: Backend) -> Result<Self, Refusal> {
        let fd = dio::open().map_err(|errno| NODE.refuse(backend, errno))?;
        let info = dio::info(fd.as_fd()).map_err(|errno| {
            backend
                .refuse(format!("{} does not answer as the module does", dio::DEVICE))
                .errno(errno)
                .remedy("build and load the module that belongs to this release")
        })?;
        Ok(Self { fd, info })
    }

    /// Attaches a buffer; a kind of buffer that the module does not borrow is refused.
    pub(crate) fn attach(&self, backend: Backend, buf: &DmaBuf) -> Result<Attach, Attempt> {
        let mut attach = Attach::default();
        let attached =
            rustix::io::retry_on_intr(|| dio::attach(self.fd.as_fd(), buf.as_fd(), &mut attach));
        match attached {
            Ok(()) => Ok(attach),
            Err(errno @ Os::NOMEM) => {
                Err(Error::Buffer { call: "attach", errno: errno.into() }.into())
            }
            Err(errno) => Err(refuse_buffer(backend, buf, errno, attach.refusal).into()),
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Makes a call that blocks, and meanwhile reports how far it is and ends it when asked to.
    fn watched<T: Send>(
        &self,
        task: &Task<'_>,
        call: impl FnOnce(BorrowedFd<'_>) -> T + Send,
    ) -> Result<T, Error> {
        if task.is_one_request() {
            return Ok(call(self.as_fd()));
        }
        let watch = task.watch;
        let before = moved(self.as_fd()).unwrap_or(0);
        let look = || {
            if let Some(now) = moved(self.as_fd()) {
                watch.set(now.saturating_sub(before));
            }
            if watch.is_cancelled() {
                let _ = dio::cancel(self.as_fd());
            }
        };
        watched(|| call(self.as_fd()), look)
    }

    /// Moves an extent of the attached buffer, whatever signals come meanwhile. What it returns
    /// counts from the start of the extent.
    pub(crate) fn transfer(
        &self,
        task: &Task<'_>,
        file: &File,
        extent: Extent,
    ) -> Result<ReadWrite, (Os, ReadWrite)> {
        let rw = ReadWrite {
            file_fd: file.fd().as_raw_fd(),
            file_offset: extent.file,
            buf_offset: extent.buf,
            length: extent.len,
            chunk: self.chunk(task),
            depth: self.depth(task),
            ..ReadWrite::default()
        };
        resume::read_write(
            rw,
            || task.watch.is_cancelled(),
            |part| match task.direction {
                Direction::Load => dio::read(self.as_fd(), part),
                Direction::Save => dio::write(self.as_fd(), part),
            },
        )
    }

    fn chunk(&self, task: &Task<'_>) -> u64 {
        task.options.block_size.map_or(0, |chunk| chunk.min(self.info.max_chunk))
    }

    fn depth(&self, task: &Task<'_>) -> u32 {
        task.options.queue_depth.map_or(0, |depth| depth.min(self.info.max_depth))
    }
}

/// Bytes that were moved through a context so far.
fn moved(context: BorrowedFd<'_>) -> Option<u64> {
    let path = format!("/proc/self/fdinfo/{}", context.as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix("moved:")?.trim().parse().ok())
}

/// Why a buffer cannot be attached.
fn refuse_buffer(backend: Backend, buf: &DmaBuf, errno: Os, refusal: u32) -> Refusal {
    let exporter = buf.exporter().unwrap_or_else(|| "unknown".into());
    let refusal = match NotLent::from_number(refusal) {
        Some(not_lent) if errno == Os::OPNOTSUPP => not_lent.refuse(backend, &exporter),
        _ => backend
            .refuse(format!("the buffer, of exporter {exporter}, cannot be attached"))
            .remedy("use a buffer in system memory, from /dev/dma_heap/system say"),
    };
    refusal.errno(errno)
}

/// The numbers that say that the module, not the input, is at fault.
fn is_unavailable(errno: Os) -> bool {
    matches!(errno, Os::NOTTY | Os::NOSYS | Os::TOOBIG)
}

fn refuse_call(errno: Os) -> Attempt {
    Backend::Module
        .refuse("the module does not take the call")
        .errno(errno)
        .remedy("build and load the module that belongs to this release")
        .into()
}

fn alignment_note(task: &Task<'_>, align: u32) -> String {
    format!(
        "buffered: O_DIRECT needs offsets in file and buffer that are congruent modulo {align}, \
         and those at {} are not",
        task.offset
    )
}

/// Allocates a buffer and loads into it in one call.
pub(crate) fn load(task: &Task<'_>) -> Result<Fresh, Attempt> {
    let context = Context::open(Backend::Module)?;
    if task.watch.is_cancelled() {
        return Err(task.cancelled(0).into());
    }
    let mut notes = Vec::new();
    let layout = task.layout()?;
    let mut request = Load {
        file_fd: task.file.fd().as_raw_fd(),
        fd_flags: (OFlags::RDWR | OFlags::CLOEXEC).bits(),
        file_offset: layout.base,
        length: layout.data_offset + task.length,
        chunk: context.chunk(task),
        depth: context.depth(task),
        gather: task.options.allocation_step.unwrap_or(0),
        ..Load::default()
    };
    let is_cancelled = || task.watch.is_cancelled();
    let call = |request: &mut Load| {
        context.watched(task, |context| {
            resume::load(request, is_cancelled, |request| dio::load(context, request))
        })
    };
    let mut result = call(&mut request)?;
    if matches!(result, Err(Os::INVAL)) && request.align != 0 && task.file.is_direct() {
        notes.push(alignment_note(task, request.align));
        request.file_fd = task.file.buffered()?.as_raw_fd();
        result = call(&mut request)?;
    }
    let fd = match result {
        Ok(fd) => fd,
        Err(errno) if is_unavailable(errno) => return Err(refuse_call(errno)),
        Err(Os::NOMEM) => {
            return Err(Error::NoMemory { wanted: layout.buffer, available: None }.into());
        }
        Err(errno) => {
            let done = request.done.saturating_sub(layout.data_offset);
            return Err(explain(task, errno, done, 0).into());
        }
    };
    task.watch.set(task.length);
    let mut buf = DmaBuf::from_parts(fd, request.buf_length);
    if layout.data_offset > 0 {
        // These bytes came along with the first page of the range.
        let mut view = buf.map_mut()?;
        view.fill_at(0, layout.data_offset, 0)?;
        view.finish()?;
    }
    let moved = Moved {
        direct: request.direct.min(task.length),
        segments: Some(request.segments),
        notes,
        ..Moved::default()
    };
    Ok(Fresh { buf, moved })
}

/// Moves between a file and a range of an existing buffer.
pub(crate) fn transfer(task: &Task<'_>, buf: &DmaBuf, extent: Extent) -> Result<Moved, Attempt> {
    let context = Context::open(Backend::Module)?;
    if task.direction == Direction::Load && !buf.is_writable() {
        return Err(Error::ReadOnlyBuffer.into());
    }
    let attached = context.attach(Backend::Module, buf)?;
    if task.watch.is_cancelled() {
        return Err(task.cancelled(0).into());
    }
    let mut moved = Moved { segments: Some(attached.segments), ..Moved::default() };
    let call = |file: &File| context.watched(task, |_| context.transfer(task, file, extent));
    let mut result = call(task.file)?;
    if let Err((Os::INVAL, rw)) = &result
        && rw.align != 0
        && task.file.is_direct()
    {
        let note = alignment_note(task, rw.align);
        result = call(&task.file.without_direct(note.clone())?)?;
        moved.notes.push(note);
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
        Err((errno, _)) if is_unavailable(errno) => Err(refuse_call(errno)),
        Err((errno, rw)) => Err(explain(task, errno, rw.done, rw.refusal).into()),
    }
}

/// The error of a call that the module began. A refusal of the buffer is an error here as well:
/// some of it may have been moved, and other backends would lose what the module does not.
pub(crate) fn explain(task: &Task<'_>, errno: Os, done: u64, refusal: u32) -> Error {
    match errno {
        Os::BUSY if NotLent::from_number(refusal) == Some(NotLent::Unsynced) => Error::Unsynced {
            path: task.file.path.clone(),
            direction: task.direction,
            done,
            length: task.length,
        },
        Os::CANCELED | Os::INTR => task.cancelled(done),
        Os::NODATA => task.short(task.offset + done),
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
    fn a_buffer_that_is_not_lent_says_why() {
        let buf = DmaBuf::memfd(4096).expect("memfd");
        let refused = |errno, number| refuse_buffer(Backend::Module, &buf, errno, number);
        let refusal = refused(Os::OPNOTSUPP, dio::REFUSED_EXPORTER);
        assert_eq!(refusal.not_lent, Some(NotLent::Exporter));
        assert_eq!(refusal.errno, Some(Os::OPNOTSUPP.into()));
        assert!(refusal.reason.contains("does not borrow from exporter memfd"), "{refusal}");
        // A module of before, or one from later, or quite another error.
        for (errno, number) in [(Os::OPNOTSUPP, 0), (Os::OPNOTSUPP, 99), (Os::INVAL, 1)] {
            let refusal = refused(errno, number);
            assert_eq!((refusal.not_lent, refusal.errno), (None, Some(errno.into())));
            assert!(refusal.remedy.is_some());
        }
    }

    #[test]
    fn a_transfer_that_would_lose_bytes_is_an_error() {
        let file = File::open(&Spec::Path("/proc/self/exe".into()), Direction::Load, false);
        let (file, options, control) =
            (file.expect("a file"), Options::default(), Control::default());
        let watch = Watch::start(&control, 100);
        for direction in [Direction::Load, Direction::Save] {
            let (offset, length) = (50, 100);
            let task =
                Task { file: &file, direction, offset, length, options: &options, watch: &watch };
            let error = explain(&task, Os::BUSY, 60, dio::REFUSED_UNSYNCED);
            match &error {
                Error::Unsynced { direction: way, done: 60, length: 100, .. } => {
                    assert_eq!(*way, direction);
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(error.errno(), Some(Os::BUSY.into()));
            let verb = if direction == Direction::Load { "load" } else { "save" };
            let hint = error.hint();
            assert!(hint.starts_with(&format!("{verb} before the device attaches")), "{hint}");
            let other = explain(&task, Os::BUSY, 60, 0);
            assert!(matches!(other, Error::Transfer { offset: 110, done: 60, .. }), "{other}");
        }
    }
}
