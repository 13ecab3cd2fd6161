// SPDX-License-Identifier: MIT OR Apache-2.0
//! WRITE to a file system that becomes full.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use dmabuf_dio_sys::{Errno, dio};
use rustix::fs::{FallocateFlags, fallocate};

use crate::judge::one_of;
use crate::pages::{PAGE, bytes, difference};
use crate::transfer::module_call;
use crate::world::{Outcome, World};

fn create(folder: &Path, name: &str, flags: i32) -> Result<File, String> {
    let path = folder.join(name);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    // Not every file system has O_DIRECT.
    let file = options.clone().custom_flags(flags).open(&path).or_else(|_| options.open(&path));
    let file = file.map_err(|error| format!("{name}: {error}"))?;
    std::fs::remove_file(&path).map_err(|error| format!("{name}: {error}"))?;
    Ok(file)
}

/// Takes all blocks of the file system but about so many pages.
fn fill(world: &World<'_>, left: u64) -> Result<File, String> {
    let filler = create(&world.machine.folder, "torture-filler", 0)?;
    let (mut at, mut step) = (0, 256 << 20);
    while step >= PAGE as u64 {
        match fallocate(&filler, FallocateFlags::empty(), at, step) {
            Ok(()) => at += step,
            Err(rustix::io::Errno::NOSPC) => step /= 2,
            Err(errno) => return Err(format!("fallocate: {errno}")),
        }
    }
    // What a step that failed has allocated is given back, too.
    filler
        .set_len(at.saturating_sub(left * PAGE as u64))
        .and_then(|()| filler.sync_all())
        .map_err(|error| format!("the filler: {error}"))?;
    Ok(filler)
}

/// WRITE of the first bytes of a buffer to a new file: it ends, or says how much there was room for.
pub(crate) fn write(world: &World<'_>, buf: u64, length: u64, direct: u64, left: u64) -> Outcome {
    let Some((buffer, _)) = world.attached(buf) else { return Ok(()) };
    if buffer.imported || length > buffer.length() as u64 {
        return Ok(());
    }
    let folder = &world.machine.folder;
    // Later there might be no room for an inode.
    let file = create(folder, "torture-full", if direct == 0 { 0 } else { libc::O_DIRECT })?;
    let filler = fill(world, left)?;
    judge(world, buf, length, &file, || drop(filler))?;
    drop(file);
    // Some file systems free blocks only then.
    rustix::fs::sync();
    Ok(())
}

/// A tmpfs of some pages, while it exists.
pub(crate) struct Small(pub(crate) PathBuf);

impl Small {
    pub(crate) fn mount(world: &World<'_>, pages: u64) -> Result<Self, String> {
        let path = world.machine.folder.join("torture-small");
        let failed = |error: std::io::Error| format!("a small tmpfs: {error}");
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let data = CString::new(format!("size={}", pages * PAGE as u64));
        let data = data.map_err(|error| failed(error.into()))?;
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", &path, "tmpfs", flags, data.as_c_str())
            .map_err(|errno| failed(errno.into()))?;
        Ok(Self(path))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// As `write`, on a tmpfs that has so many pages.
pub(crate) fn write_small(
    world: &World<'_>,
    buf: u64,
    length: u64,
    direct: u64,
    left: u64,
) -> Outcome {
    let Some((buffer, _)) = world.attached(buf) else { return Ok(()) };
    if buffer.imported || length > buffer.length() as u64 {
        return Ok(());
    }
    // A size of 0 would be no limit.
    let pages = left.max(1);
    let small = Small::mount(world, pages)?;
    let file = create(&small.0, "torture-full", if direct == 0 { 0 } else { libc::O_DIRECT })?;
    let done = judge(world, buf, length, &file, || ())?;
    let room = length.min(pages * PAGE as u64);
    if done != room {
        return Err(format!("WRITE of {done} bytes to a tmpfs that has room for {room}"));
    }
    Ok(())
}

/// Makes the call, and compares what is in the file. Returns how much was moved.
fn judge(
    world: &World<'_>,
    buf: u64,
    length: u64,
    file: &File,
    make_room: impl FnOnce(),
) -> Result<u64, String> {
    let Some((buffer, context)) = world.attached(buf) else { return Ok(0) };
    let moved = module_call(context, file.as_fd(), (0, 0, length), (PAGE as u64, 2), dio::write);
    world.machine.did(match moved.errno {
        Some(_) => "WRITE to a full disk",
        None => "WRITE to a disk with some room",
    });
    let done = moved.done as usize;
    match moved.errno {
        None if moved.done == length => {}
        Some(Errno::NOSPC) if moved.done < length => {}
        other => return Err(format!("{other:?} after {done} bytes on a full disk")),
    }
    make_room();
    let failed = |error: std::io::Error| format!("the file: {error}");
    let end = file.metadata().map_err(failed)?.len() as usize;
    if end < done || end > length as usize {
        return Err(format!("the file has {end} bytes, of which {done} were said to be done"));
    }
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    let mut actual = vec![0; end];
    let plain = File::open(path).map_err(failed)?;
    plain.read_exact_at(&mut actual, 0).map_err(failed)?;
    let source = bytes(&buffer.pages, 0..length as usize);
    difference("what was written to a full disk", &actual[..done], &source[..done])?;
    for at in done..end {
        one_of("what was written to a full disk", at, actual[at], 0, Some(source[at]))?;
    }
    Ok(moved.done)
}
