// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking requests: the module's ioctl, or `pread` on a mapping.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::piece::Group;
use super::plan::{Plan, Request};
use crate::control::Watch;
use crate::direction::Direction;
use crate::errno::{Errno, IntoErrno};
use crate::error::{Error, Result};
use crate::file::File;
use crate::lend::{Attached, NotLent};
use crate::memory::Mapping;
use crate::threads;

/// The way to make one request at a time.
#[derive(Debug)]
pub(super) enum One {
    Module(Attached),
    Mapped(Arc<Mapping>),
}

/// Maximum number of threads, and pieces per thread: with fewer the call ends before they start.
const MOST_THREADS: usize = 16;
const WORTH_A_THREAD: usize = 32;

impl One {
    /// Makes all requests of the plan, until the watch is cancelled: up to `depth` at a time, in
    /// threads.
    pub(super) fn run(
        &self,
        plan: &mut Plan<'_>,
        file: &File,
        watch: &Watch<'_>,
        depth: usize,
    ) -> Result<()> {
        let threads = depth.min(MOST_THREADS).min(plan.pieces() / WORTH_A_THREAD).max(1);
        let plan = Mutex::new(plan);
        let lacking = AtomicBool::new(false);
        let work = || self.work(&plan, file, watch, &lacking);
        std::thread::scope(|scope| {
            let mut others = Vec::with_capacity(threads);
            for _ in 1..threads {
                let other = threads::spawn(scope, work).inspect_err(|_| {
                    // The existing threads stop after their current request.
                    lacking.store(true, Ordering::Relaxed);
                });
                others.push(other?);
            }
            let first = work();
            let results = others
                .into_iter()
                .map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            results.fold(first, Result::and)
        })
    }

    /// The work of one thread. Each makes its own retries.
    fn work(
        &self,
        plan: &Mutex<&mut Plan<'_>>,
        file: &File,
        watch: &Watch<'_>,
        lacking: &AtomicBool,
    ) -> Result<()> {
        let lock = || plan.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |done: u64| Error::Unsynced {
            path: file.path.clone(),
            direction: Direction::Load,
            done: lock().counts.moved + done,
            length: watch.total(),
        };
        let mut request = Request::default();
        let is_over = || watch.is_cancelled() || lacking.load(Ordering::Relaxed);
        while !is_over() && lock().next(&mut request) {
            let result = match self {
                Self::Module(attached) => by_module(attached, file, &request, refused)?,
                Self::Mapped(mapping) => by_pread(mapping, file, &request)?,
            };
            let mut plan = lock();
            plan.complete(&request, result);
            watch.set(plan.counts.moved);
        }
        Ok(())
    }
}

fn by_module(
    attached: &Attached,
    file: &File,
    request: &Request,
    refused: impl FnOnce(u64) -> Error,
) -> Result<Result<u64, Errno>> {
    let Group { file: position, buf, len, .. } = request.group;
    let fd = file.with_direct(!request.buffered)?;
    let result = attached.transfer(Direction::Load, fd, position, buf, len);
    Ok(match result {
        Ok(moved) => Ok(moved.done),
        Err(error) if error.not_lent == Some(NotLent::Unsynced) => {
            return Err(refused(error.moved.done));
        }
        // Whole blocks were read before the failure: the rest is requested again.
        Err(error) if error.moved.done >= file.align.offset => {
            Ok(error.moved.done & !(file.align.offset - 1))
        }
        Err(error) => Err(error.errno),
    })
}

fn by_pread(mapping: &Mapping, file: &File, request: &Request) -> Result<Result<u64, Errno>> {
    let group = &request.group;
    let read = mapping.read_from(group.buf, group.len, file.buffered()?, group.file);
    Ok(read.map_err(IntoErrno::into_errno))
}
