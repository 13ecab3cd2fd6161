// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pipe, a socket or another descriptor that bytes are copied to or from, without blocking.
//!
//! Pages of a block are never passed to a pipe (vmsplice(2)): a reader can pass them on (tee(2),
//! splice(2) to a socket), and nothing reports the end of their last use, so the ring could not
//! fill the block again. Besides, vmsplice(2) does not accept the mapping of a dma-buf.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::AddressFamily;

use dmabuf_dio::Errno;
use dmabuf_dio::lend::Mapping;

use crate::error::{Result, failed, from_os};

/// A write of at most this many bytes to a pipe is made as a whole, or not at all (`PIPE_BUF`). It
/// is also the smallest page: longer writes are cut only at its multiples.
const PIPE_BUF: u64 = 4096;
/// Most bytes per call.
const MOST: u64 = 1 << 20;
/// A Unix socket queues this many bytes as one piece.
const UNIX_PIECE: u64 = 32 << 10;
/// The requested capacity of a pipe in bytes: the most for users without privileges.
const PIPE_SIZE: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pipe,
    UnixSocket,
    Socket,
    /// A terminal, another character device, a file.
    Other,
}

/// The direction of a descriptor's use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
}

#[derive(Debug)]
pub(super) struct Descriptor {
    fd: OwnedFd,
    kind: Kind,
    used: Use,
    /// Calls may block: poll(2) comes first.
    polls: bool,
}

impl Descriptor {
    pub(super) fn new(name: &str, fd: OwnedFd, used: Use) -> Result<Self> {
        let call = |what, errno| failed(name, what, from_os(errno));
        let facts = rustix::fs::fstat(&fd).map_err(|errno| call("examine", errno))?;
        let (fd, kind, polls) = match FileType::from_raw_mode(facts.st_mode) {
            FileType::Fifo => {
                let flags = rustix::fs::fcntl_getfl(&fd).map_err(|errno| call("use", errno))?;
                let own = nonblocking_pipe(&fd, used);
                let polls = own.is_none() && !flags.contains(OFlags::NONBLOCK);
                let fd = own.unwrap_or(fd);
                // At most; a smaller one works, too.
                if rustix::pipe::fcntl_getpipe_size(&fd).is_ok_and(|size| size < PIPE_SIZE) {
                    let _ = rustix::pipe::fcntl_setpipe_size(&fd, PIPE_SIZE);
                }
                (fd, Kind::Pipe, polls)
            }
            FileType::Socket => {
                let flags = rustix::fs::fcntl_getfl(&fd).map_err(|errno| call("use", errno))?;
                rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)
                    .map_err(|errno| call("use", errno))?;
                let domain = rustix::net::sockopt::socket_domain(&fd);
                let unix = domain == Ok(AddressFamily::UNIX);
                (fd, if unix { Kind::UnixSocket } else { Kind::Socket }, false)
            }
            _ => (fd, Kind::Other, true),
        };
        Ok(Self { fd, kind, used, polls })
    }

    /// Text for users.
    pub(super) fn how(&self) -> &'static str {
        match (self.kind, self.used) {
            (Kind::Pipe, Use::Write) => "a pipe, copied by the CPU",
            (Kind::Pipe, Use::Read) => "from a pipe, copied by the CPU",
            (Kind::UnixSocket | Kind::Socket, Use::Write) => "send, copied by the CPU",
            (Kind::UnixSocket | Kind::Socket, Use::Read) => "from a socket, copied by the CPU",
            (Kind::Other, Use::Write) => "write, copied by the CPU",
            (Kind::Other, Use::Read) => "read, copied by the CPU",
        }
    }

    pub(super) fn is_socket(&self) -> bool {
        matches!(self.kind, Kind::UnixSocket | Kind::Socket)
    }

    /// The most bytes of one write, so that a process that is killed has written whole frames. TCP,
    /// and frames that are larger than that, may be cut.
    pub(super) fn piece(&self, frame: u64) -> u64 {
        let most = match self.kind {
            Kind::Pipe if self.polls || PIPE_BUF % frame != 0 => PIPE_BUF,
            Kind::UnixSocket => UNIX_PIECE,
            _ => MOST,
        };
        (most / frame * frame).max(frame)
    }

    /// Writes some bytes. `EAGAIN`: none is accepted at the moment.
    pub(super) fn write(&self, from: &Mapping, at: u64, bytes: u64) -> Result<u64, Errno> {
        self.check_ready()?;
        let fd = self.fd.as_fd();
        let written =
            if self.is_socket() { from.send(at, bytes, fd) } else { from.give(at, bytes, fd) };
        written.map_err(as_gone)
    }

    /// Reads some bytes; 0: there will be no more. `EAGAIN`: there is nothing at the moment.
    pub(super) fn read(&self, to: &Mapping, at: u64, bytes: u64) -> Result<u64, Errno> {
        self.check_ready()?;
        to.receive(at, bytes.min(MOST), self.fd.as_fd())
    }

    /// Fails with `EAGAIN` if a call would block.
    fn check_ready(&self) -> Result<(), Errno> {
        if !self.polls {
            return Ok(());
        }
        let event = if self.used == Use::Read { PollFlags::IN } else { PollFlags::OUT };
        match poll(&mut [PollFd::new(&self.fd, event)], Some(&Timespec::default())) {
            Ok(0) => Err(Errno::AGAIN),
            Ok(_) => Ok(()),
            Err(errno) => Err(from_os(errno)),
        }
    }

    /// Tells the peer of a socket that no more data follows, unless the peer is gone.
    pub(super) fn end(&self) {
        if self.is_socket() {
            let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Write);
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A peer that closes with unread data resets the connection, so a reset counts as closed.
pub(super) fn as_gone(errno: Errno) -> Errno {
    if errno.raw() == libc::ECONNRESET { Errno::PIPE } else { errno }
}

/// A separate open file description of the same pipe, because the flags of the given one are shared
/// with other processes, such as a shell. `None` if the kernel refuses, as for another user's pipe.
fn nonblocking_pipe(fd: &OwnedFd, used: Use) -> Option<OwnedFd> {
    let access = if used == Use::Read { OFlags::RDONLY } else { OFlags::WRONLY };
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use dmabuf_dio::Buffer;

    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe")
    }

    #[test]
    fn flags_of_the_given_pipe_do_not_change() {
        let (read, write) = pipe();
        let before = rustix::fs::fcntl_getfl(&write).expect("flags");
        let given = write.try_clone().expect("a descriptor");
        let own = Descriptor::new("pipe", given, Use::Write).expect("usable");
        assert!(!own.polls);
        assert_eq!(rustix::fs::fcntl_getfl(&write).expect("flags"), before);
        drop(read);
        let memory = Buffer::memfd(4096).expect("a memfd").mapping(true).expect("a view");
        assert_eq!(own.write(&memory, 0, 1), Err(Errno::PIPE));
    }

    /// If the pipe cannot be opened again, only writes that have room are made.
    #[test]
    fn shared_pipe_is_polled_before_writes() {
        let (read, given) = pipe();
        let pipe =
            Descriptor { polls: true, ..Descriptor::new("p", given, Use::Write).expect("p") };
        let (kind, frame) = (pipe.kind, 8);
        assert_eq!((kind, pipe.piece(frame), pipe.piece(24)), (Kind::Pipe, 4096, 4080));
        let memory = Buffer::memfd(4096).expect("a memfd").mapping(true).expect("a view");
        let mut all = 0;
        while let Ok(written @ 1..) = pipe.write(&memory, 0, 4080) {
            assert_eq!(written, 4080);
            all += written;
        }
        assert!(all > 60_000, "{all}");
        let reader = Descriptor::new("p", read, Use::Read).expect("p");
        let reader = Descriptor { polls: true, ..reader };
        let memory = Buffer::memfd(2 << 20).expect("a memfd").mapping(true).expect("a view");
        let read = || reader.read(&memory, 0, 2 << 20);
        assert_eq!(read(), Ok(all));
        assert_eq!(read(), Err(Errno::AGAIN));
        drop(pipe);
        assert_eq!(read(), Ok(0));
    }

    #[test]
    fn pieces_are_whole_frames() {
        let (read, _write) = pipe();
        let pipe = Descriptor::new("p", read, Use::Read).expect("usable");
        let (socket, _peer) = UnixStream::pair().expect("a pair");
        let socket = Descriptor::new("s", socket.into(), Use::Write).expect("usable");
        for frame in [1, 2, 6, 8, 24, 4096, 5000, 16_384, 40_000] {
            for piece in [pipe.piece(frame), socket.piece(frame)] {
                assert!(piece > 0 && piece % frame == 0, "{frame}: {piece}");
            }
            assert!(socket.piece(frame) <= UNIX_PIECE.max(frame));
            assert!(PIPE_BUF % frame == 0 || pipe.piece(frame) <= PIPE_BUF.max(frame), "{frame}");
        }
        assert_eq!((pipe.piece(8), pipe.piece(6)), (MOST, 4092));
    }
}
