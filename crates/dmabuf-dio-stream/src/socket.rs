// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends blocks to the peer of a connection.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::AddressFamily;

use crate::error::Result;
use crate::lent::lend;
use crate::ring::{Claim, Ring};
use crate::wait::Wait;
use crate::worker::Worker;
use crate::{Filled, Sink, attached, failed};
use dmabuf_dio::lend::{Access, Completion, Mapping, Operation, Request, Ring as LentRing, Span};
use dmabuf_dio::{Direction, Errno, Refusal};

/// Sends blocks on a connected stream socket.
///
/// The pages are passed to the network without a copy (`SEND_ZC` of `io_uring`), for the network
/// card to read. For a card without scatter-gather, and for the loopback device, the network copies
/// them; [`how`](Sink::how) says so.
#[derive(Debug)]
pub struct SocketSink {
    name: String,
    fd: Arc<OwnedFd>,
    ring: Option<Arc<Ring>>,
    how: Option<Method>,
}

#[derive(Debug)]
enum Method {
    Lent(Box<Sending>),
    /// With the reason why nothing could be lent.
    Copy(Worker, String),
}

impl SocketSink {
    /// Takes a connected socket; `name` is what error messages call it.
    pub fn new(socket: impl Into<OwnedFd>, name: impl Into<String>) -> Self {
        Self { name: name.into(), fd: Arc::new(socket.into()), ring: None, how: None }
    }

    /// Sends from a mapping, in a thread.
    fn copying(&self, ring: &Arc<Ring>) -> Result<Worker> {
        let (fd, ring, name) = (Arc::clone(&self.fd), Arc::clone(ring), self.name.clone());
        let send = move |claim: Claim| {
            let block = ring.block(claim.block());
            let mapping = block.mapping(false)?;
            block.begin_cpu_access(Access::Read)?;
            let sent = send_all(fd.as_fd(), &mapping, claim);
            block.end_cpu_access(Access::Read)?;
            sent.map_err(|errno| failed(&name, "send", errno))
        };
        Worker::start(send).map_err(|errno| failed(&self.name, "start a thread", errno))
    }
}

/// Sends the claimed bytes.
fn send_all(fd: BorrowedFd<'_>, mapping: &Mapping, claim: Claim) -> Result<(), Errno> {
    let mut done = 0;
    while done < claim.bytes() {
        match mapping.send(done, claim.bytes() - done, fd) {
            Ok(sent) => done += sent,
            Err(errno) => match errno.raw() {
                libc::EINTR => {}
                libc::EAGAIN => {
                    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None)
                        .map_err(crate::from_os)?;
                }
                _ => return Err(errno),
            },
        }
    }
    Ok(())
}

impl Sink for SocketSink {
    fn how(&self) -> String {
        match &self.how {
            None => "a socket".into(),
            Some(Method::Lent(sending)) => sending.how(),
            Some(Method::Copy(_, why)) => format!("send, copied by the CPU: {why}"),
        }
    }

    fn attach(&mut self, ring: &Arc<Ring>, _: Option<u64>) -> Result<()> {
        let domain = rustix::net::sockopt::socket_domain(&*self.fd);
        let lent = match domain {
            Ok(AddressFamily::INET | AddressFamily::INET6) => {
                lend(ring, Direction::Save, self.fd.as_fd())
                    .map_err(|error| Refusal::from(error).reason)
            }
            _ => Err("only TCP sends pages without a copy".into()),
        };
        self.how = Some(match lent {
            Ok(lent) => Method::Lent(Box::new(Sending::new(lent, ring, self.name.clone()))),
            Err(why) => Method::Copy(self.copying(ring)?, why),
        });
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        let Some(ring) = &self.ring else { return Ok(false) };
        Ok(match &mut self.how {
            None => false,
            Some(Method::Lent(sending)) => {
                sending.ring.lend(ring.block(block), Direction::Save).is_ok()
            }
            Some(Method::Copy(..)) => true,
        })
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        let claim = attached(self.ring.as_ref(), &self.name)?.claim(filled)?;
        match &mut self.how {
            None => {}
            Some(Method::Lent(sending)) => sending.queue(claim)?,
            Some(Method::Copy(worker, _)) => worker.queue(claim),
        }
        Ok(false)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        match &mut self.how {
            None => Ok(None),
            Some(Method::Lent(sending)) => sending.take(),
            Some(Method::Copy(worker, _)) => worker.take(),
        }
    }

    fn ready(&self) -> Option<Wait<'_>> {
        match self.how.as_ref()? {
            Method::Lent(sending) => {
                (!sending.queue.is_empty()).then(|| Wait::readable(sending.ring.as_fd()))
            }
            Method::Copy(worker, _) => worker.ready(),
        }
    }

    fn queued(&self) -> usize {
        match &self.how {
            None => 0,
            Some(Method::Lent(sending)) => sending.queue.len(),
            Some(Method::Copy(worker, _)) => worker.len(),
        }
    }

    fn finish(&mut self) -> Result<()> {
        // Tells the peer that this was all, unless it is gone.
        let _ = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Write);
        Ok(())
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
    ring: LentRing,
    blocks: Arc<Ring>,
    name: String,
    queue: VecDeque<Outgoing>,
    busy: bool,
    /// Number of returned blocks.
    gone: u64,
    sends: u64,
    copied: u64,
}

impl Sending {
    fn new(ring: LentRing, blocks: &Arc<Ring>, name: String) -> Self {
        let (blocks, queue) = (Arc::clone(blocks), VecDeque::new());
        Self { ring, blocks, name, queue, busy: false, gone: 0, sends: 0, copied: 0 }
    }

    fn how(&self) -> String {
        let mut how = "io_uring, zero copy".to_owned();
        if self.copied > 0 {
            let _ = write!(
                how,
                ": the network copied {} of {} sends, as loopback does",
                self.copied, self.sends
            );
        }
        how
    }

    fn queue(&mut self, claim: Claim) -> Result<()> {
        self.blocks.block(claim.block()).begin_cpu_access(Access::Read)?;
        self.queue.push_back(Outgoing { claim, sent: 0, in_use: 0 });
        self.send_next()
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
        let request = Request { operation, file: 0, user_data, linked: false };
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
            Err(errno) => Err(failed(&self.name, "send", errno)),
        }
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
}
