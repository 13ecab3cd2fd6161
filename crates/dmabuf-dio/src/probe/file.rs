// SPDX-License-Identifier: MIT OR Apache-2.0
//! The features of a file and its file system.

use std::os::fd::OwnedFd;
use std::path::Path;

use dmabuf_dio_sys::cachestat::cachestat;
use rustix::fs::{Mode, OFlags};

use super::FileFacts;
use crate::backend::Backend;
use crate::choose::kept::not_kept;
use crate::direction::Direction;
use crate::errno::{Errno, IntoErrno};
use crate::error::{Error, Result};
use crate::file::facts::Facts;
use crate::file::{Alignment, File, Spec};
use crate::memory::page::page_size;

pub(crate) fn facts(path: &Path) -> Result<FileFacts> {
    let file = File::open(&Spec::Path(path.to_owned()), Direction::Load, false)?;
    let stat = Facts::of(file.fd()).map_err(|errno| Error::Open {
        path: path.to_owned(),
        direction: Direction::Load,
        errno: errno.into_errno(),
    })?;
    let align = stat.align;
    let opened =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty());
    let o_direct_open = opened.as_ref().err().map(|errno| errno.into_errno());
    let o_direct_read = opened.ok().and_then(|fd| read_block(&fd, align));
    let file_system =
        if file.is_device { Some("block device".into()) } else { file_system(stat.on) };
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
fn file_system((major, minor): (u32, u32)) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let device = format!("{major}:{minor}");
    mounts.lines().find_map(|line| {
        let (mount, rest) = line.split_once(" - ")?;
        (mount.split(' ').nth(2)? == device).then(|| rest.split(' ').next())?.map(str::to_owned)
    })
}
