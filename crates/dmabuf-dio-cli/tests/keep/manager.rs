// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stands for systemd: hands over sockets, and keeps descriptors.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

/// Where sockets are handed over: clear of those that a shell uses.
const CLEAR: i32 = 100;

pub(crate) struct Manager {
    folder: PathBuf,
    told: OwnedFd,
    sockets: Vec<(String, OwnedFd)>,
    pub(crate) stored: Vec<(String, OwnedFd)>,
}

fn bound(path: &Path, kind: SocketType) -> OwnedFd {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("short")).expect("bound");
    socket
}

impl Manager {
    /// With a listening socket for each name.
    pub(crate) fn new(folder: &Path, names: &[&str]) -> Self {
        let listen = |name: &&str| {
            let socket = bound(&folder.join(name), SocketType::SEQPACKET);
            rustix::net::listen(&socket, 64).expect("listens");
            ((*name).to_owned(), socket)
        };
        Self {
            told: bound(&folder.join("notify"), SocketType::DGRAM),
            sockets: names.iter().map(listen).collect(),
            stored: Vec::new(),
            folder: folder.to_owned(),
        }
    }

    /// Starts the service, and waits until it is ready or has ended.
    pub(crate) fn start(&mut self, service: &Command) -> Child {
        let given: Vec<_> = self.sockets.iter().chain(&self.stored).collect();
        let names: Vec<_> = given.iter().map(|(name, _)| name.as_str()).collect();
        let fds: Vec<OwnedFd> = given
            .iter()
            .map(|(_, fd)| rustix::io::fcntl_dupfd_cloexec(fd, CLEAR).expect("a descriptor"))
            .collect();
        let mut command = Command::new("sh");
        command.args(["-c", "LISTEN_PID=$$ exec \"$@\"", "sh"]).arg(service.get_program());
        command.args(service.get_args()).stdin(Stdio::null());
        command.env("LISTEN_FDS", fds.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        command.env("NOTIFY_SOCKET", self.folder.join("notify"));
        // SAFETY: the closure makes system calls that take numbers, which are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                for (number, fd) in fds.iter().enumerate() {
                    if libc::dup2(fd.as_raw_fd(), 3 + number as i32) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let mut child = command.spawn().expect("started");
        while child.try_wait().expect("a child").is_none() && !self.listen() {}
        child
    }

    /// Reads a message, if one comes soon. Returns whether the service is ready.
    fn listen(&mut self) -> bool {
        let mut soon = [rustix::event::PollFd::new(&self.told, rustix::event::PollFlags::IN)];
        let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if rustix::event::poll(&mut soon, Some(&wait)).expect("polled") == 0 {
            return false;
        }
        let mut text = vec![0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut text)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = rustix::net::recvmsg(&self.told, parts, &mut control, flags).expect("a message");
        let fds = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let fds: Vec<_> = fds.collect();
        let text = String::from_utf8(text[..got.bytes].to_vec()).expect("text");
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
                .map(str::to_owned)
        };
        let name = field("FDNAME").unwrap_or_default();
        if field("FDSTORE").is_some() {
            self.stored.extend(fds.into_iter().map(|fd| (name.clone(), fd)));
        } else if field("FDSTOREREMOVE").is_some() {
            self.stored.retain(|(stored, _)| *stored != name);
        }
        field("READY").is_some()
    }

    /// The stored names, and the files' numbers, which tell one memory from another.
    pub(crate) fn memory(&self) -> Vec<(String, u64)> {
        let inode = |fd: &OwnedFd| {
            std::fs::metadata(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("stat").ino()
        };
        let files = self.stored.iter().filter(|(name, _)| name != "record");
        files.map(|(name, fd)| (name.clone(), inode(fd))).collect()
    }
}
