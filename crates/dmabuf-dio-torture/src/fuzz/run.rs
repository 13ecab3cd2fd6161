// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs an input in a process of its own, and watches it.

use std::io::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::call::Call;
use super::child;
use super::pool::Pool;
use super::shared::Shared;
use crate::machine::Machine;
use crate::procfs::number;
use crate::state::State;

/// Seconds without progress after which an input hangs. Each is waited for by itself: a guest
/// that gets no processor for a minute has not waited for sixty.
const PATIENCE: u32 = 60;

pub(crate) struct Runner<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) pool: Pool,
    pub(crate) shared: &'static Shared,
    /// To the module, by the pool alone.
    references: i64,
}

fn references() -> i64 {
    number("/sys/module/dmabuf_dio/refcnt", "")
}

impl<'a> Runner<'a> {
    pub(crate) fn prepare(machine: &'a Machine) -> Result<Self, String> {
        let (pool, shared) = (Pool::create(machine)?, Shared::create()?);
        Ok(Self { machine, pool, shared, references: references() })
    }

    /// Basic blocks of the module that were reached so far; `None` if it does not say.
    pub(crate) fn blocks() -> Option<u64> {
        // A file of debugfs is read once each time that it is opened.
        let text = std::fs::read_to_string("/sys/kernel/debug/dmabuf_dio_coverage/blocks").ok()?;
        text.trim().parse().ok()
    }

    /// Runs an input, and says what was wrong.
    pub(crate) fn run(&self, calls: &[Call]) -> Result<(), String> {
        if self.shared.changed.swap(false, Relaxed) {
            self.pool.reset();
        }
        self.shared.begin();
        self.shared.progress.store(0, Relaxed);
        let _ = std::io::stdout().flush();
        // SAFETY: this process has one thread.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            child::run(calls, &self.pool, self.shared);
        }
        let child = Pid::from_raw(pid).ok_or("fork: no process")?;
        self.watch(child, calls)?;
        let mut status = 0;
        // SAFETY: the status is valid for the call.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        self.await_rings();
        if let Some(what) = self.shared.found() {
            return Err(what);
        }
        if libc::WIFSIGNALED(status) {
            let place = self.shared.progress.load(Relaxed);
            return Err(format!("died of signal {} in call {place}", libc::WTERMSIG(status)));
        }
        Ok(())
    }

    /// Rings are freed a moment after their process, and what they have in flight may still change
    /// the file: until then their slots hold the module. Leaks are looked for elsewhere.
    fn await_rings(&self) {
        for _ in 0..200 {
            if references() <= self.references {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end of a process.
    fn watch(&self, child: Pid, calls: &[Call]) -> Result<(), String> {
        let failed = |errno| format!("a process: {errno}");
        let process = pidfd_open(child, PidfdFlags::empty()).map_err(failed)?;
        let (mut seen, mut waited) = (0, 0);
        loop {
            let mut ends = [PollFd::new(&process, PollFlags::IN)];
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            match poll(&mut ends, Some(&second)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(failed(errno)),
            }
            let now = self.shared.progress.load(Relaxed);
            waited = if now == seen { waited + 1 } else { 0 };
            seen = now;
            if waited == PATIENCE {
                let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
                let call = calls.get((now as usize).saturating_sub(1));
                let call = call.map_or("its end".into(), |call| format!("'{call}'"));
                // It may be killable or not; who waits for it would hang, too.
                std::thread::sleep(Duration::from_secs(1));
                return Err(format!("hangs in {call}"));
            }
        }
    }

    /// Runs an input by itself: also, everything has to be given back.
    pub(crate) fn alone(&self, calls: &[Call]) -> Result<(), String> {
        let before = State::look(self.machine)?;
        let ran = self.run(calls);
        self.pool.reset();
        ran.and(before.await_again(self.machine))
    }
}
