// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries each backend on a buffer of a page.

use std::os::fd::AsFd;

use dmabuf_dio_sys::dio;
use dmabuf_dio_sys::dmabuf::Access;

use crate::backend::{Backend, Refusal};
use crate::buf::{DmaBuf, Kind};
use crate::error::{Attempt, Error};
use crate::memory::page_size;
use crate::via;

/// What the backend would do, or why it is not available.
pub(crate) fn attempt(backend: Backend) -> Result<String, Refusal> {
    let result = match backend {
        Backend::Module => module(),
        Backend::UringSlot => slot(),
        Backend::Heap => heap(),
        Backend::CopyFileRange => copy_file_range(),
        Backend::Udmabuf => udmabuf(),
        Backend::Memfd => memfd(),
        Backend::Buffered => return Ok(buffered()),
        Backend::Private => return Err(Backend::Private.refuse_buffer()),
    };
    result.map_err(|attempt| refusal(backend, attempt))
}

/// Why a try of the backend did not succeed.
pub(crate) fn refusal(backend: Backend, attempt: Attempt) -> Refusal {
    match attempt {
        Attempt::Refused(refusal) => refusal,
        Attempt::Failed(error) => failure(backend, &error),
    }
}

fn failure(backend: Backend, error: &Error) -> Refusal {
    let mut refusal = backend.refuse(error.to_string()).remedy(error.hint());
    refusal.errno = error.errno();
    refusal
}

fn module() -> Result<String, Attempt> {
    let context = via::module::Context::open(Backend::Module)?;
    let info = context.info;
    Ok(format!(
        "loads into a dma-buf by ioctl: requests of {} KiB, {} in flight, the first when {} MiB \
         are allocated",
        info.default_chunk >> 10,
        info.default_depth,
        info.default_gather >> 20
    ))
}

fn slot() -> Result<String, Attempt> {
    let context = via::slot::available()?;
    let buf = DmaBuf::try_alloc(Backend::UringSlot, page_size())?;
    context.attach(Backend::UringSlot, &buf)?;
    let mut ring = via::ring(Backend::UringSlot, 1)?;
    ring.submitter()
        .register_buffers_sparse(1)
        .map_err(|error| via::ring_refusal(Backend::UringSlot, &error))?;
    let slot = dio::Slot { buf_offset: 0, length: page_size(), index: 0, flags: dio::SLOT_READ };
    via::slot::register(&mut ring, &context, &[slot])?;
    let _ = ring.submitter().unregister_buffers();
    buf.begin(Access::Read)?;
    buf.end(Access::Read)?;
    Ok("loads into a dma-buf of the system heap by io_uring".into())
}

fn heap() -> Result<String, Attempt> {
    via::heap::try_out()?;
    Ok("loads into a dma-buf of the system heap while that is being allocated".into())
}

fn copy_file_range() -> Result<String, Attempt> {
    via::copy_file_range::try_out()?;
    Ok("loads into a dma-buf of the system heap, and between files and dma-bufs".into())
}

fn udmabuf() -> Result<String, Attempt> {
    use dmabuf_dio_sys::udmabuf;
    let device = udmabuf::open().map_err(via::udmabuf::refuse_device)?;
    let memfd = DmaBuf::memfd(page_size())?;
    via::udmabuf::make(device.as_fd(), &memfd)?;
    via::ring(Backend::Udmabuf, 1)?;
    Ok(match via::udmabuf::size_limit() {
        Some(limit) => {
            format!("loads into a memfd and makes a dma-buf of it, up to {} MiB", limit >> 20)
        }
        None => "loads into a memfd and makes a dma-buf of it".into(),
    })
}

fn memfd() -> Result<String, Attempt> {
    via::ring(Backend::Memfd, 1)?;
    DmaBuf::memfd(page_size())?.map()?;
    Ok("loads into a memfd by io_uring: not a dma-buf, devices cannot import it".into())
}

fn buffered() -> String {
    let buffer = match DmaBuf::try_alloc(Backend::Buffered, page_size()) {
        Ok(_) => Kind::DmaBuf,
        Err(_) => Kind::Memfd,
    };
    format!("loads into a {buffer} through the page cache")
}
