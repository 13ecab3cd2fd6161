// SPDX-License-Identifier: MIT OR Apache-2.0
//! One request after the other, by `pread` and `pwrite` on mapped memory.

use rustix::io::Errno as Os;

use crate::error::Direction;
use crate::memory::Mapping;
use crate::raw;
use crate::uring::{Job, Stop};

/// Moves all bytes of the job, or says why not.
pub(crate) fn run(job: &Job<'_>, mapping: &Mapping) -> Result<(), Stop> {
    let extent = job.extent;
    assert!(extent.buf_end() <= mapping.len());
    let mut done = 0;
    while done < extent.len {
        if job.watch.is_cancelled() {
            return Err(Stop::Cancelled { done });
        }
        let offset = extent.file + done;
        let needed = job.needed_end.saturating_sub(offset);
        let len = job.chunk.min(extent.len - done) as usize;
        let start = mapping.at(extent.buf + done);
        let result = match job.direction {
            // SAFETY: the range lies in the mapping, as was asserted, and is there to be loaded to.
            Direction::Load => unsafe { raw::pread(job.file, start, len, offset) },
            // SAFETY: as above; it is only read.
            Direction::Save => unsafe { raw::pwrite(job.file, start, len, offset) },
        };
        let moved = match result {
            Ok(moved) => moved as u64,
            Err(Os::INTR) => continue,
            Err(Os::INVAL) if job.ends_within_block(offset) => {
                return Err(Stop::Short { end: offset });
            }
            Err(errno) => return Err(Stop::Failed { offset, errno: errno.into(), done }),
        };
        job.watch.add(moved.min(needed));
        if moved >= needed {
            // What is behind the range may lie beyond the end of the file.
            return Ok(());
        }
        if moved == 0 {
            return Err(Stop::Short { end: offset });
        }
        done += moved;
    }
    Ok(())
}
