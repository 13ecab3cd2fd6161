// SPDX-License-Identifier: MIT OR Apache-2.0
//! A transfer between a file and a buffer, as passed to a backend.

use super::layout::Layout;
use super::{Job, Stop};
use crate::buf::DmaBuf;
use crate::control::Watch;
use crate::direction::Direction;
use crate::errno::IntoErrno;
use crate::error::Error;
use crate::file::File;
use crate::file::extent::{Extent, Split};
use crate::file::queue::DEFAULT_CHUNK;
use crate::memory::page::page_size;
use crate::memory::sizes::PageSizes;
use crate::options::{Options, Wanted};

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

/// What a backend knows about its transfer.
#[derive(Debug, Default)]
pub(crate) struct Transferred {
    /// Bytes requested with `O_DIRECT`.
    pub(crate) direct: u64,
    /// How many of those the CPU copied: from a staging buffer, or out of whole blocks.
    pub(crate) copied: u64,
    pub(crate) segments: Option<u32>,
    pub(crate) pages: Option<PageSizes>,
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
    pub(crate) buf: DmaBuf,
    pub(crate) moved: Transferred,
}

impl Task<'_> {
    pub(crate) fn layout(&self) -> Result<Layout, Error> {
        let layout = match self.options.kind {
            Wanted::File => Layout::at_start,
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
    /// [`check_ring`](crate::backend::refuse::check_ring).
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
