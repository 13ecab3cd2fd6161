// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard input and output, FIFOs and sockets: where samples come from and go to, besides files
//! and devices.

use std::fmt;
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

/// The addresses, for messages.
pub(crate) const FORMS: &str =
    "FILE, -, tcp://HOST:PORT, tcp-listen://[HOST]:PORT, unix:PATH, unix-listen:PATH";

/// How often to look for a reader of a FIFO.
const LOOK: Duration = Duration::from_millis(20);
/// After how long without data a peer is asked whether it is there, and how long between nine times.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The other end of a capture or a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Standard input or output.
    Standard,
    Tcp(String),
    TcpListen(String),
    Unix(PathBuf),
    UnixListen(PathBuf),
    /// A FIFO, a terminal or another character device.
    Special(PathBuf),
}

impl Address {
    /// The address that a text names; `None` if it names a file.
    pub(crate) fn parse(text: &str, used: Use) -> Result<Option<Self>, String> {
        let Some((scheme, rest)) = scheme(text) else {
            let path = Path::new(text);
            return Ok(match (text, used) {
                ("-", _) | ("/dev/stdin", Use::Read) | ("/dev/stdout", Use::Write) => {
                    Some(Self::Standard)
                }
                _ => is_special(path).then(|| Self::Special(path.into())),
            });
        };
        let host = || rest.strip_prefix("//").filter(|address| address.contains(':'));
        Ok(Some(match scheme {
            "tcp" => Self::Tcp(host().ok_or("write tcp://HOST:PORT")?.into()),
            "tcp-listen" => {
                let address = host().ok_or("write tcp-listen://[HOST]:PORT, such as ://:5000")?;
                Self::TcpListen(address.into())
            }
            "unix" if !rest.is_empty() => Self::Unix(rest.into()),
            "unix-listen" if !rest.is_empty() => Self::UnixListen(rest.into()),
            _ => return Err(format!("write {FORMS}; for a file of that name, ./NAME")),
        }))
    }
}

/// The scheme of an address, and what follows the colon.
pub(crate) fn scheme(text: &str) -> Option<(&str, &str)> {
    let is_scheme =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    text.split_once(':').filter(|(word, _)| is_scheme(word))
}

fn is_special(path: &Path) -> bool {
    let kind = path.metadata().map(|facts| facts.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("-"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::TcpListen(address) => write!(f, "tcp-listen://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::UnixListen(path) => write!(f, "unix-listen:{}", path.display()),
            Self::Special(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The use of an open address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

impl Address {
    /// Opens it, and waits for the other end where there may be none yet. Returns the descriptor and
    /// its name; `None` if `cancel` was cancelled before.
    pub(crate) fn open(
        &self,
        used: Use,
        cancel: &CancelToken,
    ) -> Result<Option<(OwnedFd, String)>, Failure> {
        let name = self.to_string();
        Ok(match self {
            Self::Standard => Some(standard(used)?),
            Self::Tcp(address) => {
                let socket = TcpStream::connect(address).map_err(|error| {
                    let hint = "write tcp://HOST:PORT of a listener: nc -l -p PORT > samples";
                    Failure::new(FAILED, format!("{name}: cannot connect: {error}"), hint)
                })?;
                Some((kept_alive(socket), name))
            }
            Self::Unix(path) => {
                let socket = UnixStream::connect(path).map_err(|error| {
                    let hint = "name the socket of a listener: unix-listen:PATH, or socat";
                    Failure::new(FAILED, format!("{name}: cannot connect: {error}"), hint)
                })?;
                Some((socket.into(), name))
            }
            Self::TcpListen(address) => {
                let listener = listen(address).map_err(|error| cannot_listen(&name, &error))?;
                let place = listener.local_addr().map_or(name, |place| format!("tcp://{place}"));
                let accept = || listener.accept().map(|(socket, peer)| (socket, peer.to_string()));
                let peer = wait_for_peer(&listener, &place, cancel, accept)?;
                peer.map(|(socket, peer)| (kept_alive(socket), format!("tcp://{peer}")))
            }
            Self::UnixListen(path) => {
                let listener = Bound::new(path).map_err(|error| cannot_listen(&name, &error))?;
                let accept = || listener.listener.accept();
                let peer = wait_for_peer(&listener.listener, &name, cancel, accept)?;
                peer.map(|(socket, _)| (socket.into(), name))
            }
            Self::Special(path) => {
                let opened = match used {
                    Use::Read => open_to_read(path, &name, cancel),
                    Use::Write => open_to_write(path, &name, cancel),
                };
                let opened = opened.map_err(|error| {
                    let what = format!("{name}: cannot open it: {error}");
                    Failure::new(FAILED, what, "check the path and its permissions")
                })?;
                opened.map(|file| (file.into(), name))
            }
        })
    }
}

/// Whether a descriptor is that of standard output, so that a report there would be among the samples.
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

/// A peer that is gone without a word is noticed within two minutes.
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

fn cannot_listen(name: &str, error: &io::Error) -> Failure {
    let hint = "choose another address or path, or stop the program that listens there";
    Failure::new(FAILED, format!("{name}: cannot listen: {error}"), hint)
}

/// A listening Unix socket, whose path is removed with it.
struct Bound {
    listener: UnixListener,
    path: PathBuf,
}

impl Bound {
    /// Replaces a socket on which nobody listens any more.
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
) -> Result<Option<T>, Failure> {
    let failed = |error: &io::Error| {
        let what = format!("{name}: cannot accept a connection: {error}");
        Failure::new(FAILED, what, "start both ends again")
    };
    say(&format!("dmabuf-dio: waiting for a connection to {name}"));
    while !cancel.is_cancelled() {
        match poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&TICK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return accept().map(Some).map_err(|error| failed(&error)),
            Err(errno) => return Err(failed(&errno.into())),
        }
    }
    Ok(None)
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
    fn address_kinds_are_distinguished() {
        let address = |text: &str| Address::parse(text, Use::Write).expect("no error");
        let input = |text: &str| Address::parse(text, Use::Read).expect("no error");
        assert_eq!(address("-"), Some(Address::Standard));
        assert_eq!(address("/dev/stdout"), Some(Address::Standard));
        assert_eq!(input("/dev/stdin"), Some(Address::Standard));
        assert_ne!(address("/dev/stdin"), Some(Address::Standard));
        assert_ne!(input("/dev/stdout"), Some(Address::Standard));
        assert_eq!(address("tcp://host:1"), Some(Address::Tcp("host:1".into())));
        assert_eq!(address("tcp-listen://:1"), Some(Address::TcpListen(":1".into())));
        assert_eq!(address("unix:/run/x"), Some(Address::Unix("/run/x".into())));
        assert_eq!(address("unix-listen:x"), Some(Address::UnixListen("x".into())));
        assert_eq!(address("/dev/null"), Some(Address::Special("/dev/null".into())));
        for file in ["x", "./tcp:x", "/a:b", "A:b", "./-", ":x"] {
            assert_eq!(address(file), None, "{file}");
        }
        let bad =
            ["tcp:host:1", "tcp://host", "tcp-listen:1", "udp://host:1", "unix:", "unix-listen:"];
        for text in bad {
            assert!(Address::parse(text, Use::Read).is_err(), "{text}");
        }
        for text in ["-", "tcp://a:1", "tcp-listen://:1", "unix:x", "unix-listen:x", "/dev/null"] {
            assert_eq!(address(text).map(|address| address.to_string()).as_deref(), Some(text));
        }
    }

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
