// SPDX-License-Identifier: MIT OR Apache-2.0
//! `copy_file_range(2)` between a file and a dma-buf, as added by the patch series.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno as Os;

use super::driver::Driver;
use super::{Backend, Refusal};
use crate::buffer::shared::Shared;
use crate::direction::Direction;
use crate::error::Error;
use crate::file::extent::{Extent, Split};
use crate::kind::Kind;
use crate::memory::page::page_size;
use crate::probe::sample::Sample;
use crate::refusal::attempt::Attempt;
use crate::refusal::{self, SERIES};
use crate::transfer::system_heap;
use crate::transfer::task::{Fresh, REFUSED_DIRECT, Task, Transferred};

pub(crate) struct CopyFileRange;

impl Driver for CopyFileRange {
    fn backend(&self) -> Backend {
        Backend::CopyFileRange
    }

    /// Loads into a new buffer of the system heap.
    fn load(&self, task: &Task<'_>, _: Kind) -> Result<Fresh, Attempt> {
        // Checked first, so that a refusal costs no allocation.
        available(task)?;
        let layout = task.layout()?;
        let buf = system_heap::alloc_for(task, Backend::CopyFileRange, layout.buffer)?;
        let extent = Extent { file: task.offset, buf: layout.data_offset, len: task.length };
        let moved = self.transfer(task, &buf, extent)?;
        Ok(Fresh { buf, moved })
    }

    /// Transfers between a file and a range of an existing buffer.
    fn transfer(
        &self,
        task: &Task<'_>,
        buf: &Shared,
        extent: Extent,
    ) -> Result<Transferred, Attempt> {
        if task.direction == Direction::Load && !buf.is_writable() {
            return Err(Error::ReadOnlyBuffer.into());
        }
        let mut moved = Transferred::default();
        let (split, mut direct) = task.split(extent, &mut moved.notes);
        let mut pace = Pace::new(task.options.block_size);
        let mut at = 0;
        while at < extent.len {
            if task.watch.is_cancelled() {
                return Err(task.cancelled(at).into());
            }
            let part = pace.next(extent, at);
            let file = task.file.with_direct(direct)?;
            let start = Instant::now();
            match copy(task.direction, file, buf, part) {
                Ok(0) => return Err(ended(task, part.file).into()),
                Ok(bytes) => {
                    pace.took(start.elapsed());
                    at += bytes;
                    task.watch.add(bytes);
                }
                Err(Os::INTR) => {}
                Err(Os::INVAL) if direct => {
                    moved.notes.push(REFUSED_DIRECT.into());
                    direct = false;
                }
                Err(errno) if at == 0 && is_unavailable(errno) => {
                    return Err(refuse(task, buf, errno).into());
                }
                Err(errno) => return Err(task.failed(part.file, errno).into()),
            }
        }
        if direct {
            moved.direct = asked_directly(task.direction, extent, &split);
        }
        Ok(moved)
    }

    fn try_out(&self) -> Result<String, Attempt> {
        try_out()?;
        Ok("loads into a dma-buf of the system heap, and between files and dma-bufs".into())
    }
}

/// Checks that the kernel copies between the file and a dma-buf.
fn available(task: &Task<'_>) -> Result<(), Attempt> {
    let buf = system_heap::alloc(Backend::CopyFileRange, page_size())?;
    copies_nothing(task.file.fd(), &buf).map_err(|errno| refuse(task, &buf, errno).into())
}

fn copy(
    direction: Direction,
    file: BorrowedFd<'_>,
    buf: &Shared,
    part: Extent,
) -> rustix::io::Result<u64> {
    // The kernel refuses longer ranges, which only 32-bit programs can ask for.
    let len = part.len.min(isize::MAX as u64) as usize;
    let (mut in_file, mut in_buf) = (part.file, part.buf);
    let copied = match direction {
        Direction::Load => {
            rustix::fs::copy_file_range(file, Some(&mut in_file), buf, Some(&mut in_buf), len)
        }
        Direction::Save => {
            rustix::fs::copy_file_range(buf, Some(&mut in_buf), file, Some(&mut in_file), len)
        }
    };
    copied.map(|bytes| bytes as u64)
}

/// The error if nothing more can be moved at `offset` in the file.
fn ended(task: &Task<'_>, offset: u64) -> Error {
    match task.direction {
        Direction::Load => task.short(offset),
        Direction::Save => task.failed(offset, Os::IO),
    }
}

/// Bytes that the kernel moves with `O_DIRECT`. It reads whole blocks; when writing, partial blocks
/// go through the page cache.
fn asked_directly(direction: Direction, extent: Extent, split: &Split) -> u64 {
    match direction {
        Direction::Load => extent.len,
        Direction::Save => split.core.map_or(0, |core| core.len),
    }
}

/// Adapts the size of each call, so that progress and cancellation stay responsive.
#[derive(Debug)]
struct Pace {
    size: u64,
    fixed: bool,
}

impl Pace {
    const LEAST: u64 = 1 << 20;
    const START: u64 = 16 << 20;
    const MOST: u64 = 64 << 20;
    /// Duration of a call above which the calls are made smaller.
    const LONG: Duration = Duration::from_millis(100);

    fn new(chunk: Option<u64>) -> Self {
        Self { size: chunk.unwrap_or(Self::START), fixed: chunk.is_some() }
    }

    /// The part of `extent` for the call that starts `at` bytes into it. Calls end at multiples of
    /// their size in the file, so only the last one can end within a block.
    fn next(&self, extent: Extent, at: u64) -> Extent {
        let file = extent.file + at;
        let len = (self.size - file % self.size).min(extent.len - at);
        Extent { file, buf: extent.buf + at, len }
    }

    fn took(&mut self, time: Duration) {
        if self.fixed {
            return;
        }
        if time > Self::LONG {
            self.size = (self.size / 2).max(Self::LEAST);
        } else if time < Self::LONG / 4 {
            self.size = (self.size * 2).min(Self::MOST);
        }
    }
}

/// Whether an error number means that the kernel, not the input, is at fault.
fn is_unavailable(errno: Os) -> bool {
    matches!(errno, Os::INVAL | Os::XDEV | Os::OPNOTSUPP | Os::NOSYS | Os::PERM)
}

/// Why the kernel does not copy between the file and the buffer: because of the exporter, the
/// kernel or, if another file works, this file.
fn refuse(task: &Task<'_>, buf: &Shared, errno: Os) -> Refusal {
    if errno == Os::OPNOTSUPP {
        return refuse_exporter(buf);
    }
    let takes_another = Sample::open(Backend::CopyFileRange)
        .is_ok_and(|sample| copies_nothing(sample.fd.as_fd(), buf).is_ok());
    if takes_another {
        refusal::file(Backend::CopyFileRange, task, errno)
    } else {
        refuse_pair(errno)
    }
}

/// Copies zero bytes at the end of the file. Unsupported files and buffers fail here too.
fn copies_nothing(file: BorrowedFd<'_>, buf: &Shared) -> rustix::io::Result<()> {
    let end = crate::file::end_of(file)?;
    copy(Direction::Load, file, buf, Extent { file: end, buf: 0, len: 1 }).map(|_| ())
}

fn refuse_exporter(buf: &Shared) -> Refusal {
    let exporter = buf.exporter().unwrap_or_else(|| "unknown".into());
    Backend::CopyFileRange
        .refuse(format!("the buffer's exporter, {exporter}, does not lend its pages"))
        .errno(Os::OPNOTSUPP)
        .remedy("use a buffer of the system heap, a CMA heap or udmabuf")
}

/// Copies the start of a file that every process has.
fn try_out() -> Result<(), Attempt> {
    let sample = Sample::open(Backend::CopyFileRange)?;
    let len = sample.content.len() as u64;
    let buf = system_heap::alloc(Backend::CopyFileRange, len)?;
    let mut at = 0;
    while at < len {
        let part = Extent { file: at, buf: at, len: len - at };
        match copy(Direction::Load, sample.fd.as_fd(), &buf, part) {
            Ok(0) => break,
            Ok(bytes) => at += bytes,
            Err(Os::INTR) => {}
            Err(Os::OPNOTSUPP) => return Err(refuse_exporter(&buf).into()),
            Err(errno) => return Err(refuse_pair(errno).into()),
        }
    }
    if sample.is_in(&buf)? { Ok(()) } else { Err(refuse_pair(Os::IO).into()) }
}

fn refuse_pair(errno: Os) -> Refusal {
    let refusal = match errno {
        Os::INVAL | Os::XDEV => Backend::CopyFileRange
            .refuse("this kernel cannot copy a file into a dma-buf")
            .remedy(SERIES),
        Os::NOSYS | Os::PERM => Backend::CopyFileRange
            .refuse("copy_file_range is forbidden, most likely by seccomp in a container")
            .remedy("allow the container the system call copy_file_range"),
        _ => Backend::CopyFileRange
            .refuse("copying a page into a dma-buf failed")
            .remedy("see dmesg for details"),
    };
    refusal.errno(errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::IntoErrno as _;

    const MIB: u64 = 1 << 20;

    #[test]
    fn calls_end_at_multiples_of_their_size() {
        let extent = Extent { file: 5000, buf: 904, len: 10_000 };
        let pace = Pace::new(Some(4096));
        let mut parts = Vec::new();
        let mut at = 0;
        while at < extent.len {
            let part = pace.next(extent, at);
            assert_eq!(part.file - extent.file, part.buf - extent.buf);
            at += part.len;
            parts.push((part.file, part.len));
        }
        assert_eq!(parts, [(5000, 3192), (8192, 4096), (12_288, 2712)]);
    }

    #[test]
    fn call_size_grows_within_the_time_limit() {
        let mut pace = Pace::new(None);
        pace.took(Duration::from_millis(1));
        assert_eq!(pace.size, 32 * MIB);
        for _ in 0..10 {
            pace.took(Duration::from_millis(1));
        }
        assert_eq!(pace.size, Pace::MOST);
        pace.took(Duration::from_millis(50));
        assert_eq!(pace.size, Pace::MOST);
        for _ in 0..10 {
            pace.took(Duration::from_secs(1));
        }
        assert_eq!(pace.size, Pace::LEAST);
        let mut fixed = Pace::new(Some(8192));
        fixed.took(Duration::from_secs(1));
        assert_eq!(fixed.size, 8192);
    }

    #[test]
    fn only_missing_features_suggest_another_kernel() {
        for (errno, missing) in
            [(Os::INVAL, true), (Os::XDEV, true), (Os::NOSYS, false), (Os::IO, false)]
        {
            let refusal = refuse_pair(errno);
            assert_eq!(refusal.errno, Some(errno.into_errno()));
            assert_eq!(refusal.remedy.as_deref() == Some(SERIES), missing, "{refusal:?}");
        }
    }

    /// A duplicated descriptor shares its position with the caller's.
    #[test]
    fn finding_the_end_keeps_the_file_position() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(5000).expect("its length");
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(7)).expect("moved");
        let buf = Shared::memfd(4096).expect("a memfd");
        let _ = copies_nothing(file.as_fd(), &buf);
        assert_eq!(rustix::fs::tell(&file), Ok(7));
    }

    #[test]
    fn edges_of_a_save_are_not_direct() {
        let extent = Extent { file: 100, buf: 100, len: 9000 };
        let align = crate::file::Alignment { offset: 512, memory: 4 };
        let split = Split::new(extent, align).expect("congruent");
        assert_eq!(asked_directly(Direction::Load, extent, &split), 9000);
        assert_eq!(asked_directly(Direction::Save, extent, &split), 8192);
    }
}
