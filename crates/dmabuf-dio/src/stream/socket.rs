// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends blocks to the other end of a connection.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dmabuf_dio_sys::dmabuf::Access;
use io_uring::{opcode, types};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno as Os;
use rustix::net::AddressFamily;

use super::ring::Ring;
use super::slots::{Completion, Slots};
use super::worker::Worker;
use super::{Filled, Sink, attached, failed};
use crate::backend::{Backend, Refusal};
use crate::error::{Attempt, Direction, Result};

/// `IORING_SEND_ZC_REPORT_USAGE` and `IORING_NOTIF_USAGE_ZC_COPIED` (`linux/io_uring.h`).
const REPORT_USAGE: u16 = 1 << 3;
const COPIED: u64 = 1 << 31;

/// Sends blocks on a connected stream socket.
///
/// The pages are handed to the network as they are (`SEND_ZC` of `io_uring`), which the network
/// card reads; a card that cannot gather, and the loopback device, make it copy, and
/// [`how`](Sink::how) says so.
#[derive(Debug)]
pub struct SocketSink {
    name: String,
    fd: Arc<OwnedFd>,
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
        Self { name: name.into(), fd: Arc::new(socket.into()), way: None }
    }

    /// Writes from a mapping, in a thread.
    fn copying(&self, ring: &Arc<Ring>) -> Result<Worker> {
        let (fd, ring, name) = (Arc::clone(&self.fd), Arc::clone(ring), self.name.clone());
        let send = move |filled: Filled| {
            let view = ring.block(filled.block).map()?;
            // SAFETY: until the block is given back nobody in this process writes it.
            let bytes = unsafe { view.as_slice() };
            send_all(fd.as_fd(), &bytes[..filled.bytes as usize])
                .map_err(|errno| failed(&name, "send", errno))?;
            view.finish()
        };
        Worker::start(send).map_err(|errno| failed(&self.name, "start a thread", errno))
    }
}

fn send_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Os> {
    while !bytes.is_empty() {
        // SAFETY: sends from a slice.
        let sent = unsafe {
            libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
        };
        match usize::try_from(sent) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(_) => match Os::from_io_error(&std::io::Error::last_os_error()) {
                Some(Os::INTR) => {}
                Some(Os::AGAIN) => {
                    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None)?;
                }
                errno => return Err(errno.unwrap_or(Os::IO)),
            },
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
            Ok(AddressFamily::INET | AddressFamily::INET6) => Slots::new(ring, Direction::Save),
            _ => Err(Backend::UringSlot.refuse("only TCP sends pages as they are").into()),
        };
        self.way = Some(match slots {
            Ok(slots) => {
                Way::Slots(Box::new(Sending::new(slots, Arc::clone(&self.fd), self.name.clone())))
            }
            Err(Attempt::Refused(why)) => Way::Copy(self.copying(ring)?, why),
            Err(Attempt::Failed(error)) => return Err(error),
        });
        Ok(())
    }

    fn queue(&mut self, filled: Filled) -> Result<()> {
        match &mut self.way {
            None => attached(None, &self.name).map(|_| ()),
            Some(Way::Slots(sending)) => sending.queue(filled),
            Some(Way::Copy(worker, _)) => {
                worker.queue(filled);
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

    fn ready(&self) -> Option<PollFd<'_>> {
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
    filled: Filled,
    /// Bytes that the socket has taken.
    sent: u64,
    /// Requests whose memory the network still uses.
    in_use: u32,
}

/// Sends from slots. One request is not answered yet at a time: with several the bytes of one
/// could come between those of another.
#[derive(Debug)]
struct Sending {
    slots: Slots,
    fd: Arc<OwnedFd>,
    name: String,
    queue: VecDeque<Part>,
    busy: bool,
    /// How many blocks were given back.
    gone: u64,
    sends: u64,
    copied: u64,
}

impl Sending {
    fn new(slots: Slots, fd: Arc<OwnedFd>, name: String) -> Self {
        Self { slots, fd, name, queue: VecDeque::new(), busy: false, gone: 0, sends: 0, copied: 0 }
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

    fn queue(&mut self, filled: Filled) -> Result<()> {
        self.slots.blocks.block(filled.block).begin(Access::Read)?;
        self.queue.push_back(Part { filled, sent: 0, in_use: 0 });
        self.send_next()
    }

    /// Sends what follows, unless something is not answered yet.
    fn send_next(&mut self) -> Result<()> {
        let waits = |part: &Part| part.sent < part.filled.bytes;
        let Some(place) = self.queue.iter().position(waits) else { return Ok(()) };
        if self.busy {
            return Ok(());
        }
        let part = &mut self.queue[place];
        let length = (part.filled.bytes - part.sent) as u32;
        // To a slot an address is an offset.
        let at = part.sent as *const u8;
        let entry = opcode::SendZc::new(types::Fd(self.fd.as_raw_fd()), at, length)
            .buf_index(Some(part.filled.block as u16))
            .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
            .zc_flags(REPORT_USAGE)
            .build()
            .user_data(self.gone + place as u64);
        part.in_use += 1;
        self.busy = true;
        let sent = self.slots.push(&entry).and_then(|()| self.slots.submit());
        sent.map_err(|errno| failed(&self.name, "send", errno))
    }

    fn completed(&mut self, completion: Completion) -> Result<()> {
        let place = (completion.user_data - self.gone) as usize;
        let Some(part) = self.queue.get_mut(place) else { return Ok(()) };
        if completion.notification {
            part.in_use -= 1;
            self.sends += 1;
            self.copied += u64::from(completion.result.is_ok_and(|usage| usage & COPIED != 0));
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
            Some(part) if part.in_use == 0 && part.sent == part.filled.bytes => {}
            _ => return Ok(None),
        }
        self.gone += 1;
        let part = self.queue.pop_front();
        let Some(Part { filled, .. }) = part else { return Ok(None) };
        self.slots.blocks.block(filled.block).end(Access::Read)?;
        Ok(Some(filled))
    }
}
