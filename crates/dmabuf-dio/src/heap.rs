// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system heap: opened, or why not.

use std::os::fd::OwnedFd;

use dmabuf_dio_sys::heap;
use rustix::io::Errno as Os;

use crate::backend::{Backend, Refusal};

/// Opens the system heap in the name of `backend`.
pub(crate) fn open(backend: Backend) -> Result<OwnedFd, Refusal> {
    heap::open(heap::SYSTEM).map_err(|errno| refuse(backend, errno))
}

fn refuse(backend: Backend, errno: Os) -> Refusal {
    match errno {
        Os::NOENT | Os::NODEV | Os::NXIO => backend
            .refuse(format!("there is no {}", heap::SYSTEM))
            .errno(errno)
            .remedy("boot a kernel with CONFIG_DMABUF_HEAPS_SYSTEM=y, or: modprobe system_heap"),
        _ => backend
            .refuse(format!("{} cannot be opened", heap::SYSTEM))
            .errno(errno)
            .remedy(format!("run as root, or: sudo setfacl -m u:$USER:r {}", heap::SYSTEM)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_and_what_is_forbidden_differ() {
        for (errno, reason, remedy) in [
            (Os::NOENT, "there is no /dev/dma_heap/system", "CONFIG_DMABUF_HEAPS_SYSTEM"),
            (Os::ACCESS, "/dev/dma_heap/system cannot be opened", "setfacl"),
        ] {
            let refusal = refuse(Backend::Heap, errno);
            assert_eq!((refusal.reason.as_str(), refusal.errno), (reason, Some(errno.into())));
            let said = refusal.remedy.expect("a remedy");
            assert!(said.contains(remedy) && !said.contains("kernel/series"), "{said}");
        }
    }
}
