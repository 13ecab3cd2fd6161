// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the CPU was busy, interrupts and kernel threads included.
//!
//! A thread that the scheduler runs only when nothing else wants the CPU soaks up all idle
//! time. What it did not get, somebody used: the elapsed time less the spinner's CPU time. The
//! clock of a process would miss interrupts that arrive while it waits, and work done for
//! it by kernel threads. On a machine with one CPU where an instruction takes one nanosecond (QEMU's
//! `-icount shift=0`) the result is a count of instructions.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::time::{ClockId, clock_gettime};

/// The idle-time thread. It ends when this is dropped.
pub(crate) struct Spinner {
    stop: Arc<AtomicBool>,
    clock: libc::clockid_t,
    thread: Option<JoinHandle<()>>,
}

/// A moment to measure from.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    wall_ns: u64,
    idle_ns: u64,
}

impl Spinner {
    /// Starts the thread with `SCHED_IDLE` (see sched(7)).
    pub(crate) fn start() -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        });
        let pthread = thread.as_pthread_t();
        let mut spinner = Self { stop, clock: 0, thread: Some(thread) };

        // SAFETY: all fields of sched_param are plain numbers, for which zero is valid.
        let param: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: the thread is joined only in drop, so its handle is alive here.
        check(unsafe { libc::pthread_setschedparam(pthread, libc::SCHED_IDLE, &raw const param) })?;
        // SAFETY: as above; the clock is written to a valid place.
        check(unsafe { libc::pthread_getcpuclockid(pthread, &raw mut spinner.clock) })?;
        Ok(spinner)
    }

    /// The present moment.
    pub(crate) fn mark(&self) -> Mark {
        let mut idle = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock belongs to a thread that lives as long as self.
        unsafe { libc::clock_gettime(self.clock, &raw mut idle) };
        let wall = clock_gettime(ClockId::MonotonicRaw);
        Mark {
            wall_ns: wall.tv_sec as u64 * 1_000_000_000 + wall.tv_nsec as u64,
            idle_ns: idle.tv_sec as u64 * 1_000_000_000 + idle.tv_nsec as u64,
        }
    }

    /// Nanoseconds since `from` in which the CPU was busy.
    pub(crate) fn busy_since(&self, from: Mark) -> u64 {
        let now = self.mark();
        (now.wall_ns - from.wall_ns).saturating_sub(now.idle_ns - from.idle_ns)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn check(errno: i32) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
