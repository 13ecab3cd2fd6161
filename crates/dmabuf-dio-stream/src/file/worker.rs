// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that makes blocking calls, one after the other.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use dmabuf_dio::Errno;
use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Result, failed, from_os};
use crate::ring::{Claim, Filled};
use crate::wait::Wait;

/// Processes blocks in the order of their arrival, until the first failure.
#[derive(Debug)]
pub(super) struct Worker {
    /// `None` once stopped.
    jobs: Option<Sender<Claim>>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    results: Receiver<Result<Filled>>,
    /// Readable when there is a result.
    event: Arc<OwnedFd>,
    waiting: usize,
}

impl Worker {
    /// Starts a thread that calls `work` for each block.
    pub(super) fn start(
        mut work: impl FnMut(Claim) -> Result<()> + Send + 'static,
    ) -> Result<Self, Errno> {
        let event =
            Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(from_os)?);
        let (jobs, to_do) = channel::<Claim>();
        let (done, results) = channel();
        let signal = Arc::clone(&event);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = move || {
            for claim in to_do {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let result = work(claim).map(|()| claim.filled());
                // Later blocks would be written in the failed one's place.
                let failed = result.is_err();
                let gone = done.send(result).is_err();
                let _ = rustix::io::write(&*signal, &1_u64.to_ne_bytes());
                if failed || gone {
                    return;
                }
            }
        };
        let named = std::thread::Builder::new().name("dmabuf-dio stream".into());
        let thread = named.spawn(thread);
        let thread = thread.map_err(|error| Errno::from(&error))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), stop, results, event, waiting: 0 })
    }

    /// Queues a block.
    pub(super) fn queue(&mut self, claim: Claim) {
        // If the worker has exited, the send fails; `take` reports why.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(claim);
        }
        self.waiting += 1;
    }

    /// The block that was queued first, if it has been processed.
    pub(super) fn take(&mut self) -> Result<Option<Filled>> {
        // Later results make the descriptor readable again.
        let _ = rustix::io::read(&*self.event, &mut [0_u8; 8]);
        let result = match self.results.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Disconnected) if self.waiting > 0 => {
                return Err(failed(
                    "the stream's thread",
                    "continue after a failure",
                    Errno::CANCELED,
                ));
            }
            Err(_) => return Ok(None),
        };
        self.waiting -= 1;
        // There may be more results.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
        result.map(Some)
    }

    /// Waits for the call in progress. No other call is started.
    pub(super) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.waiting = 0;
    }

    pub(super) fn ready(&self) -> Option<Wait<'_>> {
        (self.waiting > 0).then(|| Wait::readable(self.event.as_fd()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The call in progress may never return; the queued blocks behind it are not started.
        self.stop.store(true, Ordering::Relaxed);
    }
}
