// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose pages the kernel module borrows: found out with a buffer of a page from each.

use std::os::fd::AsFd;

use dmabuf_dio_sys::{heap, udmabuf};

use super::backends::refusal;
use super::{Lender, Lending};
use crate::backend::Backend;
use crate::buf::DmaBuf;
use crate::memory::page_size;
use crate::via;
use crate::via::module::Context;

/// `None` without the module.
pub(crate) fn lending(heaps: &[String]) -> Option<Lending> {
    Context::open(Backend::Module).ok()?;
    let page = page_size();
    let of_heap = |path: &String| {
        let device = heap::open(path).ok()?;
        let fd = heap::alloc(device.as_fd(), page).ok()?;
        Some(lender(path, &DmaBuf::from_parts(fd, page)))
    };
    let of_udmabuf = || {
        let device = udmabuf::open().ok()?;
        let memfd = DmaBuf::memfd(page).ok()?;
        let buf = via::udmabuf::make(device.as_fd(), &memfd).ok()?;
        Some(lender(udmabuf::DEVICE, &buf))
    };
    let tried = heaps.iter().filter_map(of_heap).chain(of_udmabuf()).collect();
    Some(Lending { tried, exporters: via::lending::named_exporters() })
}

fn lender(path: &str, buf: &DmaBuf) -> Lender {
    // One for each: a context attaches one buffer.
    let attached = Context::open(Backend::Module)
        .map_err(Into::into)
        .and_then(|context| context.attach(Backend::Module, buf));
    Lender {
        exporter: buf.exporter().unwrap_or_else(|| "unknown".into()),
        path: path.into(),
        refusal: attached.err().map(|attempt| refusal(Backend::Module, attempt)),
    }
}
