// SPDX-License-Identifier: MIT OR Apache-2.0
//! A transfer between a file and a buffer, as passed to a backend.

use std::collections::BTreeMap;

use super::layout::Layout;
use super::{Job, Stop};
use crate::buffer::shared::Shared;
use crate::control::Watch;
use crate::direction::Direction;
use crate::errno::IntoErrno;
use crate::error::Error;
use crate::file::File;
use crate::file::extent::{Extent, Split};
use crate::file::queue::DEFAULT_CHUNK;
use crate::kind::Kind;
use crate::memory::Mapping;
use crate::memory::page::page_size;
use crate::memory::place::on_nodes;
use crate::memory::sizes::PageSizes;
use crate::options::Options;

/// The note if the file could be opened with `O_DIRECT` but not used with it.
pub(crate) const REFUSED_DIRECT: &str = "buffered: the file was opened with O_DIRECT, but the file system \
                              refuses direct I/O on it (EINVAL)";

/// A transfer.
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

/// A backend's facts about its transfer.
#[derive(Debug, Default)]
pub(crate) struct Transferred {
    /// Bytes requested with `O_DIRECT`.
    pub(crate) direct: u64,
    /// Directly read bytes that the CPU then copied: from a staging buffer, or out of whole blocks.
    pub(crate) copied: u64,
    pub(crate) segments: Option<u32>,
    pub(crate) pages: Option<PageSizes>,
    /// Bytes on each NUMA node.
    pub(crate) nodes: Option<BTreeMap<u32, u64>>,
    pub(crate) notes: Vec<String>,
}

impl Transferred {
    /// Adds a partial block, of which `direct` bytes were requested with `O_DIRECT`.
    fn add_edge(&mut self, direct: u64) {
        self.direct += direct;
        self.copied += direct;
    }
}

/// A newly created buffer with its content.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) buf: Shared,
    pub(crate) moved: Transferred,
}

impl Task<'_> {
    pub(crate) fn layout(&self) -> Result<Layout, Error> {
        let layout = match self.options.kind {
            Kind::File => Layout::at_start,
            _ => Layout::new,
        };
        layout(self.offset, self.length, self.file.align.offset)
    }

    /// Whether a layout puts whole blocks of the file into the buffer.
    pub(crate) fn has_whole_blocks(&self, layout: Layout) -> bool {
        !self.file.is_direct() || layout.base % self.file.align.offset == 0
    }

    /// The extent to read into `room` bytes with this layout: whole blocks if the file is direct
    /// and they fit.
    pub(crate) fn extent_in(&self, layout: Layout, room: u64) -> Extent {
        let end = layout.data_offset + self.length;
        let whole = self.file.is_direct() && self.has_whole_blocks(layout) && layout.buffer <= room;
        Extent { file: layout.base, buf: 0, len: if whole { layout.buffer } else { end } }
    }

    /// Notes the pages that new memory has, and the nodes that they are on if those matter.
    pub(crate) fn note_pages(&self, moved: &mut Transferred, mapping: &Mapping) {
        if !self.options.reports_pages {
            return;
        }
        moved.pages = PageSizes::of(mapping);
        let asked = self.options.numa.is_some();
        moved.nodes = asked.then(|| on_nodes(mapping, moved.pages)).flatten();
    }

    /// Whether the range fits into one request, which is over before progress could be reported.
    pub(crate) fn is_one_request(&self) -> bool {
        self.length <= DEFAULT_CHUNK
    }

    /// Bytes per request.
    pub(crate) fn chunk(&self) -> u64 {
        self.options.block_size.unwrap_or_else(|| {
            // For one request it is not worth querying the disk.
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

    /// Whether moving `len` bytes needs a ring and the file supports one: see
    /// [`check_ring`](crate::refusal::check_ring).
    pub(crate) fn needs_ring(&self, len: u64) -> bool {
        len > self.chunk() && !self.file.is_fuse()
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

    /// The error if nothing could be read at `at`. A truncated file may end well before that.
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

    /// The error if the kernel failed the transfer at `offset` in the file.
    pub(crate) fn failed(&self, offset: u64, errno: impl IntoErrno) -> Error {
        Error::Transfer {
            path: self.file.path.clone(),
            direction: self.direction,
            offset,
            done: offset.saturating_sub(self.offset).min(self.length),
            length: self.length,
            errno: errno.into_errno(),
        }
    }

    pub(crate) fn stopped(&self, extent: Extent, stop: Stop) -> Error {
        // A whole last block may have been read.
        let done = |done: u64| (extent.file + done).saturating_sub(self.offset).min(self.length);
        match stop {
            Stop::Failed { offset, errno, done: moved } => Error::Transfer {
                path: self.file.path.clone(),
                direction: self.direction,
                offset,
                done: done(moved),
                length: self.length,
                errno,
            },
            Stop::Refused { errno, done: moved } => Error::Transfer {
                path: self.file.path.clone(),
                direction: self.direction,
                offset: extent.file + moved,
                done: done(moved),
                length: self.length,
                errno,
            },
            Stop::Short { end } if self.direction == Direction::Load => self.short(end),
            // A write returned 0: the kernel would report ENOSPC if it had a reason.
            Stop::Short { end } => self.failed(end, rustix::io::Errno::IO),
            Stop::Cancelled { done: moved } => self.cancelled(done(moved)),
            Stop::Memory(error) => error,
            Stop::Stuck(errno) => {
                let path = self.file.path.clone();
                Error::InFlight { path, direction: self.direction, errno }
            }
        }
    }

    /// How an extent of an existing buffer is split for this file, and why it is transferred
    /// through the page cache, if it is.
    pub(crate) fn split(&self, extent: Extent, notes: &mut Vec<String>) -> (Split, bool) {
        if !self.file.is_direct() {
            return (Split::whole(extent), false);
        }
        let align = self.file.align;
        if let Some(split) = Split::new(extent, align) {
            return (split, true);
        }
        notes.push(format!(
            "buffered: O_DIRECT needs buffer offsets that are multiples of {} where file \
             offsets are multiples of {}, and file offset {} maps to buffer offset {}",
            align.memory, align.offset, extent.file, extent.buf
        ));
        (Split::whole(extent), false)
    }

    /// Moves `extent` in up to three parts: whole blocks with `core`, partial blocks with `edge`,
    /// which returns how many of its bytes it requested with `O_DIRECT`.
    pub(crate) fn in_parts(
        &self,
        extent: Extent,
        core: &mut dyn FnMut(&Job<'_>) -> Result<(), Stop>,
        edge: &mut dyn FnMut(Extent) -> Result<u64, Error>,
    ) -> Result<Transferred, Error> {
        let mut moved = Transferred::default();
        let (split, mut direct) = self.split(extent, &mut moved.notes);
        let mut edge = |part: Extent| {
            if self.watch.is_cancelled() {
                return Err(self.cancelled(part.file.saturating_sub(self.offset)));
            }
            edge(part)
        };
        if let Some(whole) = split.core {
            if let Some(head) = split.head {
                moved.add_edge(edge(head)?);
            }
            let mut result = core(&self.job(whole, direct)?);
            match &result {
                Err(Stop::Failed { errno, done: 0, .. })
                    if direct && errno.raw() == libc::EINVAL =>
                {
                    moved.notes.push(REFUSED_DIRECT.into());
                    direct = false;
                    result = core(&self.job(whole, direct)?);
                }
                _ => {}
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

    pub(crate) fn job(&self, extent: Extent, direct: bool) -> Result<Job<'_>, Error> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use crate::errno::Errno;
    use crate::file::{Alignment, Spec};

    /// Calls `test` with a transfer of `length` bytes from byte `offset` of a direct file with
    /// blocks of 512 bytes.
    fn with_task(direction: Direction, offset: u64, length: u64, test: impl FnOnce(&Task<'_>)) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, [1; 8192]).expect("written");
        let mut file = File::open(&Spec::Path(path), direction, true).expect("a file");
        (file.why_buffered, file.align) = (None, Alignment { offset: 512, memory: 512 });
        let options = Options { block_size: Some(1 << 20), ..Options::default() };
        let control = Control::default();
        let watch = Watch::start(&control, length);
        test(&Task { file: &file, direction, offset, length, options: &options, watch: &watch });
    }

    fn extent(file: u64, buf: u64, len: u64) -> Extent {
        Extent { file, buf, len }
    }

    /// The moved bytes, the partial blocks, and the extent and the block size of each job. The first
    /// job ends with `first`.
    type Parts = (Result<Transferred, Error>, Vec<Extent>, Vec<(Extent, u64)>);

    fn parts(task: &Task<'_>, whole: Extent, first: Option<Stop>) -> Parts {
        let (mut first, mut edges, mut jobs) = (first, Vec::new(), Vec::new());
        let mut core = |job: &Job<'_>| {
            assert_eq!(job.needed_end, task.offset + task.length);
            jobs.push((job.extent, job.block));
            first.take().map_or(Ok(()), Err)
        };
        let mut edge = |part: Extent| {
            edges.push(part);
            Ok(part.len)
        };
        let moved = task.in_parts(whole, &mut core, &mut edge);
        (moved, edges, jobs)
    }

    #[test]
    fn whole_blocks_are_one_job_and_edges_are_copied() {
        let whole = extent(100, 100, 3000);
        let ends = [extent(100, 100, 412), extent(3072, 3072, 28)];
        with_task(Direction::Load, 100, 3000, |task| {
            let (moved, edges, jobs) = parts(task, whole, None);
            let moved = moved.expect("moved");
            assert_eq!((moved.direct, moved.copied), (3000, 440));
            assert_eq!((&edges[..], jobs), (&ends[..], vec![(extent(512, 512, 2560), 512)]));
            assert!(moved.notes.is_empty(), "{:?}", moved.notes);
        });
        // Within a block, and across two.
        for whole in [extent(100, 100, 50), extent(500, 500, 100)] {
            with_task(Direction::Load, whole.file, whole.len, |task| {
                let (moved, edges, jobs) = parts(task, whole, None);
                let moved = moved.expect("moved");
                assert_eq!((moved.direct, moved.copied), (whole.len, whole.len));
                let len: u64 = edges.iter().map(|part| part.len).sum();
                assert_eq!((edges[0].file, len, jobs), (whole.file, whole.len, vec![]));
            });
        }
        // Only the requested bytes count if the last block is read as a whole.
        with_task(Direction::Load, 4096, 1000, |task| {
            let (moved, edges, jobs) = parts(task, extent(4096, 0, 1024), None);
            assert_eq!(moved.expect("moved").direct, 1000);
            assert_eq!((edges, jobs), (vec![], vec![(extent(4096, 0, 1024), 512)]));
        });
    }

    #[test]
    fn unaligned_or_refused_range_is_one_buffered_job() {
        with_task(Direction::Load, 100, 3000, |task| {
            let (moved, edges, jobs) = parts(task, extent(100, 101, 3000), None);
            let moved = moved.expect("moved");
            assert_eq!((moved.direct, edges, jobs), (0, vec![], vec![(extent(100, 101, 3000), 1)]));
            assert!(moved.notes[0].contains("multiples of 512"), "{:?}", moved.notes);

            let core = extent(512, 512, 2560);
            let errno = Errno::from_raw(libc::EINVAL);
            let refused = Stop::Failed { offset: 512, errno, done: 0 };
            let (moved, _, jobs) = parts(task, extent(100, 100, 3000), Some(refused));
            let moved = moved.expect("moved");
            assert_eq!((moved.direct, jobs), (440, vec![(core, 512), (core, 1)]));
            assert_eq!(moved.notes, [REFUSED_DIRECT]);

            // The job is not repeated if bytes were moved, or after another error.
            for (number, done) in [(libc::EINVAL, 512), (libc::EIO, 0)] {
                let errno = Errno::from_raw(number);
                let failed = Stop::Failed { offset: 1024, errno, done };
                let (moved, edges, jobs) = parts(task, extent(100, 100, 3000), Some(failed));
                let Err(Error::Transfer { offset: 1024, done: told, length: 3000, errno, .. }) =
                    moved
                else {
                    panic!("{moved:?}")
                };
                assert_eq!((told, errno.raw()), (512 + done - 100, number));
                assert_eq!((edges.len(), jobs), (1, vec![(core, 512)]));
            }
        });
    }

    #[test]
    fn error_counts_bytes_from_the_start_of_the_range() {
        let errno = Errno::from_raw(libc::EIO);
        let whole = extent(4096, 0, 2048);
        with_task(Direction::Load, 4100, 2000, |task| {
            let refused = task.stopped(whole, Stop::Refused { errno, done: 512 });
            let Error::Transfer { offset: 4608, done: 508, length: 2000, .. } = refused else {
                panic!("{refused:?}")
            };
            let cancelled = task.stopped(whole, Stop::Cancelled { done: 0 });
            let Error::Cancelled { done: 0, length: 2000, .. } = cancelled else {
                panic!("{cancelled:?}")
            };
            let short = task.stopped(whole, Stop::Short { end: 5000 });
            let Error::ShortFile { offset: 4100, end: 5000, done: 900, .. } = short else {
                panic!("{short:?}")
            };
            // The file has 8192 bytes by now, and no more.
            let Error::ShortFile { end: 8192, done: 2000, .. } = task.short(9000) else { panic!() };
            let Error::InFlight { .. } = task.stopped(whole, Stop::Stuck(errno)) else { panic!() };
        });
        with_task(Direction::Save, 4100, 2000, |task| {
            let full = task.stopped(whole, Stop::Short { end: 5000 });
            let Error::Transfer { offset: 5000, done: 900, errno, .. } = full else {
                panic!("{full:?}")
            };
            assert_eq!(errno.raw(), libc::EIO);
        });
    }

    #[test]
    fn cancelled_transfer_moves_no_partial_block() {
        with_task(Direction::Load, 700, 100, |task| {
            let control = Control::default();
            control.cancel.cancel();
            let watch = Watch::start(&control, task.length);
            let task = Task { watch: &watch, ..*task };
            let (moved, edges, jobs) = parts(&task, extent(700, 188, 100), None);
            assert!(matches!(moved, Err(Error::Cancelled { done: 0, length: 100, .. })));
            assert!(edges.is_empty() && jobs.is_empty());
        });
    }

    #[test]
    fn no_more_is_moved_than_was_asked_for() {
        with_task(Direction::Load, 700, 1000, |task| {
            let whole = extent(512, 0, 1536);
            let cancelled = task.stopped(whole, Stop::Cancelled { done: 1536 });
            assert!(matches!(cancelled, Error::Cancelled { done: 1000, length: 1000, .. }));
            let errno = Errno::from_raw(libc::EIO);
            let failed = task.stopped(whole, Stop::Failed { offset: 1536, errno, done: 1536 });
            assert!(matches!(failed, Error::Transfer { done: 1000, .. }));
        });
    }

    #[test]
    fn single_request_needs_no_ring() {
        with_task(Direction::Load, 3 * page_size() + 1, (1 << 20) - 1, |task| {
            assert_eq!((task.chunk(), task.depth()), (1 << 20, 1));
            assert!(!task.needs_ring(1 << 20) && task.needs_ring((1 << 20) + 1));
        });
        with_task(Direction::Load, 3 * page_size() + 1, 1 << 20, |task| {
            assert_eq!(task.depth(), task.file.queue().depth);
            assert!(task.file.queue().depth > 1);
        });
        for (length, is_one) in [(DEFAULT_CHUNK, true), (DEFAULT_CHUNK + 1, false)] {
            with_task(Direction::Load, 0, length, |task| assert_eq!(task.is_one_request(), is_one));
        }
    }

    #[test]
    fn reads_round_up_to_whole_blocks_if_they_fit() {
        with_task(Direction::Load, 700, 1000, |task| {
            let layout = task.layout().expect("it fits");
            let (start, end) = (layout.base, layout.data_offset + 1000);
            assert!(layout.buffer > end, "{layout:?}");
            assert_eq!(task.extent_in(layout, layout.buffer), extent(start, 0, layout.buffer));
            assert_eq!(task.extent_in(layout, layout.buffer - 1), extent(start, 0, end));
        });
    }
}
