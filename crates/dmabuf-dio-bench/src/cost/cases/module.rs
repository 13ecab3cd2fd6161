// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases for the kernel module.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use dmabuf_dio_sys::dio;
use rustix::fs::OFlags;

use super::{MIB, Setup};
use crate::buffer::devices::open_module;
use crate::buffer::registered;
use crate::buffer::{Buffer, BufferKind, Maker};
use crate::cost::meter::PhaseMeter;
use crate::disk::IoMode;
use crate::measure::outcome::Trouble;
use crate::measure::outcome::{failed, whole};

const SLOT: u64 = 64 * MIB;

/// Attaches the buffer to a new context.
fn attach(buffer: &Buffer) -> Result<OwnedFd, Trouble> {
    let context = open_module()?;
    dio::attach(context.as_fd(), buffer.target(), &mut dio::Attach::default())
        .map_err(failed("ATTACH of /dev/dmabuf_dio"))?;
    Ok(context)
}

/// A new buffer of the system heap, and a context that it is attached to.
fn attached(setup: &Setup<'_>, meter: &mut PhaseMeter<'_>) -> Result<(Buffer, OwnedFd), Trouble> {
    let maker = Maker::new(BufferKind::DmaBuf)?;
    meter.allocation(|| {
        let buffer = maker.make(setup.len())?;
        let context = attach(&buffer)?;
        Ok((buffer, context))
    })
}

/// Attaching and detaching alone.
fn attach_only(
    setup: &Setup<'_>,
    meter: &mut PhaseMeter<'_>,
    kind: BufferKind,
) -> Result<(), Trouble> {
    let buffer = Maker::new(kind)?.make(setup.len())?;
    let context = meter.allocation(|| attach(&buffer))?;
    meter.close(|| drop(context));
    Ok(())
}

pub(super) fn attach_heap(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
) -> Result<(), Trouble> {
    attach_only(setup, meter, BufferKind::DmaBuf)
}

pub(super) fn attach_udmabuf(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
) -> Result<(), Trouble> {
    attach_only(setup, meter, BufferKind::Udmabuf)
}

/// READ; 0 selects the module's default.
pub(super) fn read(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
    chunk: u64,
    depth: u32,
) -> Result<(), Trouble> {
    const WHAT: &str = "READ of /dev/dmabuf_dio";
    let file = setup.disk.open(IoMode::Direct)?;
    let (buffer, context) = attached(setup, meter)?;
    let mut read = dio::ReadWrite {
        file_fd: file.as_raw_fd(),
        length: setup.len(),
        chunk,
        depth,
        ..dio::ReadWrite::default()
    };
    meter.io(|| dio::read(context.as_fd(), &mut read)).map_err(failed(WHAT))?;
    whole(WHAT, read.done, setup.len())?;
    meter.compare(&buffer)?;
    meter.close(|| drop((context, buffer)));
    Ok(())
}

/// `READ_FIXED` on lent pages.
pub(super) fn slot(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
    chunk: u64,
    depth: u64,
) -> Result<(), Trouble> {
    let len = setup.len();
    let (buffer, context) = attached(setup, meter)?;
    let ring = setup.ring()?;
    meter.allocation(|| registered::register_slots(ring, context.as_fd(), len, SLOT))?;
    // SAFETY: the slots cover the attached dma-buf, which is not memory of Rust's.
    meter.io(|| unsafe { registered::read_fixed(ring, 0, SLOT, len, chunk, depth) })?;
    meter.compare(&buffer)?;
    meter.close(|| {
        drop(ring.submitter().unregister_buffers());
        drop((context, buffer));
    });
    Ok(())
}

pub(super) fn load(setup: &mut Setup<'_>, meter: &mut PhaseMeter<'_>) -> Result<(), Trouble> {
    const WHAT: &str = "LOAD of /dev/dmabuf_dio";
    let file = setup.disk.open(IoMode::Direct)?;
    let mut load = dio::Load {
        file_fd: file.as_raw_fd(),
        fd_flags: (OFlags::RDWR | OFlags::CLOEXEC).bits(),
        length: setup.len(),
        ..dio::Load::default()
    };
    let (context, fd) = meter.load(|| {
        let context = open_module()?;
        let fd = dio::load(context.as_fd(), &mut load).map_err(failed(WHAT))?;
        Ok((context, fd))
    })?;
    whole(WHAT, load.done, setup.len())?;
    let buffer = Buffer::of_dmabuf(fd, setup.len());
    meter.compare(&buffer)?;
    meter.close(|| drop((context, buffer)));
    Ok(())
}
