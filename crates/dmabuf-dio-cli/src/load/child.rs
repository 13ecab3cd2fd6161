// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command while this process holds its files.

use std::ffi::c_int;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::ptr;

use dmabuf_dio_terminal::exit::{FAILED, Failure};

use super::program::cannot_run;

/// Signals that are passed on to the command.
const PASSED_ON: [c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// Runs the command in the foreground and returns its exit code, or 128 and the number of the signal
/// that ended it. Signals to this process are passed on to the command, except those that the
/// command itself sent. The command receives signals from the terminal directly, because it is in
/// the same process group.
///
/// # Errors
///
/// The command cannot be started, or this process was interrupted before.
pub(crate) fn run(command: &mut Command) -> Result<u8, Failure> {
    let (blocked, before) = block();
    Failure::if_interrupted()?;
    // SAFETY: the closure makes one system call, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) {
                0 => Ok(()),
                number => Err(io::Error::from_raw_os_error(number)),
            }
        });
    }
    let mut child = command.spawn().map_err(|error| cannot_run(command, &error))?;
    let status = wait(&mut child, &blocked).map_err(|error| {
        Failure::new(FAILED, format!("cannot wait for COMMAND: {error}"), "see dmesg")
    })?;
    Ok(exit_code(status))
}

/// Blocks the signals that are passed on, and SIGCHLD. Returns their set and the mask before.
fn block() -> (libc::sigset_t, libc::sigset_t) {
    // SAFETY: an all-zero sigset_t is a valid value, and both sets outlive the calls. The default
    // action of SIGCHLD is to do nothing; were it ignored, there would be no status to wait for.
    unsafe {
        let (mut wanted, mut before) = (mem::zeroed(), mem::zeroed());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::sigemptyset(&raw mut wanted);
        for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
            libc::sigaddset(&raw mut wanted, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const wanted, &raw mut before);
        (wanted, before)
    }
}

fn wait(child: &mut Child, signals: &libc::sigset_t) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is valid, and `info` outlives the call, which fills it.
        let signal = unsafe { libc::sigwaitinfo(signals, info.as_mut_ptr()) };
        // SAFETY: all-zero, or filled by the kernel; the signals waited for have a sender.
        let (code, sender) = unsafe { (info.assume_init().si_code, info.assume_init().si_pid()) };
        // The command has already received a signal that it sent to its own group.
        let is_its_own = sender.unsigned_abs() == child.id();
        if signal > 0 && signal != libc::SIGCHLD && code != libc::SI_KERNEL && !is_its_own {
            // SAFETY: the call takes numbers. The child has not been waited for, so that the number
            // is still its own.
            unsafe { libc::kill(child.id() as i32, signal) };
        }
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}
