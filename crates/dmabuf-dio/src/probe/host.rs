// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices, huge pages and `io_uring`.

use std::os::fd::{AsFd, OwnedFd};

use dmabuf_dio_sys::{dio, heap, udmabuf};

use super::{Device, HugePages, IoUring};
use crate::backend::{Backend, udmabuf as udmabuf_backend};
use crate::buffer::shared::Shared;
use crate::memory::Mapping;
use crate::memory::huge;
use crate::memory::page::huge_page;
use crate::memory::sizes::PageSizes;
use crate::refusal;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

pub(crate) fn devices(heaps: &[String]) -> Vec<Device> {
    let mut devices = vec![
        device(dio::DEVICE, dio::open(), |fd| {
            let info = dio::info(fd.as_fd()).ok()?;
            let slots = if info.features & dio::FEATURE_SLOTS == 0 { "no " } else { "" };
            Some(format!(
                "{slots}io_uring slots; requests up to {} MiB, {} in flight",
                info.max_chunk >> 20,
                info.max_depth
            ))
        }),
        device(udmabuf::DEVICE, udmabuf::open(), |_| {
            let limit = udmabuf_backend::size_limit()?;
            let list = std::fs::read_to_string(udmabuf::LIST_LIMIT).ok()?;
            Some(format!("buffers up to {} MiB of up to {} ranges", limit >> 20, list.trim()))
        }),
    ];
    devices.extend(heaps.iter().map(|path| device(path, heap::open(path), |_| None)));
    devices
}

fn device(
    path: &str,
    opened: dmabuf_dio_sys::Result<OwnedFd>,
    detail: impl FnOnce(&OwnedFd) -> Option<String>,
) -> Device {
    match opened {
        Ok(fd) => Device { path: path.into(), error: None, detail: detail(&fd) },
        Err(errno) => Device { path: path.into(), error: Some(errno), detail: None },
    }
}

/// All heaps, plus the system heap even if it is missing.
pub(crate) fn heaps() -> Vec<String> {
    let mut paths: Vec<String> = std::fs::read_dir(heap::DIRECTORY)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().to_str()?.to_owned()))
        .collect();
    if !paths.iter().any(|path| path == heap::SYSTEM) {
        paths.push(heap::SYSTEM.into());
    }
    paths.sort();
    paths
}

pub(crate) fn huge_pages() -> HugePages {
    let shmem_enabled = huge::shmem_enabled();
    let number = |name: &str| {
        std::fs::read_to_string(format!("{POOL}/{name}")).ok()?.trim().parse::<u64>().ok()
    };
    let transparent = gets_huge_page(|mapping| mapping.advise(true));
    let collapsed = gets_huge_page(|mapping| {
        mapping.collapse();
    });
    let reserved = Shared::memfd_huge(huge_page()).is_ok();
    let any = transparent || collapsed || reserved;
    let remedy = (!any).then(huge::shared_huge_remedy);
    HugePages {
        shmem_enabled,
        transparent,
        collapsed,
        pool: number("nr_hugepages"),
        free: number("free_hugepages"),
        overcommit: number("nr_overcommit_hugepages"),
        reserved,
        remedy,
    }
}

/// Whether a memfd gets a huge page when requested with `ask`.
fn gets_huge_page(ask: impl FnOnce(&mut Mapping)) -> bool {
    let Ok(buf) = Shared::memfd(huge_page()) else { return false };
    let Ok(mut mapping) = Mapping::new(buf.as_fd(), buf.len(), true) else { return false };
    ask(&mut mapping);
    mapping.populate(0, buf.len(), true).is_ok()
        && PageSizes::of(&mapping).is_some_and(|pages| pages.huge_bytes > 0)
}

pub(crate) fn io_uring() -> IoUring {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let refusal = refusal::ring(Backend::Memfd, 1, false).err();
    IoUring {
        available: refusal.is_none(),
        disabled,
        refusal,
        memlock: crate::limit::current(rustix::process::Resource::Memlock),
    }
}
