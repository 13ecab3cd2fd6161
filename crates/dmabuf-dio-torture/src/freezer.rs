// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole process stands still in the middle of a call, and goes on: by the freezer of control
//! groups, by stop signals, or as the machine is suspended (up to the step that freezes all tasks).

use std::fs::File;
use std::os::fd::AsRawFd as _;

use crate::control::{Group, leave};

/// How often during a call
const TIMES: u32 = 3;
/// For how long, in microseconds
const STILL: u32 = 1000;

/// What makes the process stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Still {
    Frozen,
    Stopped,
    Suspended,
}

impl Still {
    pub(crate) fn of(number: u64) -> Self {
        match number {
            0 => Self::Frozen,
            1 => Self::Stopped,
            _ => Self::Suspended,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Frozen => "frozen in a call",
            Self::Stopped => "stopped in a call",
            Self::Suspended => "suspended in a call",
        }
    }
}

/// Lets the machine be suspended for a moment without a device that sleeps. False if the kernel cannot
/// do that.
pub(crate) fn prepare() -> bool {
    let write = |path: &str, word| std::fs::write(path, word).is_ok();
    write("/sys/power/pm_test", "freezer")
        && write("/sys/module/suspend/parameters/pm_test_delay", "0")
}

/// Makes a call, during which another process makes this one stand still. False: nobody could.
pub(crate) fn around<T>(microseconds: u64, how: Still, call: impl FnOnce() -> T) -> (T, bool) {
    match Freezer::start(microseconds as u32, how) {
        Ok(freezer) => {
            let result = call();
            (result, freezer.end())
        }
        Err(_) => (call(), false),
    }
}

/// The other process.
struct Freezer {
    child: libc::pid_t,
    group: Option<Group>,
}

/// Makes a process stand still, or go on, by system calls alone. `file`: the state of its group or of
/// the machine. False: that failed.
fn hold(how: Still, file: Option<&File>, process: libc::pid_t, still: bool) -> bool {
    let write = |word: &[u8]| {
        // SAFETY: the word is valid for its length.
        file.is_some_and(|file| unsafe {
            libc::write(file.as_raw_fd(), word.as_ptr().cast(), word.len()) >= 0
        })
    };
    match (how, still) {
        (Still::Frozen, _) => write(if still { b"1" } else { b"0" }),
        // SAFETY: takes numbers.
        (Still::Stopped, true) => unsafe { libc::kill(process, libc::SIGSTOP) == 0 },
        // SAFETY: takes numbers.
        (Still::Stopped, false) => unsafe { libc::kill(process, libc::SIGCONT) == 0 },
        // Returns when all go on again.
        (Still::Suspended, true) => write(b"freeze"),
        (Still::Suspended, false) => true,
    }
}

impl Freezer {
    fn start(microseconds: u32, how: Still) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("the freezer: {error}");
        let group = match how {
            Still::Frozen => Some(Group::create("torture-frozen")?),
            _ => None,
        };
        let path = match (&group, how) {
            (Some(group), _) => Some(group.path("cgroup.freeze")),
            (None, Still::Suspended) => Some("/sys/power/state".into()),
            (None, _) => None,
        };
        let open = |path| File::options().write(true).open(path).map_err(failed);
        let file = path.map(open).transpose()?;
        let (begins, begun) = rustix::pipe::pipe().map_err(|errno| failed(errno.into()))?;
        let parent = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: threads may run: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let _ = rustix::io::read(&begins, &mut [0]);
            let mut held = true;
            for _ in 0..TIMES {
                // SAFETY: takes a number.
                unsafe { libc::usleep(microseconds) };
                held &= hold(how, file.as_ref(), parent, true);
                // SAFETY: takes a number.
                unsafe { libc::usleep(STILL) };
                held &= hold(how, file.as_ref(), parent, false);
            }
            // SAFETY: ends the child, without running anything of the parent.
            unsafe { libc::_exit(i32::from(!held)) }
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

    /// Afterwards nothing stands still. False: nothing did.
    fn end(mut self) -> bool {
        self.wait()
    }

    fn wait(&mut self) -> bool {
        let mut status = 0;
        // SAFETY: the child is this process's, and has not been waited for.
        while unsafe { libc::waitpid(self.child, &raw mut status, 0) } < 0
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
        self.child = 0;
        let group = self.group.take();
        if group.is_some() {
            let _ = leave();
        }
        status == 0
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        if self.child != 0 {
            self.wait();
        }
    }
}
