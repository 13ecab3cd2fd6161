// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pread` and `pwrite` on a mapping of the buffer, through the page cache.

use std::sync::Arc;

use super::driver::{Driver, Reach};
use super::{Backend, memfd};
use crate::buffer::shared::Shared;
use crate::direction::Direction;
use crate::error::Result;
use crate::file::extent::Extent;
use crate::kind::Kind;
use crate::memory::Mapping;
use crate::memory::available::{self, Charged};
use crate::memory::page::page_size;
use crate::refusal::attempt::Attempt;
use crate::transfer::plain;
use crate::transfer::system_heap;
use crate::transfer::task::{Fresh, Task, Transferred};

pub(crate) struct Buffered;

impl Driver for Buffered {
    fn backend(&self) -> Backend {
        Backend::Buffered
    }

    fn load(&self, task: &Task<'_>, kind: Kind) -> Result<Fresh, Attempt> {
        load(task, kind)
    }

    fn transfer(
        &self,
        task: &Task<'_>,
        buf: &Shared,
        extent: Extent,
    ) -> Result<Transferred, Attempt> {
        move_through(task, buf, extent)?;
        let notes = note(buf, task.direction).into_iter().collect();
        Ok(Transferred { notes, ..Transferred::default() })
    }

    fn reach(&self, buf: &Shared) -> Result<Reach, Attempt> {
        Ok(Reach::Calls(Arc::new(buf.mapping(true)?)))
    }

    fn try_out(&self) -> Result<String, Attempt> {
        let buffer = match system_heap::alloc(Backend::Buffered, page_size()) {
            Ok(_) => Kind::DmaBuf,
            Err(_) => Kind::Memfd,
        };
        Ok(format!("loads into a {buffer} through the page cache"))
    }
}

/// Loads into a new dma-buf of the system heap, or into a memfd.
fn load(task: &Task<'_>, kind: Kind) -> Result<Fresh, Attempt> {
    let layout = task.layout()?;
    let buf = if kind == Kind::DmaBuf {
        system_heap::alloc_for(task, Backend::Buffered, layout.buffer)?
    } else {
        available::ensure(layout.buffer, Charged::Us)?;
        task.options.check_lock(layout.buffer)?;
        let place = task.options.place(layout.buffer)?;
        memfd::allocate(layout.data_offset + task.length, place.as_ref())?
    };
    let extent = Extent { file: task.offset, buf: layout.data_offset, len: task.length };
    move_through(task, &buf, extent)?;
    let mut moved = Transferred::default();
    if task.options.numa.is_some() {
        if let Some(mapping) = buf.populated() {
            task.note_pages(&mut moved, &mapping);
        }
    }
    Ok(Fresh { buf, moved })
}

/// The note if devices unknown to this backend may have the buffer attached.
const UNSYNCED: &str = "the buffer is a udmabuf: unless this kernel's udmabuf synchronises attached devices (a fix \
     in kernel/series), those that are not coherent, or behind bounce buffers, may miss the \
     transferred data";

/// Appended if data was stored, because these stores mark no page of the memfd dirty (docs/design.md).
const UNMARKED: &str = "; and if its memfd outlives it, the data may be lost in pages that were neither \
     written nor populated (MADV_POPULATE_WRITE) before the udmabuf was created";

/// The note for an existing buffer, if any.
pub(crate) fn note(buf: &Shared, direction: Direction) -> Option<String> {
    let is_udmabuf = buf.kind() == Kind::DmaBuf && buf.exporter().as_deref() == Some("udmabuf");
    is_udmabuf.then(|| match direction {
        Direction::Load => format!("{UNSYNCED}{UNMARKED}"),
        Direction::Save => UNSYNCED.to_owned(),
    })
}

/// Transfers through a mapping of the buffer.
fn move_through(task: &Task<'_>, buf: &Shared, extent: Extent) -> Result<()> {
    match task.direction {
        Direction::Load => {
            let view = buf.map_shared()?;
            run(task, view.mapping(), extent)?;
            view.finish()
        }
        Direction::Save => {
            let view = buf.map()?;
            run(task, view.mapping(), extent)?;
            view.finish()
        }
    }
}

fn run(task: &Task<'_>, mapping: &Mapping, extent: Extent) -> Result<()> {
    plain::run(&task.job(extent, false)?, mapping).map_err(|stop| task.stopped(extent, stop))
}
