// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job's requests one after the other, by `pread` and `pwrite` on mapped memory.

use super::plan::Plan;
use super::{Job, Stop};
use crate::direction::Direction;
use crate::errno::{Errno, IntoErrno};
use crate::error::Error;
use crate::memory::Mapping;

/// Moves all bytes of the job, or returns why not. They are at their offsets in the memory.
pub(crate) fn run(job: &Job<'_>, mapping: &Mapping) -> Result<(), Stop> {
    run_placed(job, mapping, |offset| (offset, u64::MAX), |_| Ok(()))
}

/// As [`run`]. `place` is where a byte is in the memory, and where the range ends that is contiguous
/// there; `prepare` is called with the end of what is moved next.
pub(crate) fn run_placed(
    job: &Job<'_>,
    mapping: &Mapping,
    place: impl Fn(u64) -> (u64, u64),
    mut prepare: impl FnMut(u64) -> Result<(), Error>,
) -> Result<(), Stop> {
    let mut plan = Plan::new(job);
    while let Some(request) = plan.next(|offset| place(offset).1) {
        if job.watch.is_cancelled() {
            return Err(Stop::Cancelled { done: plan.done() });
        }
        prepare(request.buf_end()).map_err(Stop::Memory)?;
        plan.start(request);
        let (at, len, offset) = (place(request.buf).0, request.len, request.file);
        let result = match job.direction {
            Direction::Load => mapping.read_from(at, len, job.file, offset),
            Direction::Save => mapping.write_to(at, len, job.file, offset),
        };
        match result.map_err(IntoErrno::into_errno) {
            // It is not repeated at once, because that might never end.
            Err(Errno::AGAIN) => plan.fail(offset, Errno::AGAIN),
            result => plan.complete(request, result),
        }
    }
    plan.finish()
}
