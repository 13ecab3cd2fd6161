// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a range of an object: several threads, each with a range of its own at a time.

use std::ops::Range;
use std::thread;
use std::time::Instant;

use dmabuf_dio::Result;
use dmabuf_dio::content::Fetched;

use crate::job::{Job, cannot_start};
use crate::range::fetch;
use crate::whole;

/// Fetches everything. Threads that are too many for the pace end, and are started where there are too few.
pub(crate) fn run(job: &Job<'_>) -> Result<Fetched> {
    thread::scope(|scope| {
        let hashing = job.source.settings.sha256.map(|expected| {
            let thread = thread::Builder::new().name("dmabuf-dio-sum".into());
            thread.spawn_scoped(scope, move || {
                if let Err(error) = whole::check(job, &expected) {
                    job.fail(error);
                }
            })
        });
        if let Some(Err(error)) = &hashing {
            job.fail(cannot_start(error));
        }
        let mut state = job.state();
        loop {
            while state.workers < state.pace.limit() && state.error.is_none() {
                let Some(range) = job.take(&mut state) else { break };
                let thread = thread::Builder::new().name("dmabuf-dio-get".into());
                state.workers += 1;
                let worker = Worker(job);
                drop(state);
                let part = range.clone();
                let started = thread.spawn_scoped(scope, move || worker.work(part));
                state = job.state();
                match started {
                    Ok(_) => {}
                    // The others fetch it.
                    Err(_) if state.workers > 0 => {
                        let workers = state.workers;
                        state.back.push(range);
                        state.pace.no_more_than(workers);
                    }
                    Err(error) => {
                        drop(state);
                        job.fail(cannot_start(&error));
                        state = job.state();
                    }
                }
            }
            if state.workers == 0 {
                break;
            }
            state = job.wait(state);
        }
        drop(state);
        job.end();
    });
    let mut state = job.state();
    match state.error.take() {
        Some(error) => Err(error),
        None if state.left.is_empty() && state.back.is_empty() => Ok(state.fetched),
        None => Err(job.cancelled()),
    }
}

/// A thread of a job, which leaves it however it ends.
struct Worker<'j, 'a>(&'j Job<'a>);

impl Worker<'_, '_> {
    fn work(self, mut range: Range<u64>) {
        let job = self.0;
        loop {
            let since = Instant::now();
            let fetched = job.source.net.run(fetch(job, range.clone()));
            let mut state = job.state();
            match fetched {
                Ok(fetched) => job.arrived(&mut state, range, fetched, since),
                Err(error) => {
                    drop(state);
                    return job.fail(error);
                }
            }
            if state.workers > state.pace.limit() {
                return;
            }
            range = match job.take(&mut state) {
                Some(range) => range,
                None => return,
            };
        }
    }
}

impl Drop for Worker<'_, '_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
