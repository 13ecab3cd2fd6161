// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking calls.
//!
//! A call is made in a separate thread. The calling thread waits without holding the GIL, runs
//! signal handlers, so that Ctrl-C works, and calls the progress callback, which therefore always
//! runs in the calling thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use dmabuf_dio::{CancelToken, Progress};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::error::raise;

/// How often signals and the caller's token are checked.
const TICK: Duration = Duration::from_millis(50);

/// What the calling thread does for the other one, when that has woken it.
pub(crate) type Serve = Arc<dyn Fn(Python<'_>) -> PyResult<()> + Send + Sync>;

/// The caller's callback and token.
#[derive(Default)]
pub(crate) struct Watch<'py> {
    pub(crate) progress: Option<Bound<'py, PyAny>>,
    pub(crate) cancel: Option<CancelToken>,
    pub(crate) serve: Option<Serve>,
}

/// The other end, in the thread that makes the call.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    /// Cancels this call alone.
    pub(crate) cancel: CancelToken,
    told: Arc<Told>,
    wake: Sender<()>,
}

impl Control {
    /// The callback of a transfer.
    pub(crate) fn told(&self) -> impl Fn(Progress) + Send + Sync + 'static {
        let control = self.clone();
        move |progress| control.moved(progress.done, progress.total)
    }

    /// To be called with the progress of a transfer, in bytes.
    pub(crate) fn moved(&self, done: u64, total: u64) {
        self.told.total.store(total, Ordering::Relaxed);
        self.told.done.store(done, Ordering::Release);
        self.wake();
    }

    /// Wakes the calling thread, which serves.
    pub(crate) fn wake(&self) {
        // The receiver is gone once the call is over.
        let _ = self.wake.send(());
    }
}

#[derive(Debug)]
struct Told {
    done: AtomicU64,
    total: AtomicU64,
}

/// No progress was reported yet.
const NOTHING: u64 = u64::MAX;

/// A call under way.
pub(crate) struct Call<T> {
    cancel: CancelToken,
    told: Arc<Told>,
    /// Closed when the call ends: the other thread has the only senders.
    wakes: Receiver<()>,
    result: Arc<Mutex<Option<thread::Result<T>>>>,
    /// A child of fork(2), which a callback may call, has no other thread.
    process: u32,
}

impl<T: Send + 'static> Call<T> {
    /// The call, and the work that has to run in another thread.
    pub(crate) fn new(
        work: impl FnOnce(&Control) -> T + Send + 'static,
    ) -> (Self, impl FnOnce() + Send + 'static) {
        let (call, control) = Self::with(CancelToken::new());
        let slot = Arc::clone(&call.result);
        let run = move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&control)));
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            // The last sender: the call ends.
            drop(control);
        };
        (call, run)
    }

    /// A call that another thread makes, and that `cancel` cancels: where its result is sent.
    pub(crate) fn handed(cancel: CancelToken) -> (Self, impl FnOnce(T) + Send + 'static) {
        let (call, control) = Self::with(cancel);
        let slot = Arc::clone(&call.result);
        let finish = move |value| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Ok(value));
            drop(control);
        };
        (call, finish)
    }

    fn with(cancel: CancelToken) -> (Self, Control) {
        let (wake, wakes) = mpsc::channel();
        let told = Arc::new(Told { done: AtomicU64::new(NOTHING), total: AtomicU64::new(0) });
        let (told_here, process) = (Arc::clone(&told), std::process::id());
        let result = Arc::default();
        let call = Self { cancel: cancel.clone(), told: told_here, wakes, result, process };
        (call, Control { cancel, told, wake })
    }

    /// Waits for the end. A signal handler or a callback that raises cancels the call, and its
    /// exception is raised once the call has ended.
    pub(crate) fn wait(self, py: Python<'_>, watch: &Watch<'_>) -> PyResult<T> {
        let Self { cancel, told, wakes, result, process } = self;
        let progress = watch.progress.as_ref().map(|callback| callback.clone().unbind());
        let (token, serve) = (watch.cancel.clone(), watch.serve.clone());
        let raised = py.detach(move || {
            let mut seen = NOTHING;
            let mut raised = None;
            loop {
                let ended = match wakes.recv_timeout(TICK) {
                    Ok(()) | Err(RecvTimeoutError::Timeout) => false,
                    Err(RecvTimeoutError::Disconnected) => true,
                };
                if token.as_ref().is_some_and(CancelToken::is_cancelled) {
                    cancel.cancel();
                }
                let done = told.done.load(Ordering::Acquire);
                if raised.is_none() && (!ended || (progress.is_some() && done != seen)) {
                    let total = told.total.load(Ordering::Relaxed);
                    let outcome = Python::attach(|py| {
                        py.check_signals()?;
                        serve.as_ref().map_or(Ok(()), |serve| serve(py))?;
                        if let Some(callback) = progress.as_ref().filter(|_| done != seen) {
                            callback.call1(py, (done, total))?;
                        }
                        Ok(())
                    });
                    seen = done;
                    if std::process::id() != process {
                        // The other thread may have been using it.
                        std::mem::forget(wakes);
                        break outcome.err();
                    }
                    if let Err(error) = outcome {
                        cancel.cancel();
                        raised = Some(error);
                    }
                }
                if ended {
                    break raised;
                }
            }
        });
        if std::process::id() != process {
            std::mem::forget(result);
            return Err(raised.unwrap_or_else(gone));
        }
        let outcome = result.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (raised, outcome) {
            (Some(error), outcome) => {
                // Freeing the loaded buffer may take a while.
                py.detach(|| drop(outcome));
                Err(error)
            }
            (None, Some(Ok(value))) => Ok(value),
            (None, Some(Err(panic))) => std::panic::resume_unwind(panic),
            (None, None) => Err(gone()),
        }
    }
}

fn gone() -> PyErr {
    PyOSError::new_err((
        libc::ECANCELED,
        "the thread that makes the call is gone: use the object in the process that created it",
    ))
}

/// Waits for a thread that has nothing left to do. A child of fork(2) has no such thread.
fn join(py: Python<'_>, thread: thread::JoinHandle<()>, process: u32) {
    if std::process::id() == process {
        py.detach(|| thread.join().ok());
    } else {
        std::mem::forget(thread);
    }
}

/// Makes a call in a separate thread.
pub(crate) fn call<T: Send + 'static>(
    py: Python<'_>,
    watch: &Watch<'_>,
    work: impl FnOnce(&Control) -> T + Send + 'static,
) -> PyResult<T> {
    let (call, run) = Call::new(work);
    let process = call.process;
    let thread = start(run)?;
    let result = call.wait(py, watch);
    join(py, thread, process);
    result
}

/// Makes a call of the library in a separate thread.
pub(crate) fn transfer<T: Send + 'static>(
    py: Python<'_>,
    watch: &Watch<'_>,
    work: impl FnOnce(&Control) -> Result<T, dmabuf_dio::Error> + Send + 'static,
) -> PyResult<T> {
    call(py, watch, work)?.map_err(|error| raise(py, &error))
}

pub(crate) fn start(run: impl FnOnce() + Send + 'static) -> PyResult<thread::JoinHandle<()>> {
    thread::Builder::new().name("dmabuf-dio".into()).spawn(run).map_err(|error| {
        let number = error.raw_os_error().unwrap_or(libc::EAGAIN);
        PyOSError::new_err((number, "cannot start a thread"))
    })
}
