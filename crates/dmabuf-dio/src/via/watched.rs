// SPDX-License-Identifier: MIT OR Apache-2.0
//! A call that blocks for long, watched while it does.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::error::Result;
use crate::threads;

/// How often a running call is looked at.
const TICK: Duration = Duration::from_millis(100);

/// Makes `call` in a thread of its own, while this one has a `look` at it now and then. The other
/// way round, signals to this process would wait for the call to end: the kernel hands them to
/// its main thread, which often is this one.
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
        let caller = threads::spawn(scope, move || {
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
    fn the_call_is_looked_at_until_it_ends() {
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
