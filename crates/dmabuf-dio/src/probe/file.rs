// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a file and its file system offer.

use std::os::fd::OwnedFd;
use std::path::Path;

use dmabuf_dio_sys::cachestat::cachestat;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use super::FileFacts;
use crate::backend::Backend;
use crate::backend::kept::not_kept;
use crate::direction::Direction;
use crate::errno::{Errno, IntoErrno};
use crate::error::{Error, Result};
use crate::file::{Alignment, File, Spec, alignment};
use crate::memory::page::page_size;

pub(crate) fn facts(path: &Path) -> Result<FileFacts> {
    let file = File::open(&Spec::Path(path.to_owned()), Direction::Load, false)?;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
    let stat = rustix::fs::statx(file.fd(), "", AtFlags::EMPTY_PATH, wanted).map_err(|errno| {
        Error::Open { path: path.to_owned(), direction: Direction::Load, errno: errno.into_errno() }
    })?;
    let align = alignment(&stat);
    let opened =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty());
    let o_direct_open = opened.as_ref().err().map(|errno| errno.into_errno());
    let o_direct_read = opened.ok().and_then(|fd| read_block(&fd, align));
    let file_system = if file.is_device {
        Some("block device".into())
    } else {
        file_system(stat.stx_dev_major, stat.stx_dev_minor)
    };
    Ok(FileFacts {
        path: path.display().to_string(),
        length: file.end()?,
        file_system,
        o_direct: o_direct_open.is_none() && o_direct_read.is_none(),
        o_direct_open,
        o_direct_read,
        offset_align: align.map(|align| align.offset),
        memory_align: align.map(|align| align.memory),
        dma: file.dma(|| not_kept(Some(Backend::Module))),
        cached: cachestat(file.fd(), 0, 0).ok().map(|stat| stat.cached * page_size()),
    })
}

/// Reads the first block, or less if the file is shorter. Returns the error if that fails.
fn read_block(fd: &OwnedFd, align: Option<Alignment>) -> Option<Errno> {
    let align = align.unwrap_or_else(Alignment::unknown);
    let mut memory = vec![0_u8; (align.offset + align.memory) as usize];
    let skip = memory.as_ptr().align_offset(align.memory as usize);
    let block = &mut memory[skip..skip + align.offset as usize];
    rustix::io::pread(fd, block, 0).err().map(IntoErrno::into_errno)
}

/// Type of the file system on a device.
fn file_system(major: u32, minor: u32) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let device = format!("{major}:{minor}");
    mounts.lines().find_map(|line| {
        let (mount, rest) = line.split_once(" - ")?;
        (mount.split(' ').nth(2)? == device).then(|| rest.split(' ').next())?.map(str::to_owned)
    })
}
