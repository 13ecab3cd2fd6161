// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done to a new buffer once it is filled.

use std::os::fd::AsFd as _;

use crate::backend::{Backend, udmabuf};
use crate::buffer::Buffer;
use crate::buffer::shared::Shared;
use crate::error::Result;
use crate::fd::is_hugetlbfs;
use crate::kind::Kind;
use crate::memory::Mapping;
use crate::memory::place::Place;
use crate::options::Options;
use crate::report::Report;

/// Locks a new buffer, and creates a dma-buf over a file, as was asked for.
pub(crate) fn settle(buf: Shared, options: &Options, report: &mut Report) -> Result<Buffer> {
    let lock = if options.lock { keep(&buf, report)? } else { None };
    let buffer = if options.kind == Kind::File {
        report.buffer = Some(Kind::File);
        // Created last: pages cannot be collapsed into huge ones once they are pinned.
        let dma_buf = udmabuf::over(&buf, Place::of(options.numa)?.as_ref());
        Buffer::file(buf, dma_buf.map_err(|attempt| attempt.into_refusal(Backend::Udmabuf)))
    } else {
        Buffer::from(buf)
    };
    Ok(buffer.with_lock(lock))
}

/// Keeps the pages of a new buffer in memory: a mapping that locks them, if they can be swapped out.
fn keep(buf: &Shared, report: &mut Report) -> Result<Option<Mapping>> {
    report.locked = true;
    if !buf.is_dma_buf() && !is_hugetlbfs(buf.as_fd()) {
        return Mapping::locked(buf.as_fd(), buf.len()).map(Some);
    }
    let what = if buf.is_dma_buf() { "the pages of a dma-buf" } else { "reserved huge pages" };
    report.notes.push(format!("nothing had to be locked: {what} are never swapped out"));
    Ok(None)
}
