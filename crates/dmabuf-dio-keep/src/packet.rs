// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a holder sends to each who connects: one packet, with a header in JSON and descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use dmabuf_dio::Kind;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Error, Result};

const SCHEMA: u32 = 1;
/// The most descriptors that one packet has: `SCM_MAX_FD` in the kernel's include/net/scm.h.
pub(crate) const MOST: usize = 253;
/// The longest header.
const LONGEST: usize = 128 << 10;

/// The header of a packet. `files` describes its descriptors, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Header {
    schema: u32,
    /// The name that it is kept under.
    pub name: String,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// One for each descriptor.
    pub files: Vec<Held>,
}

/// A descriptor of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Held {
    /// The file's place in the folder, or its own name.
    pub place: PathBuf,
    /// Length of its content in bytes, which starts at byte 0. A dma-buf is longer, up to a whole page.
    pub length: u64,
    /// What the descriptor is: a memfd or a dma-buf.
    #[serde(deserialize_with = "kind")]
    pub kind: Kind,
}

fn kind<'de, D: Deserializer<'de>>(from: D) -> Result<Kind, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

impl Header {
    pub(crate) fn new(name: &str, is_folder: bool, files: Vec<Held>) -> Self {
        Self { schema: SCHEMA, name: name.to_owned(), is_folder, files }
    }

    /// Reads what a packet has of it, which came with so many descriptors.
    pub(crate) fn parse(text: &[u8], descriptors: usize) -> Result<Self, String> {
        let header: Self =
            serde_json::from_slice(text).map_err(|error| format!("its header: {error}"))?;
        if header.schema != SCHEMA {
            return Err("its header is of another version".into());
        }
        if header.files.len() != descriptors {
            return Err("its header describes other descriptors".into());
        }
        Ok(header)
    }

    /// What a packet has of it. Fails if there is no text for it, or too much.
    pub(crate) fn text(&self) -> Result<Vec<u8>> {
        let refused = |what| Error::Source {
            path: self.name.clone().into(),
            what,
            remedy: "keep it in a folder: dmabuf-dio keep NAME=SOURCE, without --hold",
        };
        let text = serde_json::to_vec(self)
            .map_err(|error| refused(format!("a packet cannot name its files: {error}")))?;
        if text.len() > LONGEST {
            let length = text.len();
            let what =
                format!("the names of its files take {length} bytes of {LONGEST} in a packet");
            return Err(refused(what));
        }
        Ok(text)
    }
}

impl Held {
    pub(crate) fn new(place: PathBuf, length: u64, kind: Kind) -> Self {
        Self { place, length, kind }
    }
}

/// Sends a packet, without waiting.
pub(crate) fn send(
    socket: impl AsFd,
    header: &[u8],
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    send_with(socket, header, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

/// Sends a packet, and waits for room if there is none.
pub(crate) fn send_waiting(
    socket: impl AsFd,
    text: &[u8],
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    send_with(socket, text, fds, SendFlags::NOSIGNAL)
}

fn send_with(
    socket: impl AsFd,
    header: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> rustix::io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(rustix::io::Errno::TOOBIG);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(header)], &mut control, flags).map(drop)
}

/// Whether something that was sent is not received yet. Its descriptors are in flight as long.
pub(crate) fn is_in_flight(socket: impl AsFd) -> bool {
    const TIOCOUTQ: rustix::ioctl::Opcode = libc::TIOCOUTQ as rustix::ioctl::Opcode;
    // SAFETY: this request writes one int: `unix_outq_len` in the kernel's net/unix/af_unix.c.
    let unread = unsafe {
        rustix::ioctl::ioctl(socket, rustix::ioctl::Getter::<TIOCOUTQ, libc::c_int>::new())
    };
    unread.is_ok_and(|bytes| bytes > 0)
}

/// What a holder has sent.
#[derive(Debug)]
#[non_exhaustive]
pub struct Received {
    /// What the descriptors are.
    pub header: Header,
    /// One for each of the header's files.
    pub descriptors: Vec<OwnedFd>,
}

/// Asks the holder that listens at this socket. To connect is to ask; nothing is sent to it. Blocks until it
/// answers, which it does when everything is loaded. What it holds is described in its header, and is as
/// trustworthy as the holder: whoever may create the socket.
///
/// # Errors
///
/// [`Error::Io`]: `ENOENT` if there is no socket, `EACCES` if it is not for this user, `ECONNREFUSED` if nobody
/// listens; [`Error::Answer`] if what comes is no answer, or nothing: a holder refuses who has too many connections.
pub fn receive(socket: &Path) -> Result<Received> {
    let failed = |step, errno: rustix::io::Errno| Error::Io {
        path: socket.to_owned(),
        step,
        error: errno.into(),
    };
    let answer = |what: &str| Error::Answer { socket: socket.to_owned(), what: what.to_owned() };
    let own = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| failed("connect to it", errno))?;
    let address =
        rustix::net::SocketAddrUnix::new(socket).map_err(|errno| failed("connect to it", errno))?;
    rustix::net::connect(&own, &address).map_err(|errno| failed("connect to it", errno))?;
    let mut text = vec![0; LONGEST];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let result = loop {
        let parts = &mut [IoSliceMut::new(&mut text)];
        match rustix::net::recvmsg(&own, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            result => break result.map_err(|errno| failed("receive from it", errno))?,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    if result.bytes == 0 {
        return Err(answer("it closed the connection: this user may have too many of them"));
    }
    if result.flags.intersects(rustix::net::ReturnFlags::TRUNC | rustix::net::ReturnFlags::CTRUNC) {
        return Err(answer("it does not fit, or too many files are open here (ulimit -n)"));
    }
    let header = Header::parse(&text[..result.bytes], descriptors.len());
    let header = header.map_err(|what| answer(&what))?;
    Ok(Received { header, descriptors })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn what_no_packet_can_say_is_refused() {
        let text = |place: &OsStr| {
            let held = Held::new(place.into(), 1, Kind::DmaBuf);
            Header::new("name", true, vec![held; MOST]).text()
        };
        text(OsStr::new("place")).expect("a text");
        text(OsStr::from_bytes(b"\xff")).expect_err("it is not UTF-8");
        text(OsStr::new(&"long".repeat(200))).expect_err("who receives has no room for it");
    }
}
