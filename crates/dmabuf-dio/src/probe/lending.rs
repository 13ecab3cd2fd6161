// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the exporters whose pages the kernel module borrows, with a one-page buffer from each.

use std::os::fd::AsFd;

use dmabuf_dio_sys::{heap, udmabuf};

use super::{Lender, Lending, drm};
use crate::backend::{Backend, udmabuf as udmabuf_backend};
use crate::buffer::shared::Shared;
use crate::lend::{Attached, Context};
use crate::memory::page::page_size;
use crate::refusal;

/// `None` without the module.
pub(crate) fn lending(heaps: &[String]) -> Option<Lending> {
    Context::open().ok()?;
    let page = page_size();
    let of_heap = |path: &String| {
        let device = heap::open(path).ok()?;
        let fd = heap::alloc(device.as_fd(), page).ok()?;
        Some(lender(path, &Shared::from_parts(fd, page)))
    };
    let of_udmabuf = || {
        let device = udmabuf::open().ok()?;
        let memfd = Shared::memfd(page).ok()?;
        let buf = udmabuf_backend::make(device.as_fd(), &memfd).ok()?;
        Some(lender(udmabuf::DEVICE, &buf))
    };
    let tried = heaps.iter().filter_map(of_heap).chain(of_udmabuf()).collect();
    Some(Lending { tried, drm: drm::devices(), exporters: refusal::named_exporters() })
}

fn lender(path: &str, buf: &Shared) -> Lender {
    let refused = |error| refusal::lending(Backend::Module, &error).into_refusal(Backend::Module);
    Lender {
        exporter: buf.exporter().unwrap_or_else(|| "unknown".into()),
        path: path.into(),
        refusal: Attached::of(buf).err().map(refused),
    }
}
