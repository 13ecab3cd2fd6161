// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends blocks to the other end of a connection.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dmabuf_dio_sys::dmabuf::Access;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno as Os;
use rustix::net::AddressFamily;

use super::ring::{Claim, Ring};
use super::slots::{Bytes, Completion, Request, Slots};
use super::wait::Wait;
use super::worker::Worker;
use super::{Filled, Sink, attached, failed};
use crate::backend::{Backend, Refusal};
use crate::error::{Attempt, Direction, Result};
use crate::map::Map;
use crate::raw;

/// Sends blocks on a connected stream socket.
///
/// The pages are handed to the network as they are (`SEND_ZC` of `io_uring`), which the network
/// card reads; a card that cannot gather, and the loopback device, make it copy, and
/// [`how`](Sink::how) says so.
#[derive(Debug)]
pub struct SocketSink {
    name: String,
    fd: Arc<OwnedFd>,
    ring: Option<Arc<Ring>>,
    way: Option<Way>,
}

#[derive(Debug)]
enum Way {
    Slots(Box<Sending>),
    Copy(Worker, Refusal),
}

impl SocketSink {
    /// Takes a connected socket; `name` is what error messages call it.
    pub fn new(socket: impl Into<OwnedFd>, name: impl Into<String>) -> Self {
        Self { name: name.into(), fd: Arc::new(socket.into()), ring: None, way: None }
    }

    /// Writes from a mapping, in a thread.
    fn copying(&self, ring: &Arc<Ring>) -> Result<Worker> {
        let (fd, ring, name) = (Arc::clone(&self.fd), Arc::clone(ring), self.name.clone());
        let send = move |claim: Claim| {
            let view = ring.block(claim.block()).map()?;
            send_all(fd.as_fd(), &view, claim).map_err(|errno| failed(&name, "send", errno))?;
            view.finish()
        };
        Worker::start(send).map_err(|errno| failed(&self.name, "start a thread", errno))
    }
}

/// Sends what is claimed. The block is mapped elsewhere, too: the socket gets what is in it then.
fn send_all(fd: BorrowedFd<'_>, view: &Map<'_>, claim: Claim) -> Result<(), Os> {
    let mut done = 0;
    while done < claim.bytes() {
        let (from, left) = (view.mapping().at(done), (claim.bytes() - done) as usize);
        // SAFETY: the claim is in the block, all of which is mapped.
        match unsafe { raw::send(fd, from, left) } {
            Ok(sent) => done += sent as u64,
            Err(Os::INTR) => {}
            Err(Os::AGAIN) => {
                poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None)?;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl Sink for SocketSink {
    fn how(&self) -> String {
        match &self.way {
            None => "a socket".into(),
            Some(Way::Slots(sending)) => sending.how(),
            Some(Way::Copy(_, why)) => format!("send, copied by the CPU: {}", why.reason),
        }
    }

    fn attach(&mut self, ring: &Arc<Ring>, _: Option<u64>) -> Result<()> {
        let domain = rustix::net::sockopt::socket_domain(&*self.fd);
        let slots = match domain {
            Ok(AddressFamily::INET | AddressFamily::INET6) => {
                Slots::new(ring, Direction::Save, &self.fd)
            }
            _ => Err(Backend::UringSlot.refuse("only TCP sends pages as they are").into()),
        };
        self.way = Some(match slots {
            Ok(slots) => Way::Slots(Box::new(Sending::new(slots, self.name.clone()))),
            Err(Attempt::Refused(why)) => Way::Copy(self.copying(ring)?, why),
            Err(Attempt::Failed(error)) => return Err(error),
        });
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    fn queue(&mut self, filled: Filled) -> Result<()> {
        let claim = attached(self.ring.as_ref(), &self.name)?.claim(filled)?;
        match &mut self.way {
            None => Ok(()),
            Some(Way::Slots(sending)) => sending.queue(claim),
            Some(Way::Copy(worker, _)) => {
                worker.queue(claim);
                Ok(())
            }
        }
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        match &mut self.way {
            None => Ok(None),
            Some(Way::Slots(sending)) => sending.take(),
            Some(Way::Copy(worker, _)) => worker.take(),
        }
    }

    fn ready(&self) -> Option<Wait<'_>> {
        match self.way.as_ref()? {
            Way::Slots(sending) => (!sending.queue.is_empty()).then(|| sending.slots.ready()),
            Way::Copy(worker, _) => worker.ready(),
        }
    }

    fn queued(&self) -> usize {
        match &self.way {
            None => 0,
            Some(Way::Slots(sending)) => sending.queue.len(),
            Some(Way::Copy(worker, _)) => worker.len(),
        }
    }

    fn finish(&mut self) -> Result<()> {
        // The other end sees that this was all. One that is gone need not.
        let _ = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Write);
        Ok(())
    }
}

/// A block on its way.
#[derive(Debug)]
struct Part {
    claim: Claim,
    /// Bytes that the socket has taken.
    sent: u64,
    /// Requests whose memory the network still uses.
    in_use: u32,
}

/// Sends from slots. One request is not answered yet at a time: with several the bytes of one
/// could come between those of another.
#[derive(Debug)]
struct Sending {
    slots: Slots<OwnedFd>,
    name: String,
    queue: VecDeque<Part>,
    busy: bool,
    /// How many blocks were given back.
    gone: u64,
    sends: u64,
    copied: u64,
}

impl Sending {
    fn new(slots: Slots<OwnedFd>, name: String) -> Self {
        Self { slots, name, queue: VecDeque::new(), busy: false, gone: 0, sends: 0, copied: 0 }
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
        self.slots.blocks.block(claim.block()).begin(Access::Read)?;
        self.queue.push_back(Part { claim, sent: 0, in_use: 0 });
        self.send_next()
    }

    /// Sends what follows, unless something is not answered yet.
    fn send_next(&mut self) -> Result<()> {
        let waits = |part: &Part| part.sent < part.claim.bytes();
        let Some(place) = self.queue.iter().position(waits) else { return Ok(()) };
        if self.busy {
            return Ok(());
        }
        let part = &mut self.queue[place];
        let Part { claim, sent: at, .. } = *part;
        let request = Request::Send { from: Bytes { claim, at, length: claim.bytes() - at } };
        part.in_use += 1;
        self.busy = true;
        let (slots, user_data) = (&mut self.slots, self.gone + place as u64);
        let sent = slots
            .target(|socket| Ok(socket.as_fd()))
            .and_then(|socket| slots.push(socket, request, user_data, false))
            .and_then(|()| slots.submit());
        sent.map_err(|errno| failed(&self.name, "send", errno))
    }

    fn completed(&mut self, completion: Completion) -> Result<()> {
        let place = (completion.user_data - self.gone) as usize;
        let Some(part) = self.queue.get_mut(place) else { return Ok(()) };
        if completion.notification {
            part.in_use -= 1;
            self.sends += 1;
            self.copied += u64::from(completion.was_copied());
            return Ok(());
        }
        self.busy = false;
        if !completion.more {
            part.in_use -= 1;
        }
        match completion.result {
            Ok(0) => Err(failed(&self.name, "send", Os::PIPE)),
            Ok(sent) => {
                part.sent += sent;
                Ok(())
            }
            Err(Os::AGAIN | Os::INTR) => Ok(()),
            Err(errno) => Err(failed(&self.name, "send", errno)),
        }
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        while let Some(completion) = self.slots.complete() {
            self.completed(completion)?;
        }
        self.send_next()?;
        match self.queue.front() {
            Some(part) if part.in_use == 0 && part.sent == part.claim.bytes() => {}
            _ => return Ok(None),
        }
        self.gone += 1;
        let part = self.queue.pop_front();
        let Some(Part { claim, .. }) = part else { return Ok(None) };
        self.slots.blocks.block(claim.block()).end(Access::Read)?;
        Ok(Some(claim.filled()))
    }
}
