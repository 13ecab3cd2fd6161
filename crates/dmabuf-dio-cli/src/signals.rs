// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C and its like end a transfer in good order; a second one ends the process at once.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Once, OnceLock};

use dmabuf_dio::CancelToken;

static TOKEN: OnceLock<CancelToken> = OnceLock::new();
static HANDLERS: Once = Once::new();
static CAUGHT: AtomicU8 = AtomicU8::new(0);

/// The token that signals cancel. Installs the handlers on its first call.
pub fn token() -> CancelToken {
    // It is there before any handler is, which therefore always finds it.
    let token = TOKEN.get_or_init(CancelToken::new);
    HANDLERS.call_once(|| {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            install(signal);
        }
    });
    token.clone()
}

/// The signal that was caught, if one was.
pub fn caught() -> Option<u8> {
    match CAUGHT.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(signal),
    }
}

fn install(signal: libc::c_int) {
    // SAFETY: an all-zero sigaction is a valid value.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks for the action in force; the structure outlives the call.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut old) };
    if asked != 0 || old.sa_sigaction == libc::SIG_IGN {
        // Whoever started us, nohup say, wants it ignored.
        return;
    }
    // SAFETY: an all-zero sigaction is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESETHAND;
    // SAFETY: the handler only stores to atomics, which is async-signal-safe.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

extern "C" fn on_signal(signal: libc::c_int) {
    CAUGHT.store(signal as u8, Ordering::Relaxed);
    if let Some(token) = TOKEN.get() {
        token.cancel();
    }
}
