// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole process stands still in the middle of a call, and goes on: the freezer of control
//! groups, or stop signals.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use crate::control::{Group, leave};

/// How often during a call
const TIMES: u32 = 3;
/// For how long, in microseconds
const STILL: u32 = 1000;

/// Makes a call, during which another process makes this one stand still. False: nobody could.
pub(crate) fn around<T>(microseconds: u64, stop: bool, call: impl FnOnce() -> T) -> (T, bool) {
    match Freezer::start(microseconds as u32, stop) {
        Ok(freezer) => {
            let result = call();
            drop(freezer);
            (result, true)
        }
        Err(_) => (call(), false),
    }
}

/// The other process.
struct Freezer {
    child: libc::pid_t,
    /// `None`: stop signals
    group: Option<Group>,
}

impl Freezer {
    fn start(microseconds: u32, stop: bool) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("the freezer: {error}");
        let group = if stop { None } else { Some(Group::create("torture-frozen")?) };
        let state = match &group {
            Some(group) => Some(
                File::options().write(true).open(group.path("cgroup.freeze")).map_err(failed)?,
            ),
            None => None,
        };
        let (begins, begun) = rustix::pipe::pipe().map_err(|errno| failed(errno.into()))?;
        let parent = rustix::process::getpid().as_raw_nonzero().get();
        // Threads may run: the child makes system calls only.
        let still = |state: &Option<File>, still: bool| {
            let word: &[u8] = if still { b"1" } else { b"0" };
            // SAFETY: the word is valid for its length.
            unsafe {
                match state {
                    Some(file) => drop(libc::write(file.as_raw_fd(), word.as_ptr().cast(), 1)),
                    None if still => drop(libc::kill(parent, libc::SIGSTOP)),
                    None => drop(libc::kill(parent, libc::SIGCONT)),
                }
            }
        };
        // SAFETY: see above.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let _ = rustix::io::read(&begins, &mut [0]);
            for _ in 0..TIMES {
                // SAFETY: takes a number.
                unsafe { libc::usleep(microseconds) };
                still(&state, true);
                // SAFETY: takes a number.
                unsafe { libc::usleep(STILL) };
                still(&state, false);
            }
            // SAFETY: ends the child, without running anything of the parent.
            unsafe { libc::_exit(0) }
        }
        if child < 0 {
            return Err(failed(std::io::Error::last_os_error()));
        }
        let freezer = Self { child, group };
        // The child stays outside. It begins, and so ends, in any case.
        let entered = freezer.group.as_ref().map_or(Ok(()), Group::enter);
        rustix::io::write(&begun, b"x").map_err(|errno| failed(errno.into()))?;
        entered.map(|()| freezer)
    }
}

impl Drop for Freezer {
    /// Afterwards nothing stands still.
    fn drop(&mut self) {
        // SAFETY: the child is this process's, and has not been waited for.
        while unsafe { libc::waitpid(self.child, std::ptr::null_mut(), 0) } < 0
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
        if self.group.is_some() {
            let _ = leave();
        }
    }
}
