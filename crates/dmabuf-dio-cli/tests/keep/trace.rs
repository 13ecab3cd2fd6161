// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kills a program at one of its system calls: at places in its work, whatever the time is.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

/// How a traced program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was killed.
    Killed,
    /// It ended by itself, with success or without, after so many stops at system calls of its first thread.
    Exited { success: bool, stops: u64 },
}

/// Runs a program, and kills it when its first thread has stopped so often: a system call stops it before and after.
pub(crate) fn run(command: &mut Command, kill_at: u64) -> End {
    // SAFETY: the closure makes a system call that takes numbers, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    #[expect(clippy::zombie_processes, reason = "waitpid(2) is called below, as it tells of stops")]
    let child = command.spawn().expect("started");
    let process = i32::try_from(child.id()).expect("a number");
    let mut stops = 0;
    loop {
        let mut status = 0;
        // SAFETY: the number is the child's, which nobody else waits for, and `status` outlives the call.
        let found = unsafe { libc::waitpid(process, &raw mut status, 0) };
        assert_eq!(found, process, "{}", std::io::Error::last_os_error());
        if libc::WIFEXITED(status) {
            return End::Exited { success: libc::WEXITSTATUS(status) == 0, stops };
        }
        if libc::WIFSIGNALED(status) {
            return End::Killed;
        }
        stops += 1;
        if stops == kill_at {
            // SAFETY: the call takes numbers; the child has not been waited for.
            unsafe { libc::kill(process, libc::SIGKILL) };
            continue;
        }
        // SAFETY: the child is stopped, and traced by this thread.
        unsafe {
            libc::ptrace(
                libc::PTRACE_SYSCALL,
                process,
                ptr::null_mut::<u8>(),
                ptr::null_mut::<u8>(),
            );
        }
    }
}
