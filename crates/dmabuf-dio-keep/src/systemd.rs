// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets and descriptors that systemd hands over and keeps: `sd_listen_fds(3)`, `sd_pid_notify_with_fds(3)`.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::SocketAddrUnix;

use crate::error::{Error, Result};
use crate::packet;

/// The first descriptor that is handed over.
const FIRST: i32 = 3;

/// What was handed over, each with its name.
///
/// # Errors
///
/// [`Error::NoSocket`] if nothing was.
///
/// To be called once, before anything else opens files: then the descriptors are those that the variables mean.
pub(crate) fn handed_over() -> Result<Vec<(String, OwnedFd)>> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let none = |what| Error::NoSocket { what };
    if variable("LISTEN_PID").parse() != Ok(std::process::id()) {
        return Err(none("LISTEN_PID is not this process"));
    }
    let count: i32 =
        variable("LISTEN_FDS").parse().map_err(|_| none("LISTEN_FDS is not a number"))?;
    let names = variable("LISTEN_FDNAMES");
    let mut names = names.split(':');
    let mut found = Vec::new();
    for number in FIRST..FIRST.saturating_add(count) {
        // SAFETY: LISTEN_PID says that these numbers were opened for this process, and nobody else owns them.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
            .map_err(|_| none("a descriptor is not open"))?;
        found.push((names.next().unwrap_or_default().to_owned(), fd));
    }
    Ok(found)
}

/// The service manager of this process.
#[derive(Debug)]
pub(crate) struct Manager(Option<OsString>);

impl Manager {
    /// The one that the environment names; without one, it is told nothing.
    pub(crate) fn of_environment() -> Self {
        Self(std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty()))
    }

    /// None, which is told nothing.
    #[cfg(test)]
    pub(crate) fn nobody() -> Self {
        Self(None)
    }

    /// Tells it that everything is loaded.
    pub(crate) fn ready(&self) -> rustix::io::Result<()> {
        self.tell("READY=1", None)
    }

    /// Has it keep a descriptor, also while no process of the service runs.
    pub(crate) fn store(&self, name: &str, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
        // By default it drops descriptors that hang up, which memory does not.
        self.tell(&format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}"), Some(fd))
    }

    /// Has it close the descriptors that it keeps under a name.
    pub(crate) fn forget(&self, name: &str) -> rustix::io::Result<()> {
        self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None)
    }

    /// Waits until it has read all that it was told before.
    pub(crate) fn wait(&self) -> rustix::io::Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        let (own, its) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        self.tell("BARRIER=1", Some(its.as_fd()))?;
        drop(its);
        loop {
            match poll(&mut [PollFd::new(&own, PollFlags::HUP)], None) {
                Err(rustix::io::Errno::INTR) => {}
                result => return result.map(drop),
            }
        }
    }

    fn tell(&self, text: &str, fd: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
        let Some(address) = &self.0 else { return Ok(()) };
        let address = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
            path => SocketAddrUnix::new(path)?,
        };
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::DGRAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::net::connect(&socket, &address)?;
        packet::send_waiting(&socket, text.as_bytes(), fd.as_slice())
    }
}
