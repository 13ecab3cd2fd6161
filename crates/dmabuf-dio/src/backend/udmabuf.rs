// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memfd, and a dma-buf over its pages.
//!
//! The dma-buf is created last: that pins every page, and allocates missing ones one at a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dmabuf_dio_sys::dmabuf::Access;
use dmabuf_dio_sys::udmabuf::{self, Part};

use super::driver::Driver;
use super::memfd::{self, Purpose};
use super::{Backend, Refusal};
use crate::buffer::cpu_access::CpuAccess;
use crate::buffer::shared::Shared;
use crate::errno::Errno;
use crate::error::Result;
use crate::kind::Kind;
use crate::known::Known;
use crate::memory::page::{huge_page, page_size};
use crate::memory::place::Place;
use crate::refusal;
use crate::refusal::attempt::Attempt;
use crate::refusal::node::Node;
use crate::transfer::task::{Fresh, Task};

const NODE: Node = Node {
    path: udmabuf::DEVICE,
    access: "rw",
    missing: "",
    remedy: "sudo modprobe udmabuf, or boot a kernel with CONFIG_UDMABUF=y",
};

/// The longest piece of memory that bounce buffers hold, in bytes: 128 slots of 2 KiB
/// (`IO_TLB_SEGSIZE` in the kernel).
const BOUNCED: u64 = 256 << 10;

/// Bytes of the memory to find out with, if huge pages are long or there are none: little, as each
/// process does it once.
const SAMPLE: u64 = 2 * BOUNCED;

pub(crate) struct Udmabuf;

impl Driver for Udmabuf {
    fn backend(&self) -> Backend {
        Backend::Udmabuf
    }

    fn load(&self, task: &Task<'_>, _: Kind) -> Result<Fresh, Attempt> {
        load(task)
    }

    fn try_out(&self) -> Result<String, Attempt> {
        let device = udmabuf::open().map_err(|errno| NODE.refuse(Backend::Udmabuf, errno))?;
        make(device.as_fd(), &Shared::memfd(page_size())?)?;
        check_access(device.as_fd(), u64::MAX)?;
        refusal::ring(Backend::Udmabuf, 1, false)?;
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
    let layout = task.layout()?;
    let device = ready(layout.buffer)?;
    let mut fresh = memfd::load(Backend::Udmabuf, task, Purpose::Udmabuf)?;
    let huge = fresh.buf.len() > layout.buffer
        || fresh.moved.pages.is_none_or(|pages| pages.huge_bytes == fresh.buf.len());
    let fd = match make(device.as_fd(), &fresh.buf) {
        Err(_) if huge && fresh.buf.len() >= huge_page() => {
            // Not every kernel supports udmabufs of reserved huge pages.
            fresh = memfd::load(Backend::Udmabuf, task, Purpose::PlainUdmabuf)?;
            make(device.as_fd(), &fresh.buf)?
        }
        result => result?,
    };
    fresh.buf = fd;
    Ok(fresh)
}

/// Creates a dma-buf over the content of a memfd of any length.
///
/// The kernel takes whole pages only, and no page beyond the end of the memfd. The bytes in a partial
/// last page are therefore copied to a page of their own, which ends in zeros.
pub(crate) fn over(memfd: &Shared, place: Option<&Place>) -> Result<Shared, Attempt> {
    let tail = memfd.len() % page_size();
    let whole = memfd.len() - tail;
    let len = memfd.len().next_multiple_of(page_size());
    let device = ready(len)?;
    if tail == 0 {
        return make(device.as_fd(), memfd);
    }
    let last = last_page(memfd, whole, tail, place)?;
    let last = Part { memfd: last.as_fd(), range: 0..page_size() };
    let fd = if whole == 0 {
        udmabuf::create_list(device.as_fd(), [last])
    } else {
        udmabuf::create_list(device.as_fd(), [Part { memfd: memfd.as_fd(), range: 0..whole }, last])
    };
    let buf = Shared::from_parts(fd.map_err(|errno| refuse_new(len, errno))?, len);
    clean(device.as_fd(), &buf);
    Ok(buf)
}

/// A memfd of one page with the last bytes of another.
fn last_page(file: &Shared, offset: u64, len: u64, place: Option<&Place>) -> Result<Shared> {
    let mut bytes = vec![0; len as usize];
    let view = file.map()?;
    view.read_at(offset, &mut bytes)?;
    view.finish()?;
    let mut page = memfd::allocate(page_size(), place)?;
    let mut view = page.map_mut()?;
    view.write_at(0, &bytes)?;
    view.finish()?;
    Ok(page)
}

/// Opens the device, if it can make a udmabuf of that length that programs can use.
pub(crate) fn ready(len: u64) -> Result<OwnedFd, Attempt> {
    let device = udmabuf::open().map_err(|errno| NODE.refuse(Backend::Udmabuf, errno))?;
    check_limit(len)?;
    check_access(device.as_fd(), len)?;
    Ok(device)
}

pub(crate) fn make(device: BorrowedFd<'_>, memfd: &Shared) -> Result<Shared, Attempt> {
    let fd = udmabuf::create(device, memfd.as_fd(), 0, memfd.len())
        .map_err(|errno| refuse_new(memfd.len(), errno))?;
    let buf = Shared::from_parts(fd, memfd.len());
    clean(device, &buf);
    Ok(buf)
}

/// Writes the cached data of a new udmabuf to its memory.
///
/// Linux without `kernel/series/udmabuf` maps a udmabuf for a device of its own when CPU access
/// begins for the first time. It does not clean the caches then, but invalidates them
/// (`begin_cpu_udmabuf()` of 6.12 and 7.3). Where devices are not coherent by default, data that the
/// CPU has stored is lost. Access for writing invalidates nothing, and its end cleans.
fn clean(device: BorrowedFd<'_>, buf: &Shared) {
    // Devices are coherent there.
    if cfg!(any(target_arch = "x86_64", target_arch = "x86")) {
        return;
    }
    // Bounce buffers have copies instead, which later stores through the memfd would not reach.
    if bounces(device).is_none() && buf.begin_cpu_access(Access::Write).is_ok() {
        // Cleans the caches. If it fails, there was nothing to clean.
        let _ = buf.end_cpu_access(Access::Write);
    }
}

fn refuse_new(len: u64, errno: dmabuf_dio_sys::Errno) -> Refusal {
    Backend::Udmabuf
        .refuse(format!("a udmabuf of {len} bytes cannot be created"))
        .errno(errno)
        .remedy("see dmesg for details")
}

/// The maximum size of a udmabuf in bytes, if the kernel reports it.
pub(crate) fn size_limit() -> Option<u64> {
    let text = std::fs::read_to_string(udmabuf::SIZE_LIMIT_MB).ok()?;
    text.trim().parse::<u64>().ok().map(|mib| mib.saturating_mul(1 << 20))
}

/// Refuses a buffer to which CPU access cannot begin: a program could not use it.
fn check_access(device: BorrowedFd<'_>, len: u64) -> Result<(), Refusal> {
    match (len > BOUNCED).then(|| bounces(device)).flatten() {
        Some(errno) => Err(refusal::no_access(Backend::Udmabuf, errno)),
        None => Ok(()),
    }
}

/// The error of CPU access to a long udmabuf, if it goes through bounce buffers and fails.
///
/// Looked up once, on a buffer of its own: the first access creates the bounce buffers of the udmabuf
/// itself, and each later access overwrites the memory with the older content in them.
fn bounces(device: BorrowedFd<'_>) -> Option<Errno> {
    static FAILS: Known = Known::new();
    let found = FAILS.get_or_find(|| failing_access(device).map_or(0, |errno| errno.raw() as u64));
    (found != 0).then(|| Errno::from_raw(found as i32))
}

/// `EIO` if CPU access to a udmabuf over contiguous memory cannot begin.
fn failing_access(device: BorrowedFd<'_>) -> Option<Errno> {
    let huge = if huge_page() <= 4 << 20 { Shared::memfd_huge(SAMPLE).ok() } else { None };
    let try_one = |memfd: &Shared| {
        let fd = udmabuf::create(device, memfd.as_fd(), 0, memfd.len()).ok()?;
        let buf = Shared::from_parts(fd, memfd.len());
        Some(CpuAccess::reading(&buf).and_then(CpuAccess::end))
    };
    // Not every kernel supports udmabufs of reserved huge pages.
    let tried = huge
        .and_then(|(memfd, _)| try_one(&memfd))
        .or_else(|| Shared::memfd(SAMPLE).ok().and_then(|memfd| try_one(&memfd)))?;
    tried.err()?.errno().filter(|errno| errno.raw() == libc::EIO)
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
