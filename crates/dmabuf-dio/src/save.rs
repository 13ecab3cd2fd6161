// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saves from a buffer, or what a reader gives, to a file.

use std::io::BufRead;
use std::ops::{Bound, RangeBounds};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::time::Instant;

use crate::backend::Backend;
use crate::buffer::Buffer;
use crate::choose::table;
use crate::choose::{self, Run, choose};
use crate::control::{Control, Watch};
use crate::direction::Direction;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::file;
use crate::file::Spec;
use crate::file::target::Target;
use crate::kind::Kind;
use crate::options::{Options, option_methods};
use crate::report::Report;
use crate::transfer::poured;
use crate::transfer::task::Task;

/// Saves a range of a buffer, or what a reader gives, to a file.
///
/// If the path names a regular file or nothing, a new file is written next to it, made durable, and
/// then renamed to the path. Until then the old file stays unchanged, and a failed save leaves
/// nothing behind. (Without `/proc` or `O_TMPFILE`, `SIGKILL` leaves a file `.dmabuf-dio-partial-`
/// plus a number next to it.) For a symbolic link, its target is replaced, not the link; a dangling
/// link is refused, as in `cp`. Block devices and open files are written in place.
///
/// `Send` and `Sync`. It opens no file until a save starts, so it can be used after `fork(2)`.
#[derive(Clone, Debug)]
pub struct Saver<'f> {
    target: Spec<'f>,
    offset: u64,
    options: Options,
    control: Control,
}

impl Saver<'static> {
    /// Saves to a new file at `path`, or in place to the block device there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::to_spec(Spec::Path(path.into()))
    }
}

impl<'f> From<&'f std::fs::File> for Saver<'f> {
    fn from(file: &'f std::fs::File) -> Self {
        Self::to_fd(file.as_fd())
    }
}

impl<'f> Saver<'f> {
    /// Saves in place to an open regular file or block device. Its file position is neither used
    /// nor changed. If possible, the file is reopened with `O_DIRECT` through `/proc/self/fd`.
    pub fn to_fd(fd: BorrowedFd<'f>) -> Self {
        Self::to_spec(Spec::Fd(fd))
    }

    fn to_spec(target: Spec<'f>) -> Self {
        Self { target, offset: 0, options: Options::default(), control: Control::default() }
    }

    option_methods!();

    /// Offset in the file to write at, in bytes; default 0. It must be 0 if a new file is written.
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> Self {
        self.offset = bytes;
        self
    }

    /// Saves a range of `buf`, in bytes (`..` for all of it). Blocks until the data is durable.
    ///
    /// # Errors
    ///
    /// After an error, the path still names its old file, unless only making the new file's name
    /// durable failed, or with [`Error::OldFileGone`]. [`Error::Open`]; [`Error::Access`]; [`Error::NotAFile`];
    /// [`Error::DanglingLink`]; [`Error::EmptyRange`]; [`Error::RangeBeyondBuffer`];
    /// [`Error::RangeOverflow`]; [`Error::Setting`]; [`Error::Buffer`]; [`Error::Target`], for
    /// example with `ENOSPC`; [`Error::Transfer`]; [`Error::Unsynced`]; [`Error::InFlight`];
    /// [`Error::Cancelled`]; [`Error::Unavailable`] if the selected backend is not available.
    pub fn save(&self, buf: &Buffer, range: impl RangeBounds<u64>) -> Result<Report> {
        let buf = buf.shared()?;
        self.options.check()?;
        let (buf_offset, length) = resolve(&range, buf.len())?;
        buf.check_range(buf_offset, length)?;
        self.write(length, |task| {
            let backends = self.options.backends(Backend::for_existing(buf.kind()));
            let before = choose::before(task);
            let chosen = choose(self.options.backend, backends, |backend| {
                Ok((Some(buf.kind()), table::transfer(backend, task, buf, buf_offset)?))
            })?;
            Ok(Run::by(before, chosen))
        })
    }

    /// Saves the next `length` bytes of `source`, such as slices that are chained. Blocks until the data
    /// is durable.
    ///
    /// The bytes pass through a window of memory that belongs to the save: of the requests in flight
    /// and two more, and at most 64 MiB or three requests. The CPU copies them once, into the window,
    /// while the disk writes what it copied before; they need not be aligned. `source` is read only
    /// when its next bytes fit, and never beyond `length`.
    ///
    /// # Errors
    ///
    /// As for [`save`](Self::save), and [`Error::Source`] if `source` fails or ends early.
    /// [`Error::NoMemory`] if there is not enough for the window. [`Error::Unavailable`] if a backend is
    /// selected: none is used.
    pub fn save_from(&self, mut source: impl BufRead, length: u64) -> Result<Report> {
        self.options.check()?;
        if let Some(backend) = self.options.backend {
            let refusals = vec![backend.refuse_reader()];
            return Err(Error::Unavailable { asked: Some(backend), kind: None, refusals });
        }
        self.write(length, |task| {
            let before = choose::before(task);
            let moved = poured::save(task, &mut source)?;
            Ok(Run::alone(before, (None, moved)))
        })
    }

    /// Writes `length` bytes by `transfer`, which also says of what kind their buffer is.
    fn write(
        &self,
        length: u64,
        transfer: impl FnOnce(&Task<'_>) -> Result<Run<Option<Kind>>>,
    ) -> Result<Report> {
        file::check_range(self.offset, length)?;
        if length == 0 {
            let path = self.target.display_path();
            return Err(Error::EmptyRange { path, direction: Direction::Save });
        }
        let target = Target::open(&self.target, self.options.direct, length)?;
        self.check_target(&target, length)?;
        let watch = Watch::start(&self.control, length);
        let task = Task {
            file: &target.file,
            direction: Direction::Save,
            offset: self.offset,
            length,
            options: &self.options,
            watch: &watch,
        };
        let run = transfer(&task)?;
        target.make_durable(self.offset, length)?;
        let mut facts = run.facts(&task, |kind| *kind).1;
        let begin = Instant::now();
        target.commit()?;
        facts.cost.elapsed += begin.elapsed();
        Ok(facts.report())
    }

    fn check_target(&self, target: &Target, length: u64) -> Result<()> {
        if target.replaces() && self.offset != 0 {
            return Err(Error::Setting {
                name: "offset",
                value: self.offset,
                need: "0 for a path, whose file is replaced; pass an open file to write within it",
            });
        }
        let end = self.offset + length;
        target.file.check_size(end).map_err(|errno| {
            let (path, step) = (target.file.path.clone(), "write all of it");
            Error::Target { path, step, errno }
        })?;
        if target.file.is_device && end > target.file.end()? {
            return Err(Error::Target {
                path: target.file.path.clone(),
                step: "write beyond the end of the device",
                errno: Errno::NOSPC,
            });
        }
        Ok(())
    }
}

/// Start and length of a range in a buffer of `len` bytes.
fn resolve(range: &impl RangeBounds<u64>, len: u64) -> Result<(u64, u64)> {
    let overflow = Error::RangeOverflow { offset: u64::MAX, length: 1 };
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.checked_add(1).ok_or(overflow)?,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => {
            end.checked_add(1).ok_or(Error::RangeOverflow { offset: *end, length: 1 })?
        }
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    if end >= start {
        return Ok((start, end - start));
    }
    // A reversed range is refused, like an empty slice beyond the end.
    Err(Error::RangeBeyondBuffer { offset: start, length: 0, buffer: len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn save_ranges_resolve_within_the_buffer() {
        assert_eq!(resolve(&.., 10).expect("all"), (0, 10));
        assert_eq!(resolve(&(2..), 10).expect("rest"), (2, 8));
        assert_eq!(resolve(&(2..=3), 10).expect("part"), (2, 2));
        assert!(resolve(&(11..), 10).is_err());
        assert!(resolve(&(0..=u64::MAX), 10).is_err());
    }
}
