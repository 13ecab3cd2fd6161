// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that does calls which block, one after the other.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno as Os;

use super::Filled;
use crate::error::Result;

/// Works on blocks in the order in which they come.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Sender<Filled>,
    results: Receiver<Result<Filled>>,
    /// Readable when there is a result.
    event: Arc<OwnedFd>,
    waiting: usize,
}

impl Worker {
    /// Starts a thread that does `work` with each block. It ends with the worker, when the call that
    /// it is in is over.
    pub(super) fn start(
        mut work: impl FnMut(Filled) -> Result<()> + Send + 'static,
    ) -> Result<Self, Os> {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (jobs, to_do) = channel::<Filled>();
        let (done, results) = channel();
        let signal = Arc::clone(&event);
        let thread = move || {
            for filled in to_do {
                let result = work(filled).map(|()| filled);
                if done.send(result).is_err() {
                    return;
                }
                let _ = rustix::io::write(&*signal, &1_u64.to_ne_bytes());
            }
        };
        let named = std::thread::Builder::new().name("dmabuf-dio stream".into());
        named.spawn(thread).map_err(|error| Os::from_io_error(&error).unwrap_or(Os::AGAIN))?;
        Ok(Self { jobs, results, event, waiting: 0 })
    }

    /// Queues a block.
    pub(super) fn queue(&mut self, filled: Filled) {
        // The thread takes jobs until this sender is gone.
        let _ = self.jobs.send(filled);
        self.waiting += 1;
    }

    /// The block that was queued first, if the work on it is done.
    pub(super) fn take(&mut self) -> Result<Option<Filled>> {
        // What comes after this makes the descriptor readable again.
        let _ = rustix::io::read(&*self.event, &mut [0_u8; 8]);
        let Ok(result) = self.results.try_recv() else { return Ok(None) };
        self.waiting -= 1;
        // There may be more.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
        result.map(Some)
    }

    pub(super) fn ready(&self) -> Option<PollFd<'_>> {
        (self.waiting > 0).then(|| PollFd::new(&*self.event, PollFlags::IN))
    }

    pub(super) fn len(&self) -> usize {
        self.waiting
    }
}
