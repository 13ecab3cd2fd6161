// SPDX-License-Identifier: MIT OR Apache-2.0
//! One request after the other, by `pread` and `pwrite` on mapped memory.

use rustix::io::Errno as Os;

use super::{Job, Stop};
use crate::direction::Direction;
use crate::errno::IntoErrno;
use crate::memory::Mapping;

/// Moves all bytes of the job, or returns why not.
pub(crate) fn run(job: &Job<'_>, mapping: &Mapping) -> Result<(), Stop> {
    let extent = job.extent;
    let mut done = 0;
    while done < extent.len {
        if job.watch.is_cancelled() {
            return Err(Stop::Cancelled { done });
        }
        let offset = extent.file + done;
        let needed = job.needed_end.saturating_sub(offset);
        let (at, len) = (extent.buf + done, job.chunk.min(extent.len - done));
        let result = match job.direction {
            Direction::Load => mapping.read_from(at, len, job.file, offset),
            Direction::Save => mapping.write_to(at, len, job.file, offset),
        };
        let moved = match result {
            Ok(moved) => moved,
            Err(Os::INTR) => continue,
            Err(Os::INVAL) if job.ends_within_block(offset) => {
                return Err(Stop::Short { end: offset });
            }
            Err(errno) => return Err(Stop::Failed { offset, errno: errno.into_errno(), done }),
        };
        job.watch.add(moved.min(needed));
        if moved >= needed {
            // The bytes beyond the range may be past the end of the file.
            return Ok(());
        }
        if moved == 0 {
            return Err(Stop::Short { end: offset });
        }
        done += moved;
    }
    Ok(())
}
