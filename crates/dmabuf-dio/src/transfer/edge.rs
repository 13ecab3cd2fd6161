// SPDX-License-Identifier: MIT OR Apache-2.0
//! The partial blocks at the ends of a range.

use rustix::io::Errno as Os;

use super::task::Task;
use crate::direction::Direction;
use crate::error::Result;
use crate::file::extent::Extent;
use crate::memory::Mapping;
use crate::memory::page::page_size;

/// Transfers a partial block. Returns how many of its bytes were requested with `O_DIRECT`.
pub(crate) fn edge(task: &Task<'_>, mapping: &Mapping, part: Extent) -> Result<u64> {
    match task.direction {
        Direction::Load => {
            let mut bytes = vec![0; part.len as usize];
            let direct = read_edge(task, &mut bytes, part.file)?;
            mapping.write(part.buf, &bytes)?;
            task.watch.add(part.len);
            Ok(direct)
        }
        Direction::Save => {
            let bytes = mapping.to_vec(part.buf, part.len)?;
            write_all(task, &bytes, part.file)?;
            task.watch.add(part.len);
            Ok(0)
        }
    }
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
fn write_all(task: &Task<'_>, bytes: &[u8], offset: u64) -> Result<()> {
    let file = task.file.buffered()?;
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        match rustix::io::pwrite(file, &bytes[done..], at) {
            Ok(0) => return Err(task.failed(at, Os::IO)),
            Ok(moved) => done += moved,
            Err(Os::INTR) => {}
            Err(errno) => return Err(task.failed(at, errno)),
        }
    }
    Ok(())
}

/// Memory aligned for `O_DIRECT` on every device with blocks of up to a page.
#[repr(C, align(4096))]
struct Bounce([u8; 4096]);

/// Reads a partial block through a whole one, bypassing the page cache if the file is open with
/// `O_DIRECT`. Returns how many bytes were requested with `O_DIRECT`.
fn read_edge(task: &Task<'_>, bytes: &mut [u8], offset: u64) -> Result<u64> {
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
        // A short read may end anywhere: only a read of 0 bytes means the end of the file.
        let (mut have, mut ended) = (0, false);
        while have < wanted && !ended {
            let place = &mut bounce.0[have..block as usize];
            match rustix::io::pread(task.file.fd(), place, at - skip as u64 + have as u64) {
                Ok(0) => ended = true,
                Ok(moved) => have += moved,
                Err(Os::INTR) => {}
                // The file system accepts O_DIRECT on open but not on read, or not from there on.
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
