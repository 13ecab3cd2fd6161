// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers of the system heap, or why there are none.

use std::os::fd::OwnedFd;

use dmabuf_dio_sys::heap;

use crate::backend::driver::Driver;
use crate::backend::{Backend, Refusal};
use crate::buffer::shared::Shared;
use crate::error::Error;
use crate::file::extent::Extent;
use crate::memory::place;
use crate::refusal::attempt::Attempt;
use crate::refusal::node::Node;
use crate::transfer::task::{Fresh, Task};

const NODE: Node = Node {
    path: heap::SYSTEM,
    access: "r",
    missing: "",
    remedy: "boot a kernel with CONFIG_DMABUF_HEAPS_SYSTEM=y, or: modprobe system_heap",
};

/// Opens the system heap for `backend`, which is named in a refusal.
pub(crate) fn open(backend: Backend) -> Result<OwnedFd, Refusal> {
    heap::open(heap::SYSTEM).map_err(|errno| NODE.refuse(backend, errno))
}

/// Allocates a buffer for `backend`, which is named in a refusal.
pub(crate) fn alloc(backend: Backend, len: u64) -> Result<Shared, Attempt> {
    Shared::alloc(len).map_err(|error| match error {
        Error::Heap { errno, .. } => NODE.refuse(backend, errno).into(),
        error => error.into(),
    })
}

/// Allocates the buffer of a load for `backend`, in the place that was asked for.
pub(crate) fn alloc_for(task: &Task<'_>, backend: Backend, len: u64) -> Result<Shared, Attempt> {
    let place = task.options.place(len)?;
    place::during(place.as_ref(), || alloc(backend, len))?
}

/// Loads into a new buffer, in whole blocks if the file is direct.
pub(crate) fn load(driver: &dyn Driver, task: &Task<'_>) -> Result<Fresh, Attempt> {
    let layout = task.layout()?;
    let mut buf = alloc_for(task, driver.backend(), layout.buffer)?;
    let direct = task.file.is_direct();
    let len = if direct { layout.buffer } else { layout.data_offset + task.length };
    let moved = driver.transfer(task, &buf, Extent { file: layout.base, buf: 0, len })?;
    let end = layout.data_offset + task.length;
    if layout.data_offset > 0 || end < layout.buffer {
        // The whole blocks at the ends also contain bytes outside the range.
        let mut view = buf.map_mut()?;
        view.fill_at(0, layout.data_offset, 0)?;
        view.fill_at(end, layout.buffer - end, 0)?;
        view.finish()?;
    }
    Ok(Fresh { buf, moved })
}

#[cfg(test)]
mod tests {
    use crate::errno::Errno;

    use super::*;

    #[test]
    fn missing_and_forbidden_heaps_have_different_remedies() {
        for (errno, reason, remedy) in [
            (
                Errno::from_raw(libc::ENXIO),
                "there is no /dev/dma_heap/system",
                "CONFIG_DMABUF_HEAPS_SYSTEM",
            ),
            (Errno::ACCESS, "/dev/dma_heap/system cannot be opened", "setfacl"),
        ] {
            let refusal = NODE.refuse(Backend::Heap, errno);
            assert_eq!((refusal.reason.as_str(), refusal.errno), (reason, Some(errno)));
            let said = refusal.remedy.expect("a remedy");
            assert!(said.contains(remedy) && !said.contains("kernel/series"), "{said}");
        }
    }
}
