// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use dmabuf_dio_sys::dio;
use rustix::fs::OFlags;

use super::Requests;
use crate::buffer::Buffer;
use crate::outcome::{NO_DEVICE, NOT_ROOT, Result, failed, refused, whole};

fn open() -> Result<OwnedFd> {
    let remedy = "the module is not loaded: sudo make dkms";
    dio::open().map_err(refused(dio::DEVICE, &[(NO_DEVICE, remedy), NOT_ROOT]))
}

/// Attaches the buffer to a new context.
pub(crate) fn attach(buffer: &Buffer) -> Result<OwnedFd> {
    let context = open()?;
    dio::attach(context.as_fd(), buffer.target(), &mut dio::Attach::default())
        .map_err(failed("ATTACH of /dev/dmabuf_dio"))?;
    Ok(context)
}

/// READ; 0 selects the module's default.
pub(super) fn read(
    context: &OwnedFd,
    file: &File,
    length: u64,
    (chunk, depth): Requests,
) -> Result<()> {
    const WHAT: &str = "READ of /dev/dmabuf_dio";
    let file_fd = file.as_raw_fd();
    let mut read = dio::ReadWrite { file_fd, length, chunk, depth, ..dio::ReadWrite::default() };
    dio::read(context.as_fd(), &mut read).map_err(failed(WHAT))?;
    whole(WHAT, read.done, length)
}

/// LOAD, by a new context; a gather size of 0 selects the module's default.
pub(super) fn load(file: &File, length: u64, gather: u64) -> Result<(Buffer, OwnedFd)> {
    const WHAT: &str = "LOAD of /dev/dmabuf_dio";
    let context = open()?;
    let (file_fd, fd_flags) = (file.as_raw_fd(), (OFlags::RDWR | OFlags::CLOEXEC).bits());
    let mut load = dio::Load { file_fd, fd_flags, length, gather, ..dio::Load::default() };
    let fd = dio::load(context.as_fd(), &mut load).map_err(failed(WHAT))?;
    whole(WHAT, load.done, length)?;
    Ok((Buffer::of_dmabuf(fd, length), context))
}
