// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restricted surroundings for a process: a blocked call, missing folders, low limits, other users.

use std::ffi::CStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::filter;

/// The restrictions of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Surroundings {
    /// Nothing.
    Usual,
    /// A system call by its number; it fails with this error.
    Call(libc::c_long, i32),
    /// This folder is hidden: it appears empty, and nothing can be created in it.
    Folder(&'static CStr),
    /// Limits: resources and their values.
    Limits(&'static [(libc::__rlimit_resource_t, u64)]),
    /// The same limits, as the user `nobody`.
    Nobody(&'static [(libc::__rlimit_resource_t, u64)]),
    /// A PID namespace in which memfds cannot be executed: `vm.memfd_noexec` = 2.
    NoExecutable,
    /// A user namespace without user names.
    UserNamespace,
}

/// User ID of `nobody`.
const NOBODY: u32 = 65534;

impl Surroundings {
    /// Puts the process of `command` there, before it executes its program.
    pub(crate) fn apply(self, command: &mut Command) {
        // SAFETY: the closure makes system calls only.
        unsafe { command.pre_exec(move || self.enter()) };
    }

    fn enter(self) -> io::Result<()> {
        match self {
            Self::Usual => Ok(()),
            Self::Call(call, errno) => filter::block(call, errno),
            Self::Folder(path) => hide(path),
            Self::Limits(limits) => limit(limits),
            Self::Nobody(limits) => {
                // SAFETY: the calls take numbers.
                check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
                // SAFETY: as above.
                check(unsafe { libc::setgid(NOBODY) })?;
                // SAFETY: as above.
                check(unsafe { libc::setuid(NOBODY) })?;
                limit(limits)
            }
            Self::NoExecutable => no_executable(),
            // SAFETY: the call takes a number.
            Self::UserNamespace => check(unsafe { libc::unshare(libc::CLONE_NEWUSER) }),
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn limit(limits: &[(libc::__rlimit_resource_t, u64)]) -> io::Result<()> {
    limits.iter().try_for_each(|(resource, value)| {
        let limit = libc::rlimit { rlim_cur: *value, rlim_max: *value };
        // SAFETY: the limit exists.
        check(unsafe { libc::setrlimit(*resource, &raw const limit) })
    })
}

/// Continues in the first process of a new PID namespace, which has this setting of its own.
fn no_executable() -> io::Result<()> {
    // SAFETY: the calls take numbers, and strings that end with a zero.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWPID))?;
        match libc::fork() {
            0 => {}
            -1 => return Err(io::Error::last_os_error()),
            child => {
                // The child reports the start of the program, so copies of the pipe are closed here.
                libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
                let mut status = 0;
                libc::waitpid(child, &raw mut status, 0);
                libc::_exit(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 125 });
            }
        }
        let setting = libc::open(c"/proc/sys/vm/memfd_noexec".as_ptr(), libc::O_WRONLY);
        let written = libc::write(setting, c"2".as_ptr().cast(), 1);
        libc::close(setting);
        check(if written == 1 { 0 } else { -1 })
    }
}

/// Mounts an empty file system over a folder, for this process only.
fn hide(path: &CStr) -> io::Result<()> {
    // SAFETY: the call takes nothing.
    let user = if unsafe { libc::geteuid() } == 0 { 0 } else { libc::CLONE_NEWUSER };
    // SAFETY: the call takes a number.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS | user) })?;
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let none = std::ptr::null();
    // SAFETY: the strings end with a zero; none may be null where the call does not look at them.
    check(unsafe { libc::mount(none, c"/".as_ptr(), none, private, none.cast()) })?;
    let (tmpfs, options) = (c"tmpfs".as_ptr(), c"size=4k".as_ptr().cast());
    // SAFETY: as above.
    check(unsafe { libc::mount(tmpfs, path.as_ptr(), tmpfs, libc::MS_RDONLY, options) })
}
