// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends blocks to the peer of a connection.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::net::AddressFamily;

use super::descriptor::as_gone;
use super::fd::FdSink;
use crate::ends::{Facts, Pending, Sink};
use crate::error::{Result, failed};
use crate::file::lent::lend;
use crate::ring::{BlockRing, Claim, Filled, unattached};
use crate::wait::Wait;
use dmabuf_dio::lend::{Access, Completion, OPENED, Operation, Request, Ring, Span};
use dmabuf_dio::{Direction, Errno, Refusal};

/// Sends blocks on a connected stream socket.
///
/// The pages are passed to the network without a copy (`SEND_ZC` of `io_uring`), for the network
/// card to read. For a card without scatter-gather, and for the loopback device, the network copies
/// them; [`Facts::how`] says so.
#[derive(Debug)]
pub struct SocketSink {
    name: String,
    fd: Arc<OwnedFd>,
    how: Option<Method>,
}

#[derive(Debug)]
enum Method {
    Lent(Box<Sending>),
    /// With the reason why nothing could be lent.
    Copy(Box<FdSink>, String),
}

impl Method {
    fn sink(&self) -> &dyn Sink {
        match self {
            Self::Lent(sending) => &**sending,
            Self::Copy(sink, _) => &**sink,
        }
    }

    fn sink_mut(&mut self) -> &mut dyn Sink {
        match self {
            Self::Lent(sending) => &mut **sending,
            Self::Copy(sink, _) => &mut **sink,
        }
    }
}

impl SocketSink {
    /// Takes ownership of a connected socket. Error messages call it `name`. Without slots, and for
    /// a Unix socket, it becomes non-blocking.
    pub fn new(socket: impl Into<OwnedFd>, name: impl Into<String>) -> Self {
        let fd = Arc::new(socket.into());
        Self { name: name.into(), fd, how: None }
    }

    /// Sends from mappings.
    fn copying(&self) -> Result<FdSink> {
        let fd = self.fd.try_clone().map_err(|error| failed(&self.name, "use", (&error).into()))?;
        FdSink::new(fd, &*self.name, 1)
    }
}

impl Sink for SocketSink {
    fn facts(&self) -> Facts {
        match &self.how {
            None => Facts::new("a socket"),
            Some(Method::Lent(sending)) => sending.facts(),
            Some(Method::Copy(_, why)) => Facts::new(format!("send, copied by the CPU: {why}")),
        }
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, expected: Option<u64>) -> Result<()> {
        let domain = rustix::net::sockopt::socket_domain(&*self.fd);
        let lent = match domain {
            Ok(AddressFamily::INET | AddressFamily::INET6) => {
                lend(ring, Direction::Save, self.fd.as_fd())
                    .map_err(|error| Refusal::from(error).reason)
            }
            _ => Err("only TCP sends pages without a copy".into()),
        };
        let how = self.how.insert(match lent {
            Ok(lent) => Method::Lent(Box::new(Sending::new(lent, ring, self.name.clone()))),
            Err(why) => Method::Copy(Box::new(self.copying()?), why),
        });
        how.sink_mut().attach(ring, expected)
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        self.how.as_mut().map_or(Ok(false), |how| how.sink_mut().attach_more(block))
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        let Some(how) = &mut self.how else { return Err(unattached(&self.name)) };
        how.sink_mut().queue(filled)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.how.as_mut().map_or(Ok(None), |how| how.sink_mut().take())
    }

    fn pending(&self) -> Pending<'_> {
        self.how.as_ref().map_or_else(Pending::default, |how| how.sink().pending())
    }

    fn finish(&mut self) -> Result<()> {
        let finished = self.how.as_mut().map_or(Ok(()), |how| how.sink_mut().finish());
        // Tells the peer that this was all, unless it is gone.
        let _ = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Write);
        finished
    }
}

/// A block in transfer.
#[derive(Debug)]
struct Outgoing {
    claim: Claim,
    /// Bytes that the socket has accepted.
    sent: u64,
    /// Requests whose memory the network still uses.
    in_use: u32,
}

/// Sends from slots. Only one request is outstanding at a time: with several, their bytes could be
/// interleaved.
#[derive(Debug)]
struct Sending {
    ring: Ring,
    blocks: Arc<BlockRing>,
    name: String,
    queue: VecDeque<Outgoing>,
    busy: bool,
    /// Number of returned blocks.
    gone: u64,
    sends: u64,
    copied: u64,
}

impl Sending {
    fn new(ring: Ring, blocks: &Arc<BlockRing>, name: String) -> Self {
        let (blocks, queue) = (Arc::clone(blocks), VecDeque::new());
        Self { ring, blocks, name, queue, busy: false, gone: 0, sends: 0, copied: 0 }
    }

    /// Sends the next bytes, unless a request is outstanding.
    fn send_next(&mut self) -> Result<()> {
        let waits = |part: &Outgoing| part.sent < part.claim.bytes();
        let Some(place) = self.queue.iter().position(waits) else { return Ok(()) };
        if self.busy {
            return Ok(());
        }
        let part = &mut self.queue[place];
        let Outgoing { claim, sent: at, .. } = *part;
        let from =
            Span { buffer: claim.block() as u16, offset: at, len: (claim.bytes() - at) as u32 };
        part.in_use += 1;
        self.busy = true;
        let (operation, user_data) = (Operation::Send { from }, self.gone + place as u64);
        let request = Request { operation, file: OPENED, user_data, linked: false };
        let sent = self.ring.push(&request).and_then(|()| self.ring.submit());
        sent.map_err(|errno| failed(&self.name, "send", errno))
    }

    fn completed(&mut self, completion: Completion) -> Result<()> {
        let place = (completion.user_data() - self.gone) as usize;
        let Some(part) = self.queue.get_mut(place) else { return Ok(()) };
        if completion.is_notification() {
            part.in_use -= 1;
            self.sends += 1;
            self.copied += u64::from(completion.was_copied());
            return Ok(());
        }
        self.busy = false;
        if completion.is_last() {
            part.in_use -= 1;
        }
        match completion.result() {
            Ok(0) => Err(failed(&self.name, "send", Errno::PIPE)),
            Ok(sent) => {
                part.sent += sent;
                Ok(())
            }
            Err(errno) if matches!(errno.raw(), libc::EAGAIN | libc::EINTR) => Ok(()),
            Err(errno) => Err(failed(&self.name, "send", as_gone(errno))),
        }
    }
}

impl Sink for Sending {
    fn facts(&self) -> Facts {
        let mut how = "io_uring, zero copy".to_owned();
        if self.copied > 0 {
            let _ = write!(
                how,
                ": the network copied {} of {} sends, as loopback does",
                self.copied, self.sends
            );
        }
        Facts::new(how)
    }

    fn attach(&mut self, _: &Arc<BlockRing>, _: Option<u64>) -> Result<()> {
        Ok(())
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        Ok(self.ring.lend(self.blocks.block(block), Direction::Save).is_ok())
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        let claim = self.blocks.claim(filled)?;
        self.blocks.block(claim.block()).begin_cpu_access(Access::Read)?;
        self.queue.push_back(Outgoing { claim, sent: 0, in_use: 0 });
        self.send_next().map(|()| false)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        while let Some(completion) = self.ring.complete() {
            self.completed(completion)?;
        }
        self.send_next()?;
        match self.queue.front() {
            Some(part) if part.in_use == 0 && part.sent == part.claim.bytes() => {}
            _ => return Ok(None),
        }
        self.gone += 1;
        let part = self.queue.pop_front();
        let Some(Outgoing { claim, .. }) = part else { return Ok(None) };
        self.blocks.block(claim.block()).end_cpu_access(Access::Read)?;
        Ok(Some(claim.filled()))
    }

    fn pending(&self) -> Pending<'_> {
        let blocks = self.queue.len();
        Pending { blocks, ready: (blocks > 0).then(|| Wait::readable(self.ring.as_fd())) }
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
