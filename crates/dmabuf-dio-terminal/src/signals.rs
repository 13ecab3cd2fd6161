// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGINT, SIGTERM and SIGHUP cancel the transfer. The second of a kind ends the process at once.

use std::ffi::c_int;
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use dmabuf_dio::CancelToken;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{emulate_default_handler, register};

const SIGNALS: [c_int; 3] = [SIGINT, SIGTERM, SIGHUP];

static TOKEN: OnceLock<CancelToken> = OnceLock::new();
static CAUGHT: AtomicU8 = AtomicU8::new(0);

/// The token that signals cancel. The first call installs the handlers and has to precede the
/// start of other threads.
pub fn token() -> CancelToken {
    TOKEN
        .get_or_init(|| {
            let token = CancelToken::new();
            // signal-hook drops a signal that arrives between sigaction() and the registration of
            // the first action. A blocked signal stays pending instead.
            let _blocked = Blocked::new();
            for signal in SIGNALS {
                install(signal, token.clone());
            }
            token
        })
        .clone()
}

/// The signal that was caught, if one was.
pub fn caught() -> Option<u8> {
    match CAUGHT.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(signal),
    }
}

fn install(signal: c_int, token: CancelToken) {
    // A signal that was ignored at start stays ignored, as nohup requires.
    if action(signal).is_none_or(|action| action.sa_sigaction == libc::SIG_IGN) {
        return;
    }
    let again = AtomicBool::new(false);
    let on_signal = move || {
        if again.swap(true, Ordering::Relaxed) {
            let _ = emulate_default_handler(signal);
        }
        CAUGHT.store(signal as u8, Ordering::Relaxed);
        token.cancel();
    };
    // SAFETY: the action stores to atomics and calls emulate_default_handler(). Both are
    // async-signal-safe.
    if unsafe { register(signal, on_signal) }.is_ok() {
        interrupt_system_calls(signal);
    }
}

/// Makes system calls fail with `EINTR`: signal-hook has the kernel restart them, and a call that
/// waits for a fence would not notice the cancellation.
fn interrupt_system_calls(signal: c_int) {
    if let Some(mut action) = action(signal) {
        action.sa_flags &= !libc::SA_RESTART;
        // SAFETY: this is the action in force, with one flag less.
        unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    }
}

/// The action in force for a signal.
fn action(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: an all-zero sigaction is a valid value, which outlives the call that fills it.
    unsafe {
        let mut action = mem::zeroed();
        (libc::sigaction(signal, ptr::null(), &raw mut action) == 0).then_some(action)
    }
}

/// Blocks [`SIGNALS`] for this thread. Dropping it restores the signal mask.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn new() -> Self {
        // SAFETY: an all-zero sigset_t is a valid value, and both sets outlive the calls.
        unsafe {
            let (mut wanted, mut before) = (mem::zeroed(), mem::zeroed());
            libc::sigemptyset(&raw mut wanted);
            for signal in SIGNALS {
                libc::sigaddset(&raw mut wanted, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const wanted, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled by pthread_sigmask(), and outlives the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_are_interrupted() {
        token();
        for signal in SIGNALS {
            let action = action(signal).expect("an action");
            let ignored = action.sa_sigaction == libc::SIG_IGN;
            assert!(ignored || action.sa_flags & libc::SA_RESTART == 0, "signal {signal}");
        }
    }
}
