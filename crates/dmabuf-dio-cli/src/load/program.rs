// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether the program of a command exists, and explains why it was not run.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

use dmabuf_dio_terminal::exit::{CANNOT_RUN, Failure, NOT_FOUND};
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

/// Programs are searched for in these folders if `$PATH` is not set, as execvp(3) does.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Fails as shells do if there is no such program, before anything is loaded for it.
///
/// # Errors
///
/// `NOT_FOUND`; `CANNOT_RUN` if it is a folder or its permissions do not allow to run it.
pub(crate) fn check(name: &OsStr) -> Result<(), Failure> {
    let mut failure = None;
    let places = places(name);
    for place in &places {
        match runnable(place) {
            Ok(()) => return Ok(()),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            // It may be in a folder that cannot be searched.
            Err(_) if places.len() > 1 && !place.exists() => {}
            // A later one may be runnable.
            Err(errno) => {
                failure.get_or_insert(errno);
            }
        }
    }
    let error = io::Error::from(failure.unwrap_or(Errno::NOENT));
    Err(why(&name.to_string_lossy(), &error))
}

/// The files that a name can mean.
fn places(name: &OsStr) -> Vec<PathBuf> {
    if name.is_empty() {
        return Vec::new();
    }
    if name.as_encoded_bytes().contains(&b'/') {
        return vec![name.into()];
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    std::env::split_paths(&path).map(|folder| folder.join(name)).collect()
}

fn runnable(path: &Path) -> rustix::io::Result<()> {
    // For the effective user, as for execve(2).
    match rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS) {
        // Old container profiles block faccessat2(2). execve(2) then reports whether it can run.
        Err(Errno::PERM) => {
            path.metadata().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        result => result?,
    }
    if path.is_dir() { Err(Errno::ISDIR) } else { Ok(()) }
}

/// Why a command was not run.
pub(crate) fn cannot_run(command: &Command, error: &io::Error) -> Failure {
    why(&command.get_program().to_string_lossy(), error)
}

fn why(name: &str, error: &io::Error) -> Failure {
    if error.kind() == ErrorKind::NotFound {
        return Failure::new(NOT_FOUND, format!("{name}: not found"), "check the name and $PATH");
    }
    Failure::new(
        CANNOT_RUN,
        format!("{name}: cannot be run: {error}"),
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => "allow more open files: ulimit -n",
            Some(libc::EAGAIN) => {
                "allow more processes: ulimit -u, and pids.max of the control group"
            }
            Some(libc::ENOMEM) => "free memory, or raise ulimit -v",
            Some(libc::EPERM | libc::ENOSYS) => {
                "allow the system calls clone3, clone and execve, for example in the seccomp profile of the container"
            }
            _ => "check its permissions: it must be a program or a script",
        },
    )
}
