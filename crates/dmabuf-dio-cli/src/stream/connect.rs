// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens standard input and output, FIFOs and sockets, and waits for their other end.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dmabuf_dio::CancelToken;
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE, say};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::args::address::{Address, Use};

/// How often to look for a reader of a FIFO.
const LOOK: Duration = Duration::from_millis(20);
/// The time without data until a peer is probed, and the time between the nine probes.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl Address {
    /// Opens it, and waits for the other end where there may be none yet. Returns the descriptor and
    /// its name. Fails if `cancel` was cancelled before.
    pub(crate) fn open(
        &self,
        used: Use,
        cancel: &CancelToken,
    ) -> Result<(OwnedFd, String), Failure> {
        let name = self.to_string();
        let failed = |what: &str, error: io::Error, hint: &str| {
            Failure::new(FAILED, format!("{name}: cannot {what}: {error}"), hint)
        };
        let busy = "choose another address or path, or stop the program that listens there";
        match self {
            Self::Standard => standard(used),
            Self::Tcp(address) => {
                let hint = "write tcp://HOST:PORT of a listener: nc -l -p PORT > samples";
                let socket = TcpStream::connect(address);
                let socket = socket.map_err(|error| failed("connect", error, hint))?;
                Ok((kept_alive(socket), name))
            }
            Self::Unix(path) => {
                let hint = "name the socket of a listener: unix-listen:PATH, or socat";
                let socket = UnixStream::connect(path);
                Ok((socket.map_err(|error| failed("connect", error, hint))?.into(), name))
            }
            Self::TcpListen(address) => {
                let listener = listen(address).map_err(|error| failed("listen", error, busy))?;
                let place = listener.local_addr().map_or(name, |place| format!("tcp://{place}"));
                let (socket, peer) =
                    wait_for_peer(&listener, &place, cancel, || listener.accept())?;
                Ok((kept_alive(socket), format!("tcp://{peer}")))
            }
            Self::UnixListen(path) => {
                let bound = Bound::new(path).map_err(|error| failed("listen", error, busy))?;
                let listener = &bound.listener;
                let socket = wait_for_peer(listener, &name, cancel, || listener.accept())?.0;
                Ok((socket.into(), name))
            }
            Self::Special(path) => {
                let opened = match used {
                    Use::Read => open_to_read(path, &name, cancel),
                    Use::Write => open_to_write(path, &name, cancel),
                };
                let hint = "check the path and its permissions";
                let file = opened.map_err(|error| failed("open it", error, hint))?;
                Ok((file.ok_or_else(nobody)?.into(), name))
            }
        }
    }
}

/// Interrupted while waiting for the other end.
pub(super) fn nobody() -> Failure {
    Failure::new(FAILED, "interrupted before the other end connected", "run it again")
}

/// Whether a descriptor is standard output. A report there would be mixed with the samples.
pub(crate) fn is_stdout(fd: impl AsFd) -> bool {
    let identity = |facts: rustix::fs::Stat| (facts.st_dev, facts.st_ino);
    let ours = rustix::fs::fstat(io::stdout()).map(identity);
    ours.is_ok() && ours == rustix::fs::fstat(fd).map(identity)
}

fn standard(used: Use) -> Result<(OwnedFd, String), Failure> {
    let (input, output) = (io::stdin(), io::stdout());
    let (fd, name, terminal) = match used {
        Use::Read => (input.as_fd(), "standard input", input.is_terminal()),
        Use::Write => (output.as_fd(), "standard output", output.is_terminal()),
    };
    if terminal {
        let hint = "connect it to a program or a file: dmabuf-dio capture … --to - | program";
        return Err(Failure::new(USAGE, format!("{name} is a terminal"), hint));
    }
    let own = rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(|error| {
        let hint = "check that it is open";
        Failure::new(FAILED, format!("{name}: cannot use it: {error}"), hint)
    })?;
    Ok((own, name.to_owned()))
}

/// A peer that disappears without closing is noticed within two minutes.
fn kept_alive(socket: TcpStream) -> OwnedFd {
    use rustix::net::sockopt;

    let _ = sockopt::set_socket_keepalive(&socket, true)
        .and_then(|()| sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE.0))
        .and_then(|()| sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE.1));
    socket.into()
}

/// Without a host, on all interfaces.
fn listen(address: &str) -> io::Result<TcpListener> {
    match address.strip_prefix(':') {
        None => TcpListener::bind(address),
        Some(port) => TcpListener::bind(format!("[::]:{port}"))
            .or_else(|_| TcpListener::bind(format!("0.0.0.0:{port}"))),
    }
}

/// A listening Unix socket, whose path is removed with it.
struct Bound {
    listener: UnixListener,
    path: PathBuf,
}

impl Bound {
    /// Replaces a socket that no process listens on.
    fn new(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && is_stale(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            result => result?,
        };
        Ok(Self { listener, path: path.into() })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_stale(path: &Path) -> bool {
    let refused = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
    path.metadata().is_ok_and(|facts| facts.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|error| refused(&error))
}

/// Waits for the first peer.
fn wait_for_peer<T>(
    listener: impl AsFd,
    name: &str,
    cancel: &CancelToken,
    accept: impl FnOnce() -> io::Result<T>,
) -> Result<T, Failure> {
    let failed = |error: &io::Error| {
        let what = format!("{name}: cannot accept a connection: {error}");
        Failure::new(FAILED, what, "start both ends again")
    };
    say(&format!("dmabuf-dio: waiting for a connection to {name}"));
    while !cancel.is_cancelled() {
        match poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&TICK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return accept().map_err(|error| failed(&error)),
            Err(errno) => return Err(failed(&errno.into())),
        }
    }
    Err(nobody())
}

/// Waits for a reader: without one, a FIFO cannot be written.
fn open_to_write(path: &Path, name: &str, cancel: &CancelToken) -> io::Result<Option<File>> {
    let mut told = false;
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let mut options = File::options();
    options.write(true).custom_flags(nonblock);
    while !cancel.is_cancelled() {
        match options.open(path) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                if !std::mem::replace(&mut told, true) {
                    say(&format!("dmabuf-dio: waiting for a reader of {name}"));
                }
                std::thread::sleep(LOOK);
            }
            result => return result.map(Some),
        }
    }
    Ok(None)
}

/// Waits for a writer: without one, a FIFO looks as if it had ended.
fn open_to_read(path: &Path, name: &str, cancel: &CancelToken) -> io::Result<Option<File>> {
    let mut told = false;
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(nonblock).open(path)?;
    while !cancel.is_cancelled() {
        match poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&TICK)) {
            Ok(0) if !std::mem::replace(&mut told, true) => {
                say(&format!("dmabuf-dio: waiting for samples in {name}"));
            }
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(Some(file)),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stale_sockets_are_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        // std does not remove the path.
        drop(UnixListener::bind(&path).expect("bound"));
        let bound = Bound::new(&path).expect("bound");
        assert!(Bound::new(&path).is_err());
        assert!(path.exists());
        drop(bound);
        assert!(!path.exists());
        std::fs::write(&path, "a file").expect("written");
        assert!(Bound::new(&path).is_err());
        assert!(path.exists());
    }
}
