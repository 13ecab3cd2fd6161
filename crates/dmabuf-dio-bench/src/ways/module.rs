// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use dmabuf_dio_sys::dio;
use rustix::fs::OFlags;

use super::held::Held;
use super::ring::Uring;
use crate::buffer::{Buffer, BufferKind, Maker, cannot_open};
use crate::measure::meter::Meter;
use crate::outcome::{Trouble, failed, whole};

const SLOT: u64 = 64 << 20;

fn open() -> Result<OwnedFd, Trouble> {
    dio::open().map_err(|errno| {
        cannot_open(dio::DEVICE, errno, "the module is not loaded: sudo make dkms")
    })
}

/// Attaches the buffer to a new context.
pub(crate) fn attach(buffer: &Buffer) -> Result<OwnedFd, Trouble> {
    let context = open()?;
    dio::attach(context.as_fd(), buffer.target(), &mut dio::Attach::default())
        .map_err(failed("ATTACH of /dev/dmabuf_dio"))?;
    Ok(context)
}

/// A new buffer of the system heap, and a context that it is attached to.
pub(super) fn attached(len: u64, meter: &mut Meter<'_>) -> Result<(Buffer, OwnedFd), Trouble> {
    let maker = Maker::new(BufferKind::DmaBuf)?;
    meter.allocation(|| {
        let buffer = maker.make(len)?;
        let context = attach(&buffer)?;
        Ok((buffer, context))
    })
}

/// READ; 0 selects the module's default.
pub(super) fn read(
    context: &OwnedFd,
    file: &File,
    length: u64,
    chunk: u64,
    depth: u32,
) -> Result<(), Trouble> {
    const WHAT: &str = "READ of /dev/dmabuf_dio";
    let file_fd = file.as_raw_fd();
    let mut read = dio::ReadWrite { file_fd, length, chunk, depth, ..dio::ReadWrite::default() };
    dio::read(context.as_fd(), &mut read).map_err(failed(WHAT))?;
    whole(WHAT, read.done, length)
}

/// `READ_FIXED` on lent pages.
pub(super) fn read_slots(
    ring: &mut Uring,
    context: &OwnedFd,
    len: u64,
    requests: (u64, u32),
    meter: &mut Meter<'_>,
) -> Result<(), Trouble> {
    meter.allocation(|| ring.register_slots(context.as_fd(), len, SLOT))?;
    // SAFETY: the slots cover the attached dma-buf, which is not memory of Rust's.
    meter.io(|| unsafe { ring.read_fixed(0, SLOT, len, requests) })
}

/// LOAD; a gather size of 0 selects the module's default.
pub(super) fn load(
    file: &File,
    length: u64,
    gather: u64,
    meter: &mut Meter<'_>,
) -> Result<Held, Trouble> {
    const WHAT: &str = "LOAD of /dev/dmabuf_dio";
    let mut load = dio::Load {
        file_fd: file.as_raw_fd(),
        fd_flags: (OFlags::RDWR | OFlags::CLOEXEC).bits(),
        length,
        gather,
        ..dio::Load::default()
    };
    let (context, fd) = meter.load(|| {
        let context = open()?;
        let fd = dio::load(context.as_fd(), &mut load).map_err(failed(WHAT))?;
        Ok((context, fd))
    })?;
    whole(WHAT, load.done, length)?;
    Ok(Held::buffer(Buffer::of_dmabuf(fd, length)).in_context(context))
}
