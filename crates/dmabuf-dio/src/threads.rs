// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads scoped to one call, and long blocking calls.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

use crate::errno::Errno;
use crate::error::{Error, Result};

/// How often a running call is checked.
const TICK: Duration = Duration::from_millis(100);

/// Starts a thread. [`Scope::spawn`] would panic where this returns an error.
///
/// # Errors
///
/// [`Error::Thread`].
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let named = Builder::new().name("dmabuf-dio".into());
    let thread = named.spawn_scoped(scope, work);
    thread.map_err(|error| Error::Thread { errno: Errno::from(&error) })
}

/// Runs `call` in its own thread while this thread calls `look` every now and then. The other way
/// round, signals would be delayed until the call ends: the kernel delivers them to the main
/// thread, which often is this one.
///
/// # Errors
///
/// [`Error::Thread`](crate::Error::Thread): the call was not made.
pub(crate) fn watched<T: Send>(
    call: impl FnOnce() -> T + Send,
    mut look: impl FnMut(),
) -> Result<T> {
    let (running, finished) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let caller = spawn(scope, move || {
            let _running = running;
            call()
        })?;
        while let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(TICK) {
            look();
        }
        Ok(caller.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn watched_call_is_polled_until_it_ends() {
        let seen = AtomicBool::new(false);
        let result = watched(
            || {
                while !seen.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                7
            },
            || seen.store(true, Ordering::Relaxed),
        );
        assert_eq!(result.expect("a thread"), 7);
    }
}
