// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dispatches to the backends.
//!
//! To add a backend, add its file, its line in [`driver`], and its name in [`Backend`].

use super::attempt::Attempt;
use super::driver::{Driver, Reach};
use super::{Backend, Refusal};
use super::{buffered, copy_file_range, heap, memfd, module, slot, udmabuf};
use crate::buf::DmaBuf;
use crate::file::extent::Extent;
use crate::kind::Kind;
use crate::transfer::task::{Fresh, Task, Transferred};

fn driver(backend: Backend) -> &'static dyn Driver {
    match backend {
        Backend::Module => &module::Module,
        Backend::UringSlot => &slot::UringSlot,
        Backend::Heap => &heap::Heap,
        Backend::CopyFileRange => &copy_file_range::CopyFileRange,
        Backend::Udmabuf => &udmabuf::Udmabuf,
        Backend::Memfd => &memfd::Memfd,
        Backend::Buffered => &buffered::Buffered,
    }
}

/// Loads into a new buffer of that kind.
pub(crate) fn load(backend: Backend, kind: Kind, task: &Task<'_>) -> Result<Fresh, Attempt> {
    if !Backend::for_new(kind).contains(&backend) {
        return Err(backend.refuse_new(kind).into());
    }
    driver(backend).load(task, kind)
}

/// Transfers between a file and a range of an existing buffer.
pub(crate) fn transfer(
    backend: Backend,
    task: &Task<'_>,
    buf: &DmaBuf,
    buf_offset: u64,
) -> Result<Transferred, Attempt> {
    if !Backend::for_existing(buf.kind()).contains(&backend) {
        return Err(backend.refuse_kind(buf.kind(), task.direction).into());
    }
    let extent = Extent { file: task.offset, buf: buf_offset, len: task.length };
    driver(backend).transfer(task, buf, extent)
}

/// How the requests of a gather reach a buffer.
pub(crate) fn reach(backend: Backend, buf: &DmaBuf) -> Result<Reach, Attempt> {
    if !Backend::for_gathering(buf.kind()).contains(&backend) {
        return Err(backend.refuse_gathering(buf.kind()).into());
    }
    driver(backend).reach(buf)
}

/// What the backend would do, or why it is unavailable.
pub(crate) fn try_out(backend: Backend) -> Result<String, Refusal> {
    driver(backend).try_out().map_err(|attempt| attempt.into_refusal(backend))
}
