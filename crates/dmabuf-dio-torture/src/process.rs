// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other processes: one that is killed, or starts another program, in the middle of a call; one
//! that hands over a buffer and ends.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use dmabuf_dio_sys::{Errno, dio};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::judge::{Moved, Span, into_file, into_pages};
use crate::load;
use crate::pages::{PAGE, bytes, is_multiple};
use crate::procfs::number;
use crate::ring::Ring;
use crate::transfer::{How, goes, module_call};
use crate::world::{Kind, Outcome, World};

const TRIES: u32 = 10_000;

/// To the module.
fn references() -> i64 {
    number("/sys/module/dmabuf_dio/refcnt", "")
}

/// A child that runs `life` until it is killed.
pub(crate) struct Child(libc::pid_t);

impl Child {
    pub(crate) fn start(life: impl FnOnce()) -> Result<Self, String> {
        // SAFETY: no other thread of the campaign runs now, so the child may do anything.
        match unsafe { libc::fork() } {
            -1 => Err(format!("fork: {}", std::io::Error::last_os_error())),
            0 => {
                life();
                // SAFETY: ends the child, without running anything of the parent.
                unsafe { libc::_exit(0) }
            }
            child => Ok(Self(child)),
        }
    }
}

impl Drop for Child {
    /// Afterwards its descriptors are closed.
    fn drop(&mut self) {
        // SAFETY: the child is this process's, and has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// How a child ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) microseconds: u64,
    /// It starts another program; else it is killed.
    pub(crate) exec: bool,
}

/// How a child transfers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Means {
    /// READ or WRITE, with this size and number of requests.
    Module(u64, u64),
    /// A slot of a ring of its own, which may go on for a while after the child.
    Slot,
}

impl Means {
    /// Again and again. Returns if that cannot be.
    fn repeat(self, write: bool, context: BorrowedFd<'_>, file: BorrowedFd<'_>, span: Span) {
        let make = if write { dio::write } else { dio::read };
        let length = span.length;
        match self {
            Self::Module(chunk, depth) => loop {
                let range = (span.at, span.offset, length);
                module_call(context, file, range, (chunk, depth), make);
            },
            Self::Slot => {
                let flags = dio::SLOT_READ | dio::SLOT_WRITE;
                let slot = dio::Slot { buf_offset: span.offset, length, index: 0, flags };
                let Ok(ring) = Ring::new(1) else { return };
                while ring.register(context, &slot).is_ok() {
                    let mut moved = true;
                    while moved {
                        moved = ring.transfer(write, 0, 0, length as u32, file, span.at).is_ok();
                    }
                    let _ = ring.clear(0);
                }
            }
        }
    }
}

/// A child repeats a transfer until it ends in the middle of one. Then each byte of the destination
/// is the old one or the new one.
pub(crate) fn transfer(
    world: &mut World<'_>,
    write: bool,
    buf: u64,
    span: Span,
    means: Means,
    end: End,
) -> Outcome {
    let how = How::Module { chunk: 0, depth: 0 };
    let (Some((buffer, context)), Some(file)) = (world.attached(buf), world.file(span.file)) else {
        return Ok(());
    };
    if !goes(world, buf, span, how, !write)
        || !world.broken(span.file).is_empty()
        || buffer.map.is_none()
        || buffer.imported
        || span.at + span.length > file.bytes.len() as u64
    {
        return Ok(());
    }
    if matches!(means, Means::Slot) && !world.machine.slots {
        return Ok(());
    }
    let fd = file.fd(span.direct);
    let again = move || means.repeat(write, context, fd, span);
    let before = references();
    let child = Child::start(|| {
        if !end.exec {
            again();
        }
        std::thread::scope(|scope| {
            scope.spawn(again);
            std::thread::sleep(Duration::from_micros(end.microseconds));
            // SAFETY: both are NUL-terminated, and the list ends with a null pointer.
            unsafe {
                libc::execl(c"/bin/true".as_ptr(), c"true".as_ptr(), std::ptr::null::<u8>());
                libc::_exit(0);
            }
        });
    })?;
    std::thread::sleep(Duration::from_micros(end.microseconds));
    if end.exec {
        // SAFETY: a zeroed structure is valid; the child stays to be waited for.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let id = child.0 as libc::id_t;
            libc::waitid(libc::P_PID, id, &raw mut info, libc::WEXITED | libc::WNOWAIT);
        }
    }
    drop(child);
    // Its ring ends later.
    for _ in 0..TRIES {
        if references() <= before {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    world.machine.did(match means {
        Means::Slot => "process with a ring killed",
        Means::Module(..) if end.exec => "exec in a call",
        Means::Module(..) => "process killed in a call",
    });
    let moved = Moved { done: 0, errno: Some(Errno::INTR), align: 0 };
    let Some((buffer, _)) = world.attached(buf) else { return Ok(()) };
    if write {
        let source =
            bytes(&buffer.pages, span.offset as usize..(span.offset + span.length) as usize);
        let actual = world.actual_file(span.file)?;
        return world
            .file_mut(span.file)
            .map_or(Ok(()), |file| into_file(file, &actual, span, &source, moved));
    }
    let source = world.file(span.file).map_or(&[][..], |file| file.range(span.at, span.length));
    let seen = buffer.seen()?;
    into_pages(&buffer.pages, span, source, moved, &|page| {
        Some(seen.as_ref()?[page * PAGE..(page + 1) * PAGE].to_vec())
    })?;
    world.check_buffers()
}

/// Sends a descriptor, or the number of an error.
pub(crate) fn send(socket: BorrowedFd<'_>, result: &Result<OwnedFd, Errno>) {
    let number = result.as_ref().err().map_or(0, |errno| errno.raw()).to_ne_bytes();
    let fds: Vec<BorrowedFd<'_>> = result.iter().map(|fd| fd.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let _ = sendmsg(socket, &[std::io::IoSlice::new(&number)], &mut control, SendFlags::empty());
}

pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Result<OwnedFd, Errno>, String> {
    let mut number = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [std::io::IoSliceMut::new(&mut number)];
    let got = recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)
        .map_err(|errno| format!("recvmsg: {errno}"))?;
    if got.bytes == 0 {
        return Err("the child has said nothing".into());
    }
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(fd.ok_or_else(|| Errno::from_raw(i32::from_ne_bytes(number))))
}

/// A child makes LOAD, hands the buffer over and is killed: the buffer stays.
pub(crate) fn load(world: &mut World<'_>, at: u64, span: Span) -> Outcome {
    let Some(file) = world.file(span.file) else { return Ok(()) };
    let inside = span.at + span.length <= file.bytes.len() as u64;
    if span.length == 0 || !inside || !is_multiple(span.at, PAGE as u64) {
        return Ok(());
    }
    if !world.broken(span.file).is_empty() {
        return Ok(());
    }
    let fd = file.fd(span.direct);
    let sockets =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = sockets.map_err(|errno| format!("socketpair: {errno}"))?;
    let child = Child::start(|| {
        let loaded = dio::open()
            .and_then(|context| load::request(context.as_fd(), fd, span.at, span.length));
        send(theirs.as_fd(), &loaded);
        // SAFETY: waits for signals.
        unsafe { libc::pause() };
    })?;
    drop(theirs);
    let loaded = receive(ours.as_fd());
    drop(child);
    world.machine.did("LOAD of a process that is killed");
    let loaded = loaded?.map_err(|errno| format!("LOAD: {errno}"))?;
    load::take(world, at, loaded, span, Kind::Load, true)
}
