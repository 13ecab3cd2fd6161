// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hands out descriptors to everybody who connects.
//!
//! To connect is to ask: nothing that comes from the other end is read. Each connection is kept until the
//! other end closes it, and its packet is received or gone: a packet that nobody receives has its descriptors in
//! flight, and the kernel limits how many of those a user may have: `ETOOMANYREFS` in unix(7). So each user has a
//! limited number of connections.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use dmabuf_dio::{CancelToken, Kind};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::error::{Error, Result};
use crate::packet::{Header, Held, is_in_flight, send};

/// Connections that a user may have at a time.
pub const CONNECTIONS: usize = 64;

/// How many are answered at a socket before the others, and a signal, are looked at.
const AT_A_TIME: usize = 64;

/// A file that is held: descriptors, which are handed out to whom they are for.
#[derive(Debug)]
pub(crate) struct HeldFile {
    /// What to say of it.
    pub(crate) place: std::path::PathBuf,
    pub(crate) length: u64,
    /// A sealed memfd, open for reading.
    pub(crate) memfd: OwnedFd,
    /// The dma-buf over its pages, if there is one.
    pub(crate) dma_buf: Option<OwnedFd>,
}

/// A listening socket, and whether those who may connect to it may have the dma-buf.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: OwnedFd,
    /// Whoever has a dma-buf can write it, for all who use it.
    pub(crate) gives_dma_buf: bool,
}

impl Listener {
    /// Takes over a socket of the type `SOCK_SEQPACKET` that listens. `gives_dma_buf`: whether it hands out dma-bufs,
    /// where there are some: whoever has one can change what everybody else sees.
    pub fn new(socket: OwnedFd, gives_dma_buf: bool) -> Self {
        Self { socket, gives_dma_buf }
    }
}

/// A packet, as all get it at a socket.
type Packet<'h> = (Vec<u8>, Vec<BorrowedFd<'h>>);

/// Holds files, and hands out their descriptors.
#[derive(Debug)]
pub struct Holder {
    name: String,
    is_folder: bool,
    files: Vec<HeldFile>,
    listeners: Vec<Listener>,
}

/// A connection, and its user.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    user: u32,
    /// The other end has closed it, or sent something, which nobody is asked to do.
    is_over: bool,
}

impl Holder {
    /// A holder of files that are loaded.
    pub(crate) fn new(
        name: &str,
        is_folder: bool,
        files: Vec<HeldFile>,
        listeners: Vec<Listener>,
    ) -> Self {
        Self { name: name.to_owned(), is_folder, files, listeners }
    }

    /// Serves until it is cancelled. A signal that cancels has to interrupt system calls.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the kernel refuses to wait for connections; [`Error::Source`] if no packet can say what is held.
    pub fn serve(&self, cancel: &CancelToken) -> Result<()> {
        let failed = |errno: Errno| Error::Io {
            path: self.name.clone().into(),
            step: "wait for connections",
            error: errno.into(),
        };
        for listener in &self.listeners {
            rustix::io::ioctl_fionbio(&listener.socket, true).map_err(failed)?;
        }
        let packets: Vec<_> = self
            .listeners
            .iter()
            .map(|listener| self.packet(listener.gives_dma_buf))
            .collect::<Result<_>>()?;
        let mut connections: Vec<Connection> = Vec::new();
        let mut pause = false;
        while !cancel.is_cancelled() {
            let ready = self.wait(&mut connections, pause).map_err(failed)?;
            // One that is over counts until its packet is received, or the other end is closed by all who have it.
            connections
                .retain(|connection| !connection.is_over || is_in_flight(&connection.socket));
            pause = false;
            let answered = self.listeners.iter().zip(&packets).zip(ready);
            for ((listener, packet), _) in answered.filter(|(_, ready)| *ready) {
                pause |= accept(listener, packet, &mut connections);
            }
        }
        Ok(())
    }

    /// Waits. Returns which listeners have somebody, and notes which connections are over. `pause`: for connections
    /// only.
    fn wait(&self, connections: &mut [Connection], pause: bool) -> rustix::io::Result<Vec<bool>> {
        /// A signal may come just before the call, and then not interrupt it. Nothing tells when the packet of a
        /// connection that is over is received.
        const LONGEST: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
        let of_listeners = if pause { PollFlags::empty() } else { PollFlags::IN };
        let listeners =
            self.listeners.iter().map(|listener| PollFd::new(&listener.socket, of_listeners));
        // One that is over would not let it wait.
        let open = connections.iter().filter(|connection| !connection.is_over);
        let flags = PollFlags::IN | PollFlags::RDHUP;
        let open = open.map(|connection| PollFd::new(&connection.socket, flags));
        let mut all: Vec<_> = listeners.chain(open).collect();
        match poll(&mut all, Some(&LONGEST)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut ready: Vec<_> = all.iter().map(|socket| !socket.revents().is_empty()).collect();
        let over = ready.split_off(self.listeners.len());
        let open = connections.iter_mut().filter(|connection| !connection.is_over);
        open.zip(over).for_each(|(connection, is_over)| connection.is_over = is_over);
        Ok(ready)
    }

    /// The packet for a socket.
    fn packet(&self, gives_dma_buf: bool) -> Result<Packet<'_>> {
        let mut held = Vec::new();
        let mut fds = Vec::new();
        for file in &self.files {
            let dma_buf = file.dma_buf.as_ref().filter(|_| gives_dma_buf);
            let kind = if dma_buf.is_some() { Kind::DmaBuf } else { Kind::Memfd };
            held.push(Held::new(file.place.clone(), file.length, kind));
            fds.push(dma_buf.unwrap_or(&file.memfd).as_fd());
        }
        Ok((Header::new(&self.name, self.is_folder, held).text()?, fds))
    }
}

/// Answers those who wait at a socket, some of them. Returns whether to pause: too many files are open.
fn accept(
    listener: &Listener,
    (header, fds): &Packet<'_>,
    connections: &mut Vec<Connection>,
) -> bool {
    let mut of_user: HashMap<u32, usize> = HashMap::new();
    for connection in connections.iter() {
        *of_user.entry(connection.user).or_default() += 1;
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for _ in 0..AT_A_TIME {
        let socket = match rustix::net::accept_with(&listener.socket, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN) => return false,
            // Somebody has gone again.
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(_) => return true,
        };
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&socket) else { continue };
        let user = peer.uid.as_raw();
        let count = of_user.entry(user).or_default();
        // A refused connection is closed, which the other end takes for the end.
        if *count < CONNECTIONS && send(&socket, header, fds).is_ok() {
            *count += 1;
            connections.push(Connection { socket, user, is_over: false });
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt as _;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    use super::*;
    use crate::packet::receive;

    /// The variable that tells the other user's process where the socket is.
    const SOCKET: &str = "DMABUF_DIO_TEST_SOCKET";

    fn seqpacket() -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .expect("a socket")
    }

    fn listen(path: &Path) -> OwnedFd {
        let socket = seqpacket();
        rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("short")).expect("bound");
        rustix::net::listen(&socket, 4096).expect("listens");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).expect("a mode");
        socket
    }

    fn memfd(bytes: &[u8]) -> OwnedFd {
        let fd =
            rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
        rustix::io::write(&fd, bytes).expect("written");
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        std::fs::File::open(path).expect("again").into()
    }

    /// Serves while `work` runs.
    fn while_held(files: Vec<HeldFile>, listeners: Vec<Listener>, work: impl FnOnce()) {
        let holder = Holder::new("name", true, files, listeners);
        let cancel = CancelToken::new();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| holder.serve(&cancel));
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            cancel.cancel();
            server.join().expect("no panic").expect("served");
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        });
    }

    fn file(place: &str, content: &[u8], dma_buf: Option<&[u8]>) -> HeldFile {
        HeldFile {
            place: place.into(),
            length: content.len() as u64,
            memfd: memfd(content),
            dma_buf: dma_buf.map(memfd),
        }
    }

    fn text(fd: &OwnedFd) -> String {
        let mut text = String::new();
        let mut file =
            std::fs::File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("again");
        file.read_to_string(&mut text).expect("text");
        text
    }

    #[test]
    fn everybody_gets_the_descriptors_that_the_socket_gives() {
        let folder = tempfile::tempdir().expect("a folder");
        let [plain, faces] = ["plain", "faces"].map(|name| folder.path().join(name));
        let listeners =
            vec![Listener::new(listen(&plain), false), Listener::new(listen(&faces), true)];
        // Stands for a dma-buf: the holder only hands it out.
        let files = vec![file("a", b"first", Some(b"face")), file("b/c", b"second", None)];
        while_held(files, listeners, || {
            for (socket, kinds, texts) in [
                (&plain, [Kind::Memfd, Kind::Memfd], ["first", "second"]),
                (&faces, [Kind::DmaBuf, Kind::Memfd], ["face", "second"]),
            ] {
                let received = receive(socket).expect("an answer");
                let header = &received.header;
                assert!(header.name == "name" && header.is_folder, "{header:?}");
                let places: Vec<_> = header.files.iter().map(|file| file.place.clone()).collect();
                assert_eq!(places, [PathBuf::from("a"), PathBuf::from("b/c")]);
                assert_eq!(header.files.iter().map(|file| file.kind).collect::<Vec<_>>(), kinds);
                assert_eq!((header.files[0].length, header.files[1].length), (5, 6));
                let found: Vec<_> = received.descriptors.iter().map(text).collect();
                assert_eq!(found, texts);
            }
        });
        assert!(receive(&plain).is_err(), "nobody listens any more");
    }

    #[test]
    fn what_a_client_sends_ends_its_connection() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let listeners = vec![Listener::new(listen(&path), false)];
        while_held(vec![file("a", b"x", None)], listeners, || {
            let client = seqpacket();
            rustix::net::connect(&client, &SocketAddrUnix::new(&path).expect("short"))
                .expect("connected");
            let mut byte = [0; 4096];
            assert!(rustix::io::read(&client, &mut byte).expect("the header") > 1);
            rustix::io::write(&client, b"{}").expect("sent");
            let end = rustix::io::read(&client, &mut byte);
            assert!(matches!(end, Ok(0) | Err(Errno::CONNRESET)), "{end:?}");
            receive(&path).expect("the others are served");
        });
    }

    #[test]
    fn who_sends_without_receiving_is_counted_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let address = SocketAddrUnix::new(&path).expect("short");
        let listeners = vec![Listener::new(listen(&path), false)];
        while_held(vec![file("a", b"x", None)], listeners, || {
            let asked = |number| {
                let client = seqpacket();
                rustix::net::connect(&client, &address).expect("connected");
                let mut come = [PollFd::new(&client, PollFlags::IN)];
                poll(&mut come, None).expect("an answer, or the end");
                // Is refused when the connection is closed already.
                let _ = match number % 2 {
                    0 => rustix::io::write(&client, b"x").map(drop),
                    _ => rustix::net::shutdown(&client, rustix::net::Shutdown::Both),
                };
                client
            };
            let many: Vec<_> = (0..3 * CONNECTIONS).map(asked).collect();
            let unread = |client: &&OwnedFd| {
                let mut header = [0; 4096];
                rustix::io::read(client, &mut header).is_ok_and(|length| length > 0)
            };
            assert_eq!(many.iter().filter(unread).count(), CONNECTIONS, "packets were in flight");
            // What is received counts no longer.
            while receive(&path).is_err() {}
            drop(many);
        });
    }

    #[test]
    fn flood_of_connections_ends_no_turn_late() {
        const ALONE: &str = "DMABUF_DIO_TEST_FEW_FILES";
        const TEST: &str = "holder::tests::flood_of_connections_ends_no_turn_late";
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let address = SocketAddrUnix::new(&path).expect("short");
        let listener = Listener::new(listen(&path), false);
        rustix::io::ioctl_fionbio(&listener.socket, true).expect("does not block");
        let client = |_| {
            let client = seqpacket();
            rustix::net::connect(&client, &address).expect("connected");
            client
        };
        let (waiting, mut connections) = (2 * AT_A_TIME, Vec::new());
        let clients: Vec<_> = (0..waiting).map(client).collect();
        let packet = (b"x".to_vec(), Vec::new());
        if std::env::var_os(ALONE).is_some() {
            let full: Vec<_> = std::iter::from_fn(|| rustix::io::dup(&clients[0]).ok()).collect();
            assert!(accept(&listener, &packet, &mut connections), "it would spin");
            drop(full);
            assert!(!accept(&listener, &packet, &mut connections));
            return;
        }
        assert!(!accept(&listener, &packet, &mut connections));
        let answered = |client: &&OwnedFd| {
            let come = &mut [PollFd::new(client, PollFlags::IN)];
            poll(come, Some(&rustix::time::Timespec::default())).expect("polled") > 0
        };
        assert_eq!(clients.iter().filter(answered).count(), AT_A_TIME);
        // A process of its own can have no file left.
        let mut alone = Command::new("sh");
        alone.args(["-c", "ulimit -n 400 && exec \"$@\"", "sh"]);
        alone.arg(std::env::current_exe().expect("this program")).args(["--exact", TEST]);
        assert!(alone.env(ALONE, "1").status().expect("started").success());
    }

    #[test]
    fn user_who_never_receives_does_not_stop_another() {
        const MANY: usize = 2000;
        if let Some(socket) = std::env::var_os(SOCKET) {
            receive(Path::new(&socket)).expect("another user is served");
            return;
        }
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root can be another user");
        }
        let own = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        if own.maximum.is_some_and(|most| most < 2 * MANY as u64 + 500) {
            return println!("skipped: too few files may be open");
        }
        let all = rustix::process::Rlimit { current: own.maximum, maximum: own.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, all).expect("a limit");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("a mode");
        let path = folder.path().join("s");
        let address = SocketAddrUnix::new(&path).expect("short");
        let listeners = vec![Listener::new(listen(&path), false)];
        while_held(vec![file("a", b"x", None)], listeners, || {
            let many: Vec<_> = (0..MANY)
                .map(|_| {
                    let client = seqpacket();
                    rustix::net::connect(&client, &address).expect("connected");
                    client
                })
                .collect();
            let program = std::env::current_exe().expect("this program");
            let mut other = Command::new(program);
            other.args(["--exact", "holder::tests::user_who_never_receives_does_not_stop_another"]);
            let status = other.env(SOCKET, &path).uid(65_534).status();
            match status {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    println!("skipped: another user cannot run this program");
                }
                status => assert!(status.expect("started").success()),
            }
            let mut byte = [0; 4096];
            let mut read = |client: &OwnedFd| rustix::io::read(client, &mut byte).unwrap_or(0);
            let served = many.iter().filter(|client| read(client) > 0).count();
            assert_eq!(served, CONNECTIONS, "of one user");
            // They are served again when the others are gone.
            drop(many);
            while receive(&path).is_err() {}
        });
    }
}
