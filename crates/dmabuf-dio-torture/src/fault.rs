// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes wrong during a call: a signal arrives, or an allocation fails.

use std::io::{Read as _, Seek as _, Write as _};

use dmabuf_dio_sys::Errno;

use crate::freezer::{self, Still};

/// For the next transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Armed {
    #[default]
    Nothing,
    /// A signal, after so many microseconds.
    Signal(u64),
    /// The process stands still again and again: `freezer.rs`.
    Freeze { microseconds: u64, how: Still },
    /// Each of its allocations fails once.
    FailEach,
}

/// For one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Signal(u64),
    Freeze {
        microseconds: u64,
        how: Still,
    },
    /// The nth allocation fails.
    Nth(u64),
}

impl Fault {
    /// Makes the call; also returns whether the fault happened, where that is known.
    pub(crate) fn around<T>(self, call: impl FnOnce() -> T) -> (T, bool) {
        match self {
            Self::None => (call(), false),
            Self::Signal(microseconds) => {
                alarm(microseconds.max(1));
                let result = call();
                alarm(0);
                (result, true)
            }
            Self::Freeze { microseconds, how } => freezer::around(microseconds, how, call),
            Self::Nth(nth) => {
                let mut open = std::fs::File::options();
                open.read(true).write(true);
                let Ok(mut file) = open.open("/proc/thread-self/fail-nth") else {
                    return (call(), false);
                };
                let text = nth.to_string();
                let _ = file.write_all(text.as_bytes());
                let result = call();
                // Disarms first: the next allocation may be the one.
                let mut rest = [0; 16];
                let _ = file.rewind();
                let read = file.read(&mut rest).unwrap_or(0);
                let _ = file.rewind();
                let _ = file.write_all(b"0");
                (result, rest[..read].first() == Some(&b'0'))
            }
        }
    }

    /// Errors that a call may have because of it.
    pub(crate) fn excuses(self, errno: Errno) -> bool {
        match self {
            // Whoever stands still continues.
            Self::None | Self::Freeze { .. } => false,
            Self::Signal(_) => errno == Errno::INTR,
            Self::Nth(_) => errno == Errno::NOMEM,
        }
    }

    /// Is a call that ended with EINTR after so many bytes to be continued? What makes the process
    /// stand still leaves no call without any.
    pub(crate) fn continues(self, done: u64) -> bool {
        match self {
            Self::Signal(_) => true,
            Self::Freeze { .. } => done > 0,
            Self::None | Self::Nth(_) => false,
        }
    }
}

/// Tries a transfer once, or with each of its allocations failing. The attempt returns whether its
/// fault happened.
pub(crate) fn each(
    armed: Armed,
    attempt: &mut dyn FnMut(Fault) -> Result<bool, String>,
) -> Result<(), String> {
    match armed {
        Armed::Nothing => attempt(Fault::None)?,
        Armed::Signal(microseconds) => attempt(Fault::Signal(microseconds))?,
        Armed::Freeze { microseconds, how } => attempt(Fault::Freeze { microseconds, how })?,
        Armed::FailEach => {
            for nth in 1..500 {
                let failed = attempt(Fault::Nth(nth));
                if !failed.map_err(|why| format!("{why} (allocation {nth} failed)"))? {
                    return Ok(());
                }
            }
            false
        }
    };
    Ok(())
}

extern "C" fn nothing(_: i32) {}

/// Signals interrupt calls, and do nothing else.
pub(crate) fn prepare() {
    // SAFETY: a zeroed action without flags is valid; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
    }
    // These need not wait for memory, nor be of high orders; what fails is not logged.
    for (path, value) in [
        ("failslab/ignore-gfp-wait", "N"),
        ("failslab/verbose", "0"),
        ("fail_page_alloc/ignore-gfp-wait", "N"),
        ("fail_page_alloc/ignore-gfp-highmem", "N"),
        ("fail_page_alloc/min-order", "0"),
        ("fail_page_alloc/verbose", "0"),
    ] {
        let _ = std::fs::write(format!("/sys/kernel/debug/{path}"), value);
    }
}

/// Signals are for the thread that makes the call.
pub(crate) fn keep_signals_away() {
    // SAFETY: the set is initialised before it is used, and belongs to this thread.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        // A signal that is blocked is not ignored: that of a child would end the call.
        libc::sigdelset(&raw mut set, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// One SIGALRM after so many microseconds; 0: none.
fn alarm(microseconds: u64) {
    let time = libc::timeval {
        tv_sec: (microseconds / 1_000_000) as libc::time_t,
        tv_usec: (microseconds % 1_000_000) as libc::suseconds_t,
    };
    let timer =
        libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: time };
    // SAFETY: the timer is valid for the call, and the old one is not asked for.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}
