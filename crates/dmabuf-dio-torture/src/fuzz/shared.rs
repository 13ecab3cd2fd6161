// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the processes that run an input tell the one that started them.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::call::KINDS;
use super::system::Answer;

/// Errors by number, 0: success.
pub(crate) const ERRNOS: usize = 134;
const TEXT: usize = 1000;

pub(crate) struct Shared {
    /// Calls that were begun
    pub(crate) progress: AtomicU64,
    /// Files or buffers may have other bytes than at the start.
    pub(crate) changed: AtomicBool,
    found: AtomicBool,
    text: [AtomicU8; TEXT],
    tally: [[AtomicU32; ERRNOS]; KINDS.len()],
}

impl Shared {
    /// In memory that processes share. It is never freed.
    pub(crate) fn create() -> Result<&'static Self, String> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses an unused address.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Self>(), access, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(format!("mmap: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: the mapping is as long and aligned, and atomics may be zero.
        Ok(unsafe { &*memory.cast::<Self>() })
    }

    pub(crate) fn begin(&self) {
        self.found.store(false, Relaxed);
        for byte in &self.text {
            byte.store(0, Relaxed);
        }
    }

    /// Notes something that must not be; the first one counts.
    pub(crate) fn find(&self, what: &str) {
        if !self.found.swap(true, Relaxed) {
            for (to, from) in self.text.iter().zip(what.bytes()) {
                to.store(from, Relaxed);
            }
        }
    }

    pub(crate) fn found(&self) -> Option<String> {
        self.found.load(Relaxed).then(|| {
            let bytes: Vec<u8> =
                self.text.iter().map(|byte| byte.load(Relaxed)).take_while(|b| *b != 0).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }

    pub(crate) fn count(&self, kind: usize, answer: Answer) {
        let errno = answer.err().unwrap_or(0) as usize;
        self.tally[kind][errno.min(ERRNOS - 1)].fetch_add(1, Relaxed);
    }

    /// How often a kind of call has had each result.
    pub(crate) fn results(&self, kind: usize) -> Vec<(usize, u32)> {
        let counts = self.tally[kind].iter().map(|count| count.load(Relaxed)).enumerate();
        counts.filter(|(_, count)| *count > 0).collect()
    }
}
