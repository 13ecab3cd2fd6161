// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memfd of small pages, filled from a staging buffer: memory of the process that the file is
//! read into piece by piece.
//!
//! For the disk to write into small pages directly, each has to be zeroed, mapped and pinned. That
//! costs more CPU time than copying into them, which the kernel does without zeroing them first
//! (docs/notes/performance.md).

use std::os::fd::AsFd;

use io_uring::IoUring;
use rustix::io::Errno as Os;

use super::layout::Layout;
use super::task::{Task, Transferred};
use super::window::{STEP, Window};
use super::{Job, Progress, Stop, plain, ring};
use crate::buffer::shared::Shared;
use crate::errno::{Errno, IntoErrno};
use crate::error::{Error, Result};
use crate::lend::{self, Ring};
use crate::memory::huge;
use crate::memory::page::{huge_page, page_size};
use crate::memory::sizes::PageSizes;

/// Loads the range of a task into a new memfd with a matching layout.
pub(crate) fn load(
    task: &Task<'_>,
    uring: Option<IoUring>,
    buf: &Shared,
    layout: Layout,
) -> Result<Transferred> {
    let end = layout.data_offset + task.length;
    let extent = task.extent_in(layout, layout.buffer);
    let len = extent.len;
    let window = Window::new(task, len, layout.buffer)?;
    let mut stage = Stage { window, buf, end, copied: layout.data_offset };
    let mut edge = |_| -> Result<u64> { unreachable!("a buffer is laid out in whole blocks") };
    let mut moved = if let Some(uring) = uring {
        let mut ring = Ring::new(uring, lend::Memory::process(&stage.window.memory));
        let mut core = |job: &Job<'_>| {
            ring::run(&mut ring, job, &mut stage)?;
            stage.finish(job)
        };
        task.in_parts(extent, &mut core, &mut edge)?
    } else {
        let mut core = |job: &Job<'_>| {
            plain::run(job, &stage.window.memory)?;
            stage.finish(job)
        };
        task.in_parts(extent, &mut core, &mut edge)?
    };
    moved.copied = moved.direct;
    // The kernel may have chosen huge pages anyway.
    if task.options.numa.is_some() || len >= huge_page() && huge::memfds_are_huge() {
        if let Some(mapping) = buf.populated() {
            task.note_pages(&mut moved, &mapping);
        }
    }
    if task.options.reports_pages {
        moved.pages = moved.pages.or(Some(PageSizes { page_size: page_size(), huge_bytes: 0 }));
    }
    if len >= huge_page() {
        moved.notes.push(format!(
            "the CPU copied the data: that costs less than preparing pages of {} KiB for the disk",
            page_size() / 1024
        ));
    }
    Ok(moved)
}

/// The staging buffer: a window with the data being read and not yet copied.
pub(super) struct Stage<'a> {
    pub(super) window: Window,
    pub(super) buf: &'a Shared,
    /// Length of the data wanted in the buffer.
    pub(super) end: u64,
    /// Bytes copied to the buffer so far.
    pub(super) copied: u64,
}

impl Stage<'_> {
    /// Copies everything up to `until`, which has been read.
    fn copy(&mut self, until: u64) -> Result<()> {
        let until = until.min(self.end);
        while self.copied < until {
            let (start, limit) = self.window.place(self.copied);
            let len = until.min(limit) - self.copied;
            match self.window.memory.write_to(start, len, self.buf.as_fd(), self.copied) {
                Ok(0) => return Err(Error::Buffer { call: "write", errno: Errno::IO }),
                Ok(copied) => self.copied += copied,
                Err(Os::INTR) => {}
                // Memory is the only resource that a memfd can lack.
                Err(Os::NOMEM | Os::NOSPC) => {
                    return Err(Error::NoMemory {
                        wanted: self.buf.len(),
                        available: None,
                        reserve: None,
                    });
                }
                Err(errno) => {
                    return Err(Error::Buffer { call: "write", errno: errno.into_errno() });
                }
            }
        }
        Ok(())
    }

    /// Copies the rest of a job that has been read completely.
    pub(super) fn finish(&mut self, job: &Job<'_>) -> Result<(), Stop> {
        while self.copied < self.end {
            if job.watch.is_cancelled() {
                return Err(Stop::Cancelled { done: self.copied });
            }
            self.copy(self.copied + STEP).map_err(Stop::Memory)?;
        }
        Ok(())
    }
}

impl Stage<'_> {
    /// Makes room for the requests up to `end`, or returns `false`. `submit` is called before anything is copied.
    pub(super) fn make_room(
        &mut self,
        end: u64,
        so_far: Progress,
        submit: impl FnOnce(),
    ) -> Result<bool> {
        let in_the_way = end.saturating_sub(self.window.len());
        if in_the_way > so_far.done {
            return Ok(false);
        }
        if in_the_way > self.copied {
            submit();
            self.copy(in_the_way)?;
        }
        Ok(true)
    }

    /// Copies a part of what has been read, likewise.
    pub(super) fn copy_some(&mut self, so_far: Progress, submit: impl FnOnce()) -> Result<()> {
        if so_far.done <= self.copied {
            return Ok(());
        }
        submit();
        self.copy(so_far.done.min(self.copied + STEP))
    }
}

/// Submitting keeps the disk busy. Requests that are not submitted now are submitted later.
impl ring::Buffer for Stage<'_> {
    fn prepare(&mut self, ring: &Ring, end: u64, so_far: Progress) -> Result<bool> {
        self.make_room(end, so_far, || ring.submit_some())
    }

    fn meanwhile(&mut self, ring: &Ring, so_far: Progress) -> Result<()> {
        self.copy_some(so_far, || ring.submit_some())
    }

    fn place(&self, offset: u64) -> (u16, u64, u64) {
        let (at, limit) = self.window.place(offset);
        (0, at, limit)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::ring::Buffer as _;
    use super::*;
    use crate::control::{Control, Watch};
    use crate::direction::Direction;
    use crate::file::{File, Spec};
    use crate::memory::Mapping;
    use crate::options::Options;

    /// Bytes of the window, and of the buffer beyond it.
    const WINDOW: u64 = 8 << 10;
    const LEN: u64 = 20 << 10;

    /// A staging buffer filled with `byte`.
    fn stage(buf: &Shared, byte: u8) -> Stage<'_> {
        let memory = Arc::new(Mapping::anonymous(WINDOW).expect("memory"));
        let window = Window { memory, end: LEN };
        let stage = Stage { window, buf, end: LEN, copied: 0 };
        fill(&stage, byte);
        stage
    }

    /// Fills the stage as a disk would.
    fn fill(stage: &Stage<'_>, byte: u8) {
        stage.window.memory.fill(0, WINDOW, byte).expect("filled");
    }

    /// How many bytes at the start of the buffer are `byte`.
    fn arrived(buf: &Shared, byte: u8) -> usize {
        buf.map()
            .expect("map")
            .to_vec()
            .expect("bytes")
            .iter()
            .take_while(|one| **one == byte)
            .count()
    }

    #[test]
    fn stage_never_overwrites_uncopied_bytes() {
        let buf = Shared::memfd(LEN).expect("a memfd");
        let mut stage = stage(&buf, 1);
        let prepare = |stage: &mut Stage<'_>, end, done| {
            stage.make_room(end, Progress { done, idle: false }, || ()).expect("copied")
        };
        assert!(prepare(&mut stage, WINDOW, 0), "it is empty");
        assert_eq!(arrived(&buf, 1), 0, "and nothing has been read");
        // The next byte goes where the first one is.
        assert!(!prepare(&mut stage, WINDOW + 1, 0), "which is being read");
        assert!(!prepare(&mut stage, WINDOW + 4096, 4095), "a byte of it is");
        assert_eq!(arrived(&buf, 1), 0);
        assert!(prepare(&mut stage, WINDOW + 4096, 4096), "which is there");
        assert_eq!(arrived(&buf, 1), 4096, "and safe before it is read over");
        fill(&stage, 2);
        assert!(prepare(&mut stage, WINDOW + 4096, 4096), "nothing is left to do");
        assert!(prepare(&mut stage, 2 * WINDOW, WINDOW));
        assert_eq!(arrived(&buf, 1), 4096, "what was copied is not copied again");
        assert_eq!(
            buf.map().expect("map").to_vec().expect("bytes")[4096..WINDOW as usize],
            [2; 4096]
        );
    }

    #[test]
    fn completed_bytes_are_copied_during_the_transfer() {
        let buf = Shared::memfd(LEN).expect("a memfd");
        let mut stage = stage(&buf, 3);
        for (done, there) in [(0, 0), (100, 100), (100, 100), (4096, 4096)] {
            stage.copy_some(Progress { done, idle: false }, || ()).expect("copied");
            assert_eq!(arrived(&buf, 3), there);
        }
    }

    #[test]
    fn stage_offsets_wrap_within_the_window() {
        let buf = Shared::memfd(LEN).expect("a memfd");
        let stage = stage(&buf, 0);
        let place = |offset| {
            let (buffer, at, limit) = stage.place(offset);
            assert_eq!(buffer, 0);
            (at, limit)
        };
        assert_eq!(place(0), (0, WINDOW));
        assert_eq!(place(WINDOW - 1), (WINDOW - 1, WINDOW));
        assert_eq!(place(WINDOW), (0, 2 * WINDOW));
        assert_eq!(place(2 * WINDOW + 5), (5, LEN));
    }

    #[test]
    fn staged_load_copies_the_whole_range() {
        for (len, offset, chunk) in [
            (5000, 0, 1 << 20),
            (5000, 100, 1 << 20),
            ((3 << 20) + 5, 4096, 64 << 10),
            ((9 << 20) + 5, 4096, 16 << 20),
        ] {
            let content: Vec<u8> = (0..len).map(|at: u64| (at % 251) as u8).collect();
            let mut source = tempfile::NamedTempFile::new().expect("a file");
            std::io::Write::write_all(&mut source, &content).expect("written");
            let spec = Spec::Path(source.path().to_owned());
            let file = File::open(&spec, Direction::Load, true).expect("open");
            let (block_size, queue_depth) = (Some(chunk), Some(2));
            let options = Options { block_size, queue_depth, ..Options::default() };
            let (direction, length) = (Direction::Load, len - offset);
            let control = Control::default();
            let watch = Watch::start(&control, length);
            let task =
                Task { file: &file, direction, offset, length, options: &options, watch: &watch };
            let layout = task.layout().expect("it fits");
            let buf = Shared::memfd_exact(layout.data_offset + length).expect("a memfd");
            let uring = task.needs_ring(layout.buffer).then(|| lend::create(2, false));
            let Ok(uring) = uring.transpose() else { return println!("skipped: no ring") };
            let moved = load(&task, uring, &buf, layout).expect("loaded");
            let found = buf.map().expect("map").to_vec().expect("bytes");
            let start = layout.data_offset as usize;
            assert!(found[start..] == content[offset as usize..], "{len} bytes from {offset}");
            assert_eq!(moved.copied, moved.direct);
            assert!(!file.is_direct() || moved.direct >= length, "{moved:?}");
            assert!(moved.pages.is_some());
            assert_eq!(moved.notes.is_empty(), len < huge_page(), "{:?}", moved.notes);
        }
    }
}
