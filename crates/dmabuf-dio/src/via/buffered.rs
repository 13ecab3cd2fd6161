// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pread` and `pwrite` on a mapping of the buffer, through the page cache.

use std::os::fd::BorrowedFd;

use rustix::io::Errno as Os;

use super::{Fresh, Moved, Task, memfd, plain};
use crate::available::{self, Charged};
use crate::backend::Backend;
use crate::buf::{DmaBuf, Kind};
use crate::error::{Attempt, Direction, Result};
use crate::extent::Extent;
use crate::memory::{Mapping, page_size};

/// Loads into a new dma-buf of the system heap, or into a memfd.
pub(crate) fn load(task: &Task<'_>, kind: Kind) -> Result<Fresh, Attempt> {
    let layout = task.layout()?;
    let buf = match kind {
        Kind::DmaBuf => DmaBuf::try_alloc(Backend::Buffered, layout.buffer)?,
        Kind::Memfd => {
            available::ensure(layout.buffer, Charged::Us)?;
            memfd::allocate(layout.data_offset + task.length)?
        }
    };
    let extent = Extent { file: task.offset, buf: layout.data_offset, len: task.length };
    move_through(task, &buf, extent)?;
    Ok(Fresh { buf, moved: Moved::default() })
}

/// Said where a device may have the buffer attached that this backend knows nothing of.
pub(crate) const UNSYNCED: &str = "the buffer is a udmabuf: unless this kernel's udmabuf synchronises the devices that have it \
     attached (a repair in kernel/series), those that are not coherent, or behind bounce buffers, \
     may miss what was moved";

/// The note on an existing buffer, if there is one.
pub(crate) fn note(buf: &DmaBuf) -> Option<String> {
    let is_udmabuf = buf.kind() == Kind::DmaBuf && buf.exporter().as_deref() == Some("udmabuf");
    is_udmabuf.then(|| UNSYNCED.to_owned())
}

/// Moves between a file and a range of an existing buffer.
pub(crate) fn transfer(task: &Task<'_>, buf: &DmaBuf, extent: Extent) -> Result<Moved, Attempt> {
    move_through(task, buf, extent)?;
    Ok(Moved { notes: note(buf).into_iter().collect(), ..Moved::default() })
}

/// Moves through a mapping of the buffer.
fn move_through(task: &Task<'_>, buf: &DmaBuf, extent: Extent) -> Result<()> {
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

fn read_all(task: &Task<'_>, bytes: &mut [u8], offset: u64) -> Result<()> {
    let file = task.file.buffered()?;
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        match rustix::io::pread(file, &mut bytes[done..], at) {
            Ok(0) => return Err(task.short(at)),
            Ok(moved) => done += moved,
            Err(Os::INTR) => {}
            Err(errno) => return Err(task.failed(at, errno)),
        }
    }
    Ok(())
}

/// Writes through the page cache.
pub(crate) fn write_all(task: &Task<'_>, bytes: &[u8], offset: u64) -> Result<()> {
    write_fully(task.file.buffered()?, bytes, offset).map_err(|(at, errno)| task.failed(at, errno))
}

/// Writes all bytes, or says where that failed.
pub(crate) fn write_fully(fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Result<(), (u64, Os)> {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        match rustix::io::pwrite(fd, &bytes[done..], at) {
            Ok(0) => return Err((at, Os::IO)),
            Ok(moved) => done += moved,
            Err(Os::INTR) => {}
            Err(errno) => return Err((at, errno)),
        }
    }
    Ok(())
}

/// Memory that suits `O_DIRECT` of every device with blocks of up to a page.
#[repr(C, align(4096))]
struct Bounce([u8; 4096]);

/// Reads less than a block by way of a whole one, past the page cache if the file is open that
/// way. Returns how many bytes were asked for with `O_DIRECT`.
pub(crate) fn read_edge(task: &Task<'_>, bytes: &mut [u8], offset: u64) -> Result<u64> {
    let block = task.file.align.offset;
    if !task.file.is_direct() || block > 4096 || page_size() != 4096 {
        read_all(task, bytes, offset)?;
        return Ok(0);
    }
    let mut bounce = Box::new(Bounce([0; 4096]));
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        let skip = (at % block) as usize;
        let wanted = (skip + bytes.len() - done).min(block as usize);
        // A read may end anywhere: only one of nothing was at the end of the file.
        let (mut have, mut ended) = (0, false);
        while have < wanted && !ended {
            let place = &mut bounce.0[have..block as usize];
            match rustix::io::pread(task.file.fd(), place, at - skip as u64 + have as u64) {
                Ok(0) => ended = true,
                Ok(moved) => have += moved,
                Err(Os::INTR) => {}
                // The file system has O_DIRECT and does not do it, or not from there on.
                Err(Os::INVAL) => {
                    read_all(task, &mut bytes[done..], at)?;
                    return Ok(done as u64);
                }
                Err(errno) => return Err(task.failed(at, errno)),
            }
        }
        let len = have.min(wanted).saturating_sub(skip);
        bytes[done..done + len].copy_from_slice(&bounce.0[skip..skip + len]);
        done += len;
        if ended {
            return Err(task.short(offset + done as u64));
        }
    }
    Ok(bytes.len() as u64)
}
