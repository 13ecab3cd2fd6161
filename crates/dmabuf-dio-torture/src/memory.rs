// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory loads take: more than there is, and again and again.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use dmabuf_dio_sys::{Errno, dio};
use rustix::fs::OFlags;

use crate::mapping::Mapping;
use crate::pages::{PAGE, difference};
use crate::procfs::number;
use crate::state::Memory;
use crate::world::{Outcome, World};

/// What may be missing after loads of more than a hundred MiB, in bytes.
const MOST: i64 = 24 << 20;

/// A file of zeroes without blocks.
fn hole(world: &World<'_>, length: u64) -> Result<File, String> {
    let path = world.machine.folder.join("torture-hole");
    let failed = |error: std::io::Error| format!("a file with a hole: {error}");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.map_err(failed)?;
    std::fs::remove_file(&path).map_err(failed)?;
    file.set_len(length).map_err(failed)?;
    Ok(file)
}

fn load(file: &File, length: u64) -> Result<(dio::Load, Result<OwnedFd, Errno>), String> {
    let context = dio::open().map_err(|errno| format!("a context: {errno}"))?;
    let fd_flags = (OFlags::RDWR | OFlags::CLOEXEC).bits();
    let mut load =
        dio::Load { file_fd: file.as_raw_fd(), fd_flags, length, ..dio::Load::default() };
    let result = dio::load(context.as_fd(), &mut load);
    Ok((load, result))
}

pub(crate) fn often(world: &World<'_>, length: u64, count: u64) -> Outcome {
    let file = hole(world, length)?;
    let before = Memory::look();
    for turn in 0..count {
        let (_, loaded) = load(&file, length)?;
        let loaded = loaded.map_err(|errno| format!("LOAD number {turn}: {errno}"))?;
        if turn == 0 {
            let pages = length.div_ceil(PAGE as u64) as usize;
            let seen = Mapping::of(loaded.as_fd(), pages * PAGE, false)?.bytes();
            difference("what was loaded of a hole", &seen, &vec![0; pages * PAGE])?;
        }
    }
    world.machine.did("many LOADs");
    before.is_there(MOST)
}

pub(crate) fn too_much(world: &World<'_>) -> Outcome {
    let length = 2 * (number("/proc/meminfo", "MemTotal:") << 10) as u64;
    let file = hole(world, length)?;
    let (load, loaded) = load(&file, length)?;
    world.machine.did("LOAD of too much");
    match loaded {
        Err(Errno::NOMEM) if load.done == 0 => Ok(()),
        other => Err(format!("LOAD of twice the memory: {other:?} after {} bytes", load.done)),
    }
}
