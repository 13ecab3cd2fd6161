// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps a number of reads in flight, with any engine; and `io_uring`, into memory, registered memory, or slots.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use dmabuf_dio_sys::dio;
use io_uring::{Builder, IoUring, opcode, squeue, types};
use rustix::io::Errno as Os;

use crate::outcome::{Lack, Result, Trouble, failed, refused, whole};

const REGISTER: &str = "registering slots of /dev/dmabuf_dio";
const NO_SLOTS: Lack<'static> = (&[Os::OPNOTSUPP], "slots need Linux 7.3");
const NO_RING: Lack<'static> = (
    &[Os::ACCESS, Os::INVAL, Os::NOMEM, Os::NOSYS, Os::OPNOTSUPP, Os::PERM],
    "it is missing or forbidden here",
);

/// A read of `len` bytes at `offset` of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) offset: u64,
    /// The address to read to, or, in a slot, the position.
    pub(crate) place: u64,
    pub(crate) len: u32,
    /// Which of the registered buffers, if the engine has some.
    pub(crate) buffer: u16,
}

/// Submits requests.
pub(crate) trait Engine {
    /// Adds a request to those of the next turn, with a mark that comes back with its result.
    ///
    /// # Safety
    ///
    /// Its memory must be valid until it has completed, or the engine is dropped, and hold nothing Rust relies on.
    unsafe fn queue(&mut self, mark: u64, request: Request) -> Result<()>;

    /// Submits the queued requests and waits for some completions, of which `arrived` gets mark and result.
    fn turn(&mut self, least: u32, arrived: impl FnMut(u64, i32)) -> Result<()>;

    /// Why a read failed.
    fn failure(&self, errno: Os) -> Trouble;
}

/// Keeps `depth` requests in flight, and waits for `batch` of them at a time. `next` gets a tag that no request in flight
/// has, and returns a request, or that there is none. After a failure it is not asked again, but the requests in flight
/// are waited for, as they still write into the memory.
///
/// # Safety
///
/// As for [`Engine::queue`], of every request.
pub(crate) unsafe fn keep_in_flight<E: Engine>(
    engine: &mut E,
    depth: u32,
    batch: u32,
    mut next: impl FnMut(u32) -> Result<Option<Request>>,
) -> Result<()> {
    let mut free: Vec<u32> = (0..depth).rev().collect();
    let mut failed = None;
    loop {
        while failed.is_none() {
            let Some(&tag) = free.last() else { break };
            let Some(request) = next(tag)? else { break };
            // SAFETY: as the caller promises.
            unsafe { engine.queue(u64::from(request.len) << 32 | u64::from(tag), request)? };
            free.pop();
        }
        let in_flight = depth - free.len() as u32;
        if in_flight == 0 {
            break;
        }
        engine.turn(batch.min(in_flight), |mark, result| {
            free.push(mark as u32);
            let len = (mark >> 32) as i32;
            if result != len {
                failed.get_or_insert((result, len));
            }
        })?;
    }
    match failed {
        None => Ok(()),
        Some((result, len)) if result >= 0 => whole("a read", result as u64, len as u64),
        Some((result, _)) => Err(engine.failure(Os::from_raw_os_error(-result))),
    }
}

/// A ring whose fixed file 0 is the file to read, unless it has a plain descriptor.
pub(crate) struct Uring {
    ring: IoUring,
    plain: Option<types::Fd>,
    /// Whether it reads into registered buffers.
    registered: bool,
    /// Whether its completions are polled for.
    polled: bool,
}

impl Uring {
    pub(crate) fn new(builder: &Builder, entries: u32, file: &File, polled: bool) -> Result<Self> {
        let make = || {
            let ring = builder.build(entries)?;
            ring.submitter().register_files(&[file.as_raw_fd()])?;
            Ok(Self { ring, plain: None, registered: false, polled })
        };
        make().map_err(refused::<io::Error>("io_uring", &[NO_RING]))
    }

    /// A ring as in the manual of `io_uring`: nothing is registered. The file must stay open.
    pub(crate) fn plain(entries: u32, file: &File) -> Result<Self> {
        let ring = IoUring::new(entries).map_err(refused("io_uring", &[NO_RING]))?;
        let plain = Some(types::Fd(file.as_raw_fd()));
        Ok(Self { ring, plain, registered: false, polled: false })
    }

    /// # Safety
    ///
    /// What the request points at must be valid until it has completed.
    unsafe fn push(&mut self, mark: u64, request: squeue::Entry) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.ring.submission().push(&request.user_data(mark)) }
            .map_err(|_| Trouble::failed("io_uring", Os::BUSY))
    }

    /// Registers memory.
    ///
    /// # Safety
    ///
    /// It must be valid until it is unregistered or the ring is dropped, and hold nothing Rust relies on.
    pub(crate) unsafe fn register(&mut self, pieces: &[libc::iovec]) -> Result<()> {
        self.registered = true;
        // SAFETY: as the caller promises.
        unsafe { self.ring.submitter().register_buffers(pieces) }
            .map_err(failed("registering memory with io_uring"))
    }

    /// Registers `len` bytes of the buffer attached to `context` as slots of `slot_len` bytes.
    pub(crate) fn register_slots(
        &mut self,
        context: BorrowedFd<'_>,
        len: u64,
        slot_len: u64,
    ) -> Result<()> {
        self.registered = true;
        let count = len.div_ceil(slot_len) as u32;
        self.ring.submitter().register_buffers_sparse(count).map_err(failed(REGISTER))?;
        for index in 0..count {
            let buf_offset = u64::from(index) * slot_len;
            let slot = dio::Slot {
                buf_offset,
                length: slot_len.min(len - buf_offset),
                index,
                flags: dio::SLOT_READ | dio::SLOT_WRITE,
            };
            let fd = types::Fd(context.as_raw_fd());
            let entry = opcode::UringCmd16::new(fd, dio::URING_REGISTER)
                .cmd(dio::UringCmd::new(&slot).to_bytes())
                .build();
            // SAFETY: `slot` lives until the completion has been taken below.
            unsafe { self.push(0, entry)? };
            let mut arrived = None;
            while arrived.is_none() {
                self.turn(1, |_, result| arrived = Some(result))?;
            }
            if let Some(errno) = arrived.filter(|result| *result < 0) {
                let errno = Os::from_raw_os_error(-errno);
                return Err(refused(REGISTER, &[NO_SLOTS])(errno));
            }
        }
        Ok(())
    }

    pub(crate) fn unregister(&self) {
        drop(self.ring.submitter().unregister_buffers());
    }

    /// Reads `len` bytes from the start of the file in requests of `chunk` bytes, `depth` in flight. `address` is that of
    /// the memory, or 0 for slots; no request goes beyond one of the buffers of `buffer_len` bytes.
    ///
    /// # Safety
    ///
    /// There must be at least `len` bytes, registered or at the address, and nothing in them that Rust relies on.
    pub(crate) unsafe fn read(
        &mut self,
        address: u64,
        buffer_len: u64,
        len: u64,
        (chunk, depth): (u64, u32),
    ) -> Result<()> {
        let mut offset = 0;
        let next = |_| {
            let (buffer, at) = (offset / buffer_len, offset % buffer_len);
            let request = Request {
                offset,
                place: if address == 0 { at } else { address + offset },
                len: chunk.min(len - offset).min(buffer_len - at) as u32,
                buffer: buffer as u16,
            };
            offset += u64::from(request.len);
            Ok((request.len > 0).then_some(request))
        };
        // SAFETY: as the caller promises.
        unsafe { keep_in_flight(self, depth, 1, next) }
    }
}

impl Engine for Uring {
    unsafe fn queue(&mut self, mark: u64, request: Request) -> Result<()> {
        let Request { offset, place, len, buffer } = request;
        let (file, place) = (types::Fixed(0), place as *mut u8);
        let entry = match self.plain {
            Some(file) => opcode::Read::new(file, place, len).offset(offset).build(),
            None if self.registered => {
                opcode::ReadFixed::new(file, place, len, buffer).offset(offset).build()
            }
            None => opcode::Read::new(file, place, len).offset(offset).build(),
        };
        // SAFETY: as the caller promises.
        unsafe { self.push(mark, entry) }
    }

    fn turn(&mut self, least: u32, mut arrived: impl FnMut(u64, i32)) -> Result<()> {
        match self.ring.submit_and_wait(least as usize) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            submitted => drop(submitted.map_err(failed("io_uring_enter"))?),
        }
        for entry in self.ring.completion() {
            arrived(entry.user_data(), entry.result());
        }
        Ok(())
    }

    fn failure(&self, errno: Os) -> Trouble {
        let polls = "the disk or its file system has no poll queues: boot with nvme.poll_queues=1";
        let refusals: &[Os] = if self.polled { &[Os::INVAL, Os::OPNOTSUPP] } else { &[] };
        refused("a read by io_uring", &[(refusals, polls)])(errno)
    }
}
