// SPDX-License-Identifier: MIT OR Apache-2.0
//! The backends, and what several of them need.

pub(crate) mod buffered;
pub(crate) mod copy_file_range;
pub(crate) mod heap;
pub(crate) mod lending;
pub(crate) mod memfd;
pub(crate) mod module;
pub(crate) mod plain;
pub(crate) mod private;
mod resume;
mod sample;
pub(crate) mod slot;
mod staged;
mod supply;
pub(crate) mod udmabuf;
mod user;
mod watched;

use io_uring::IoUring;

use crate::backend::{Backend, Refusal};
use crate::buf::{DmaBuf, Kind};
use crate::control::Watch;
use crate::error::{Attempt, Direction, Error};
use crate::extent::{Extent, Split};
use crate::file::File;
use crate::memory::{PageSizes, page_size, round_up};
use crate::options::Options;
use crate::queue::DEFAULT_CHUNK;
use crate::uring::{self, Job, Stop};

/// Noted when `O_DIRECT` could be had but not used.
pub(crate) const REFUSED_DIRECT: &str = "buffered: the file was opened with O_DIRECT, but the file system \
                              refuses to move it that way (EINVAL)";

/// What to do where the kernel lacks what only the patch series has.
const SERIES: &str = "boot a kernel with the patch series in kernel/series: \
                      vm/run --kernel 7.3-series boots one";

/// A transfer, as every backend gets it.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) file: &'a File,
    pub(crate) direction: Direction,
    /// Start of the range in the file.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) options: &'a Options,
    pub(crate) watch: &'a Watch<'a>,
}

/// What a backend knows about the transfer it made.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// How many bytes were asked for with `O_DIRECT`.
    pub(crate) direct: u64,
    /// How many of those the CPU copied all the same: from a stage, or out of whole blocks.
    pub(crate) copied: u64,
    pub(crate) segments: Option<u32>,
    pub(crate) pages: Option<PageSizes>,
    pub(crate) notes: Vec<String>,
}

impl Moved {
    /// Adds less than a block, of which so many bytes were asked for with `O_DIRECT`.
    fn add_edge(&mut self, direct: u64) {
        self.direct += direct;
        self.copied += direct;
    }
}

/// A buffer that was made for the content.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) buf: DmaBuf,
    pub(crate) moved: Moved,
}

/// How a range lies in a buffer that is made for it: at an offset that is congruent to the
/// file's, so that direct I/O moves nothing but whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Where in the buffer the range begins.
    pub(crate) data_offset: u64,
    /// Length of the buffer.
    pub(crate) buffer: u64,
    /// Where in the file the buffer begins.
    pub(crate) base: u64,
}

impl Layout {
    pub(crate) fn new(offset: u64, length: u64, file_align: u64) -> Result<Self, Error> {
        let unit = page_size().max(file_align);
        let base = offset / unit * unit;
        let data_offset = offset - base;
        let buffer = data_offset
            .checked_add(length)
            .and_then(|end| round_up(end, unit))
            .filter(|buffer| {
                base.checked_add(*buffer).is_some_and(|end| i64::try_from(end).is_ok())
            })
            .ok_or(Error::RangeOverflow { offset, length })?;
        Ok(Self { data_offset, buffer, base })
    }
}

impl Task<'_> {
    pub(crate) fn layout(&self) -> Result<Layout, Error> {
        Layout::new(self.offset, self.length, self.file.align.offset)
    }

    /// What is read into `room` bytes that are laid out for it: whole blocks, if the file is direct and
    /// they fit.
    pub(crate) fn extent_in(&self, layout: Layout, room: u64) -> Extent {
        let end = layout.data_offset + self.length;
        let whole = self.file.is_direct() && layout.buffer <= room;
        Extent { file: layout.base, buf: 0, len: if whole { layout.buffer } else { end } }
    }

    /// Whether the range fits into a request. It is over then before anyone could look at it.
    pub(crate) fn is_one_request(&self) -> bool {
        self.length <= DEFAULT_CHUNK
    }

    /// Bytes per request.
    pub(crate) fn chunk(&self) -> u64 {
        self.options.block_size.unwrap_or_else(|| {
            // One request is not worth asking the disk for.
            if self.is_one_request() { DEFAULT_CHUNK } else { self.file.queue().chunk }
        })
    }

    /// Requests in flight.
    pub(crate) fn depth(&self) -> u32 {
        self.options.queue_depth.unwrap_or_else(|| {
            let one = self.offset % page_size() + self.length <= self.chunk();
            if one { 1 } else { self.file.queue().depth }
        })
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset + self.length
    }

    pub(crate) fn cancelled(&self, done: u64) -> Error {
        Error::Cancelled {
            path: self.file.path.clone(),
            direction: self.direction,
            done,
            length: self.length,
        }
    }

    /// Nothing could be read at `at`. The file may end long before that, if it was truncated.
    pub(crate) fn short(&self, at: u64) -> Error {
        let end = self.file.end().map_or(at, |end| end.min(at));
        Error::ShortFile {
            path: self.file.path.clone(),
            offset: self.offset,
            length: self.length,
            end,
            done: at.saturating_sub(self.offset).min(self.length),
        }
    }

    /// The kernel failed the transfer at `offset` in the file.
    pub(crate) fn failed(&self, offset: u64, errno: impl Into<crate::Errno>) -> Error {
        Error::Transfer {
            path: self.file.path.clone(),
            direction: self.direction,
            offset,
            done: offset.saturating_sub(self.offset).min(self.length),
            length: self.length,
            errno: errno.into(),
        }
    }

    fn stopped(&self, extent: Extent, stop: Stop) -> Error {
        let done = |done: u64| (extent.file + done).saturating_sub(self.offset);
        match stop {
            Stop::Failed { offset, errno, done: moved } => Error::Transfer {
                path: self.file.path.clone(),
                direction: self.direction,
                offset,
                done: done(moved),
                length: self.length,
                errno,
            },
            Stop::Short { end } if self.direction == Direction::Load => self.short(end),
            // A write that writes nothing: the kernel says ENOSPC where it has a reason.
            Stop::Short { end } => self.failed(end, rustix::io::Errno::IO),
            Stop::Cancelled { done: moved } => self.cancelled(done(moved)),
            Stop::Memory(error) => error,
            Stop::Stuck(errno) => Error::in_flight(self.file, self.direction, errno),
        }
    }

    /// How an extent of an existing buffer is cut for this file, and why it goes buffered if it
    /// does.
    fn split(&self, extent: Extent, notes: &mut Vec<String>) -> (Split, bool) {
        if !self.file.is_direct() {
            return (Split::whole(extent), false);
        }
        let align = self.file.align;
        if let Some(split) = Split::new(extent, align) {
            return (split, true);
        }
        notes.push(format!(
            "buffered: O_DIRECT needs buffer offsets that are multiples of {} where file \
             offsets are multiples of {}, and {} in the file meets {} in the buffer",
            align.memory, align.offset, extent.file, extent.buf
        ));
        (Split::whole(extent), false)
    }

    /// Moves `extent` in up to three parts: whole blocks by `core`, and what is less than a block
    /// by `edge`, which returns how many of its bytes it asked for with `O_DIRECT`.
    pub(crate) fn in_parts(
        &self,
        extent: Extent,
        core: &mut dyn FnMut(&Job<'_>) -> Result<(), Stop>,
        edge: &mut dyn FnMut(Extent) -> Result<u64, Error>,
    ) -> Result<Moved, Error> {
        let mut moved = Moved::default();
        let (split, mut direct) = self.split(extent, &mut moved.notes);
        if let Some(whole) = split.core {
            if let Some(head) = split.head {
                moved.add_edge(edge(head)?);
            }
            let mut result = core(&self.job(whole, direct)?);
            if direct
                && let Err(Stop::Failed { errno, done: 0, .. }) = &result
                && errno.raw() == libc::EINVAL
            {
                moved.notes.push(REFUSED_DIRECT.into());
                direct = false;
                result = core(&self.job(whole, direct)?);
            }
            result.map_err(|stop| self.stopped(whole, stop))?;
            if direct {
                let needed = self.end().max(whole.file) - whole.file;
                moved.direct += whole.len.min(needed);
            }
            if let Some(tail) = split.tail {
                moved.add_edge(edge(tail)?);
            }
        } else {
            for part in split.edges() {
                moved.add_edge(edge(part)?);
            }
        }
        Ok(moved)
    }

    fn job(&self, extent: Extent, direct: bool) -> Result<Job<'_>, Error> {
        Ok(Job {
            file: self.file.with_direct(direct)?,
            direction: self.direction,
            extent,
            needed_end: self.end(),
            block: if direct { self.file.align.offset } else { 1 },
            chunk: self.chunk(),
            depth: self.depth(),
            watch: self.watch,
        })
    }
}

/// Creates the ring of a backend, or refuses in its name.
pub(crate) fn ring(backend: Backend, depth: u32) -> Result<IoUring, Refusal> {
    uring::create(depth, false).map_err(|error| ring_refusal(backend, &error))
}

/// Refuses a ring for files that `io_uring` may get wrong.
///
/// After a short result it goes on by itself. A file of FUSE that is open with `direct_io` and
/// whose server does without `async_dio` is then moved from where the request began, not from where
/// the result ended (Linux 6.12 and 7.3): bytes are in the wrong place, and nothing tells.
pub(crate) fn check_ring(backend: Backend, file: &File) -> Result<(), Refusal> {
    if !file.is_fuse() {
        return Ok(());
    }
    Err(backend
        .refuse("io_uring goes on in the wrong place of a file on FUSE after a short result")
        .remedy("use another backend: --backend module"))
}

/// Explains why there is no ring.
pub(crate) fn ring_refusal(backend: Backend, error: &std::io::Error) -> Refusal {
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let disabled = setting.map_or(0, |text| text.trim().parse().unwrap_or(0));
    let errno = crate::Errno::from(error);
    let refusal = |reason: String, remedy: &str| backend.refuse(reason).errno(errno).remedy(remedy);
    match errno.raw() {
        libc::EPERM if disabled > 0 => refusal(
            format!("io_uring is switched off: kernel.io_uring_disabled = {disabled}"),
            "sudo sysctl kernel.io_uring_disabled=0",
        ),
        libc::EPERM | libc::EACCES => refusal(
            "io_uring is forbidden, by seccomp in a container most likely".into(),
            "allow the io_uring_* system calls: docker run --security-opt seccomp=PROFILE ...",
        ),
        libc::ENOSYS => {
            refusal("this kernel has no io_uring".into(), "boot a kernel with CONFIG_IO_URING=y")
        }
        libc::ENOMEM => refusal(
            format!("io_uring does not get the memory it locks (RLIMIT_MEMLOCK is {})", memlock()),
            "ulimit -l unlimited",
        ),
        _ => refusal(format!("io_uring cannot be set up: {errno}"), "see dmesg"),
    }
}

/// Explains why a backend that works has no use for this file.
fn refuse_file(backend: Backend, task: &Task<'_>, errno: rustix::io::Errno) -> Refusal {
    backend
        .refuse(format!("the kernel does not do it with {}", task.file.path.display()))
        .errno(errno)
        .remedy("move the file to a file system on a disk, or choose another backend")
}

/// The limit on locked memory, for people.
pub(crate) fn memlock() -> String {
    match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        Some(bytes) => format!("{} KiB", bytes / 1024),
        None => "unlimited".into(),
    }
}

/// Loads into a new buffer of that kind.
pub(crate) fn load(backend: Backend, kind: Kind, task: &Task<'_>) -> Result<Fresh, Attempt> {
    if !Backend::for_new(kind).contains(&backend) {
        return Err(backend.refuse_new(kind).into());
    }
    match backend {
        Backend::Module => module::load(task),
        Backend::UringSlot => slot::load(task),
        Backend::Heap => heap::load(task),
        Backend::CopyFileRange => copy_file_range::load(task),
        Backend::Udmabuf => udmabuf::load(task),
        Backend::Memfd => memfd::load(Backend::Memfd, task, memfd::Memory::File),
        Backend::Buffered => buffered::load(task, kind),
        Backend::Private => Err(Backend::Private.refuse_buffer().into()),
    }
}

/// Moves between a file and a range of an existing buffer.
pub(crate) fn transfer(
    backend: Backend,
    task: &Task<'_>,
    buf: &DmaBuf,
    buf_offset: u64,
) -> Result<Moved, Attempt> {
    if !Backend::for_existing(buf.kind()).contains(&backend) {
        return Err(backend.refuse_kind(buf.kind(), task.direction).into());
    }
    let extent = Extent { file: task.offset, buf: buf_offset, len: task.length };
    match backend {
        Backend::Module => module::transfer(task, buf, extent),
        Backend::UringSlot => slot::transfer(task, buf, extent),
        Backend::CopyFileRange => copy_file_range::transfer(task, buf, extent),
        Backend::Memfd => memfd::transfer(task, buf, extent),
        Backend::Buffered => buffered::transfer(task, buf, extent),
        Backend::Heap | Backend::Udmabuf | Backend::Private => {
            Err(backend.refuse_kind(buf.kind(), task.direction).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_congruent_to_the_file() {
        let layout = Layout::new(5000, 100, 512).expect("fits");
        assert_eq!(layout, Layout { data_offset: 904, buffer: 4096, base: 4096 });
        let layout = Layout::new(8192, 4097, 512).expect("fits");
        assert_eq!(layout, Layout { data_offset: 0, buffer: 8192, base: 8192 });
        let layout = Layout::new(70_000, 1, 65536).expect("fits");
        assert_eq!(layout, Layout { data_offset: 4464, buffer: 65536, base: 65536 });
        assert!(Layout::new(u64::MAX - 5, 5, 512).is_err());
        assert!(Layout::new(0, u64::MAX, 512).is_err());
        assert!(Layout::new(i64::MAX as u64, 1, 512).is_err());
    }
}
