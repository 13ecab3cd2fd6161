// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how long the CPU was busy.
//!
//! On a machine with one CPU, a thread that the scheduler runs only when the CPU is otherwise idle
//! uses all idle time. The busy time is the elapsed time minus that thread's time. The CPU clock of
//! the process would miss interrupts that arrive while it waits, and the work of kernel threads. If
//! one instruction takes one nanosecond (QEMU's `-icount shift=0`), the result is a number of
//! instructions.
//!
//! With several CPUs, the CPU time of the process is used.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::outcome::{Result, failed};

/// Set by `vm/run --icount`.
const ICOUNT: &str = "DMABUF_DIO_ICOUNT";
/// The longest timer tick in use.
const WINDOW: Duration = Duration::from_millis(10);
/// Number of consecutive windows without work that count as idle, and the limit for waiting.
const QUIET_WINDOWS: u32 = 2;
const MOST_WINDOWS: u32 = 100;
/// Nanoseconds of work in a window that are ignored: the variation of a tick.
const NOISE: f64 = 15_000.0;

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = ((values.len().max(1) - 1) / 2, values.len() / 2);
    values.get(low).zip(values.get(high)).map_or(f64::NAN, |(low, high)| f64::midpoint(*low, *high))
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    /// Instructions: one per nanosecond.
    Instructions,
    Nanoseconds,
}

/// Counts busy time.
#[derive(Debug)]
pub(crate) struct Clock {
    /// With one CPU: nanoseconds of an iteration of the idle-time thread.
    turn_ns: Option<f64>,
    pub(crate) unit: Unit,
    /// Background load (timer ticks), per elapsed nanosecond.
    background: f64,
    /// The cost of two marks and of waiting for a window.
    marks: f64,
    window: f64,
}

/// The start of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    elapsed: f64,
    busy: f64,
}

impl Clock {
    /// Starts the clock, and measures what has to be subtracted.
    pub(crate) fn start() -> Result<Self> {
        let one_cpu = thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        let unit = match std::env::var_os(ICOUNT) {
            Some(_) if one_cpu => Unit::Instructions,
            _ => Unit::Nanoseconds,
        };
        let turn_ns = one_cpu.then(|| start_spinning(unit)).transpose()?;
        let mut clock = Self { turn_ns, unit, background: 0.0, marks: 0.0, window: 0.0 };
        clock.marks = median((0..99).map(|_| clock.busy_since(clock.mark())).collect());
        if clock.turn_ns.is_some() {
            thread::sleep(50 * WINDOW);
            // What a window has besides, going to sleep and waking up, long ones have as well.
            let [short, long] = [WINDOW, 11 * WINDOW]
                .map(|window| median((0..15).map(|_| clock.watch(window)).collect()));
            clock.background = (long - short) / (10 * WINDOW).as_nanos() as f64;
            clock.window = short - clock.background * WINDOW.as_nanos() as f64;
        }
        Ok(clock)
    }

    /// The present moment.
    pub(crate) fn mark(&self) -> Mark {
        match self.turn_ns {
            Some(turn) => {
                let idle = turns() * turn;
                let elapsed = now(ClockId::MonotonicRaw);
                Mark { elapsed, busy: elapsed - idle }
            }
            None => Mark { elapsed: 0.0, busy: now(ClockId::ProcessCPUTime) },
        }
    }

    /// Nanoseconds since `from` in which the CPU was busy.
    pub(crate) fn busy_since(&self, from: Mark) -> f64 {
        let now = self.mark();
        let background = self.background * (now.elapsed - from.elapsed);
        now.busy - from.busy - background - self.marks
    }

    /// Waits until the CPU is idle and returns the work until then: memory freed later, work of kernel
    /// threads.
    pub(crate) fn settle(&self) -> f64 {
        if self.turn_ns.is_none() {
            return 0.0;
        }
        let (mut quiet, mut late) = (0, 0.0);
        for _ in 0..MOST_WINDOWS {
            let busy = self.watch(WINDOW) - self.window;
            if busy > NOISE {
                quiet = 0;
                late += busy;
            } else {
                quiet += 1;
            }
            if quiet == QUIET_WINDOWS {
                break;
            }
        }
        late
    }

    fn watch(&self, window: Duration) -> f64 {
        let start = self.mark();
        thread::sleep(window);
        self.busy_since(start)
    }
}

/// Iterations of the idle-time thread.
static TURNS: AtomicU64 = AtomicU64::new(0);

/// Starts the idle-time thread, which counts its iterations until the program ends, with `SCHED_IDLE` (see sched(7)).
/// Returns the nanoseconds of an iteration.
///
/// The scheduler's clock is not suitable: it charges interrupt entry and the switch to another task
/// to this thread, up to a quarter of the cost of a direct read.
fn start_spinning(unit: Unit) -> Result<f64> {
    let thread = thread::Builder::new().spawn(|| {
        let mut turns = 0;
        // Without the processor's hint for waiting, with which emulation takes long.
        loop {
            turns += 1;
            TURNS.store(turns, Ordering::Relaxed);
        }
    });
    let failed = failed("an idle-time thread, see sched(7),");
    let thread = thread.map_err(&failed)?;
    // SAFETY: all fields of sched_param are plain numbers, for which zero is valid.
    let param: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the thread does not end, so its handle is alive.
    let errno = unsafe {
        libc::pthread_setschedparam(thread.as_pthread_t(), libc::SCHED_IDLE, &raw const param)
    };
    if errno != 0 {
        return Err(failed(io::Error::from_raw_os_error(errno)));
    }
    let turn = (0..20).map(|_| time_of_a_turn()).fold(f64::MAX, f64::min);
    // A turn has a whole number of instructions; what is more was the timer's.
    Ok(if unit == Unit::Instructions { turn.round() } else { turn })
}

fn turns() -> f64 {
    TURNS.load(Ordering::Relaxed) as f64
}

fn time_of_a_turn() -> f64 {
    let (start, before) = (now(ClockId::MonotonicRaw), turns());
    thread::sleep(2 * WINDOW);
    (now(ClockId::MonotonicRaw) - start) / (turns() - before).max(1.0)
}

fn now(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_counts_only_the_measured_work() {
        let clock = Clock::start().expect("a clock");
        let (start, wall) = (clock.mark(), std::time::Instant::now());
        while clock.busy_since(start) < 5e6 {
            std::hint::spin_loop();
        }
        // Other tests of this process work at the same time.
        let cpus = thread::available_parallelism().expect("a number").get() as f64;
        let busy = clock.busy_since(start);
        assert!(busy < wall.elapsed().as_nanos() as f64 * cpus + 1e6, "{busy}");
    }
}
