// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for what cannot be cancelled.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use dmabuf_dio::{CancelToken, Direction, Errno, Error};

/// How often the token is checked.
const TICK: Duration = Duration::from_millis(50);

/// The result of `work`, which a thread of its own does. Once cancelled nobody waits for it: a store may not answer for
/// minutes.
pub(super) fn cancellable<T: Send + 'static>(
    name: &Path,
    cancel: &CancelToken,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = mpsc::channel();
    // The receiver may be gone.
    let run = move || drop(sender.send(work()));
    let started = thread::Builder::new().name("dmabuf-dio-open".into()).spawn(run);
    started.map_err(|error| Error::Thread { errno: Errno::from(&error) })?;
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if !cancel.is_cancelled() => {}
            Err(RecvTimeoutError::Timeout) => {
                let (path, direction) = (name.to_owned(), Direction::Load);
                return Err(Error::Cancelled { path, direction, done: 0, length: 0 });
            }
            // It has panicked, and said so.
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Thread { errno: Errno::from_raw(libc::ECANCELED) });
            }
        }
    }
}
