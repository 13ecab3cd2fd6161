// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memfd, and a dma-buf over its pages.
//!
//! The dma-buf is created last: that pins every page, and allocates missing ones one at a time.

use std::os::fd::{AsFd, BorrowedFd};

use dmabuf_dio_sys::udmabuf;

use super::attempt::Attempt;
use super::driver::Driver;
use super::memfd::{self, Purpose};
use super::node::Node;
use super::{Backend, Refusal, refuse};
use crate::buf::DmaBuf;
use crate::kind::Kind;
use crate::memory::page::{HUGE_PAGE, page_size};
use crate::transfer::task::{Fresh, Task};

const NODE: Node = Node {
    path: udmabuf::DEVICE,
    access: "rw",
    missing: "",
    remedy: "sudo modprobe udmabuf, or boot a kernel with CONFIG_UDMABUF=y",
};

pub(super) struct Udmabuf;

impl Driver for Udmabuf {
    fn backend(&self) -> Backend {
        Backend::Udmabuf
    }

    fn load(&self, task: &Task<'_>, _: Kind) -> Result<Fresh, Attempt> {
        load(task)
    }

    fn try_out(&self) -> Result<String, Attempt> {
        let device = udmabuf::open().map_err(|errno| NODE.refuse(Backend::Udmabuf, errno))?;
        make(device.as_fd(), &DmaBuf::memfd(page_size())?)?;
        refuse::ring(Backend::Udmabuf, 1, false)?;
        Ok(match size_limit() {
            Some(limit) => {
                format!(
                    "loads into a memfd and creates a dma-buf from it, up to {} MiB",
                    limit >> 20
                )
            }
            None => "loads into a memfd and creates a dma-buf from it".into(),
        })
    }
}

/// Loads into a new memfd and turns it into a dma-buf.
fn load(task: &Task<'_>) -> Result<Fresh, Attempt> {
    let device = udmabuf::open().map_err(|errno| NODE.refuse(Backend::Udmabuf, errno))?;
    let layout = task.layout()?;
    check_limit(layout.buffer)?;
    let mut fresh = memfd::load(Backend::Udmabuf, task, Purpose::Udmabuf)?;
    let huge = fresh.buf.len() > layout.buffer
        || fresh.moved.pages.is_some_and(|pages| pages.huge_bytes == fresh.buf.len());
    let fd = match make(device.as_fd(), &fresh.buf) {
        Err(_) if huge && fresh.buf.len() >= HUGE_PAGE => {
            // Not every kernel supports udmabufs of reserved huge pages.
            fresh = memfd::load(Backend::Udmabuf, task, Purpose::PlainUdmabuf)?;
            make(device.as_fd(), &fresh.buf)?
        }
        result => result?,
    };
    fresh.buf = fd;
    Ok(fresh)
}

pub(crate) fn make(device: BorrowedFd<'_>, memfd: &DmaBuf) -> Result<DmaBuf, Attempt> {
    let fd = udmabuf::create(device, memfd.as_fd(), 0, memfd.len()).map_err(|errno| {
        Backend::Udmabuf
            .refuse(format!("a udmabuf of {} bytes cannot be created", memfd.len()))
            .errno(errno)
            .remedy("see dmesg for details")
    })?;
    Ok(DmaBuf::from_parts(fd, memfd.len()))
}

/// The maximum size of a udmabuf in bytes, if the kernel reports it.
pub(crate) fn size_limit() -> Option<u64> {
    let text = std::fs::read_to_string(udmabuf::SIZE_LIMIT_MB).ok()?;
    text.trim().parse::<u64>().ok().map(|mib| mib.saturating_mul(1 << 20))
}

fn check_limit(len: u64) -> Result<(), Refusal> {
    match size_limit() {
        Some(limit) if len > limit => {
            let mib = len.div_ceil(1 << 20).next_multiple_of(2);
            Err(Backend::Udmabuf
                .refuse(format!(
                    "the limit for a udmabuf is {} MiB here, this one needs {mib}",
                    limit >> 20
                ))
                .remedy(format!("echo {mib} | sudo tee {}", udmabuf::SIZE_LIMIT_MB)))
        }
        _ => Ok(()),
    }
}
