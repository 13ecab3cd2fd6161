// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job's requests one after the other, by `pread` and `pwrite` on mapped memory.

use super::plan::Plan;
use super::{Job, Stop};
use crate::direction::Direction;
use crate::errno::{Errno, IntoErrno};
use crate::memory::Mapping;

/// Moves all bytes of the job, or returns why not.
pub(crate) fn run(job: &Job<'_>, mapping: &Mapping) -> Result<(), Stop> {
    let mut plan = Plan::new(job);
    while let Some(request) = plan.next(|_| u64::MAX) {
        if job.watch.is_cancelled() {
            return Err(Stop::Cancelled { done: plan.done() });
        }
        plan.start(request);
        let (at, len, offset) = (request.buf, request.len, request.file);
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
