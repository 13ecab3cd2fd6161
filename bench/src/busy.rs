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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The idle-time thread. It ends when this is dropped.
pub(crate) struct Spinner {
    shared: Arc<Shared>,
    /// How long a turn of the thread takes.
    turn_ns: f64,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    turns: AtomicU64,
}

/// A moment to measure from.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    wall_ns: u64,
    turns: u64,
}

impl Spinner {
    /// Starts the thread with `SCHED_IDLE` (see sched(7)).
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let mut turns = 0;
                while !shared.stop.load(Ordering::Relaxed) {
                    turns += 1;
                    shared.turns.store(turns, Ordering::Relaxed);
                }
            }
        });
        // SAFETY: all fields of sched_param are plain numbers, for which zero is valid.
        let param: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: the thread is joined only in drop, so its handle is alive here.
        check(unsafe {
            libc::pthread_setschedparam(thread.as_pthread_t(), libc::SCHED_IDLE, &raw const param)
        })?;
        let mut spinner = Self { shared, turn_ns: 0.0, thread: Some(thread) };
        spinner.turn_ns = (0..20).map(|_| spinner.time_of_a_turn()).fold(f64::MAX, f64::min);
        Ok(spinner)
    }

    /// What is left while this thread sleeps is the spinner's, but for interrupts.
    fn time_of_a_turn(&self) -> f64 {
        thread::sleep(Duration::from_millis(1));
        let before = self.moment();
        thread::sleep(Duration::from_millis(20));
        let after = self.moment();
        (after.wall_ns - before.wall_ns) as f64 / (after.turns - before.turns).max(1) as f64
    }

    /// The moment to measure from.
    pub(crate) fn mark(&self) -> Mark {
        window(true);
        self.moment()
    }

    fn moment(&self) -> Mark {
        let wall = clock_gettime(ClockId::MonotonicRaw);
        Mark {
            wall_ns: wall.tv_sec as u64 * 1_000_000_000 + wall.tv_nsec as u64,
            turns: self.shared.turns.load(Ordering::Relaxed),
        }
    }

    /// Nanoseconds since `from` in which the CPU was busy.
    pub(crate) fn busy_since(&self, from: Mark) -> u64 {
        window(false);
        let now = self.moment();
        let idle = (now.turns - from.turns) as f64 * self.turn_ns;
        (now.wall_ns - from.wall_ns).saturating_sub(idle as u64)
    }
}

/// Tells the profiler of `vm/run --profile` where to count, by no-ops that it knows.
fn window(opens: bool) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instructions do nothing: nopl "DIO1"(%rax,%rax,1) and the same with "DIO0".
    unsafe {
        use std::arch::asm;
        if opens {
            asm!(".byte 0x0f, 0x1f, 0x84, 0x00, 0x44, 0x49, 0x4f, 0x31");
        } else {
            asm!(".byte 0x0f, 0x1f, 0x84, 0x00, 0x44, 0x49, 0x4f, 0x30");
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = opens;
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn check(errno: i32) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
