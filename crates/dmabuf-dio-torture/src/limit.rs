// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process whose control group may have only so much memory. LOAD succeeds, or it fails with ENOMEM; READ
//! through the page cache succeeds. Nobody is killed for them.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use dmabuf_dio_sys::{Errno, dio};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::control::Group;
use crate::file::Known;
use crate::load;
use crate::mapping::Mapping;
use crate::pages::{PAGE, difference, stamp, store, zero_pages};
use crate::process::{Child, receive, send};
use crate::transfer::module_call;
use crate::world::{Kind, Outcome, World};

/// What a process and LOAD need beside the buffer: charges are made in advance for each processor.
const BESIDE: u64 = 4 << 20;

/// A file with known bytes, which are on the disk.
fn source(world: &World<'_>, direct: u64, bytes: &[u8]) -> Result<File, String> {
    let path = world.machine.folder.join("torture-limited");
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let plain = options.open(&path).map_err(failed)?;
    plain.write_all_at(bytes, 0).and_then(|()| plain.sync_all()).map_err(failed)?;
    let mut again = File::options();
    again.read(true).custom_flags(if direct != 0 { libc::O_DIRECT } else { 0 });
    let file = again.open(&path).map_err(failed)?;
    std::fs::remove_file(&path).map_err(failed)?;
    Ok(file)
}

/// Runs in the child, which needs no new page of its own while it is limited.
fn limited(file: &File, length: u64, group: &Group, limit: u64) -> Result<OwnedFd, Errno> {
    let max = File::options().write(true).open(group.path("memory.max"));
    let (Ok(max), Ok(())) = (max, group.enter()) else { return Err(Errno::PERM) };
    let (most, limit) = ("max".to_owned(), limit.to_string());
    let context = dio::open()?;
    let mut loaded = Err(Errno::NODATA);
    for (limit, length) in [(&most, PAGE as u64), (&limit, length)] {
        drop(loaded);
        rustix::io::write(&max, limit.as_bytes()).map_err(|_| Errno::PERM)?;
        loaded = load::request(context.as_fd(), file.as_fd(), 0, length);
        let _ = rustix::io::write(&max, most.as_bytes());
    }
    loaded
}

/// What a child returns, and whether anybody was killed for the group's memory.
fn of_child(
    group: &Group,
    life: impl FnOnce() -> Result<OwnedFd, Errno>,
) -> Result<(Result<OwnedFd, Errno>, bool), String> {
    let sockets =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = sockets.map_err(|errno| format!("socketpair: {errno}"))?;
    let child = Child::start(|| {
        send(theirs.as_fd(), &life());
        // SAFETY: waits for signals.
        unsafe { libc::pause() };
    })?;
    drop(theirs);
    let loaded = receive(ours.as_fd());
    let killed = group.number("memory.events", "oom_kill") > 0;
    drop(child);
    if killed { Ok((Err(Errno::NOMEM), true)) } else { loaded.map(|loaded| (loaded, false)) }
}

pub(crate) fn load(
    world: &mut World<'_>,
    at: u64,
    length: u64,
    direct: u64,
    limit: u64,
) -> Outcome {
    if !world.machine.groups || length < PAGE as u64 {
        return Ok(());
    }
    let group = Group::create("torture-limited")?;
    if !group.path("memory.max").exists() {
        return Ok(());
    }
    let bytes = stamp(at, 0, length as usize);
    let file = source(world, direct, &bytes)?;
    let (loaded, killed) = of_child(&group, || limited(&file, length, &group, limit))?;
    if killed {
        return Err(format!("LOAD of {length} bytes has processes killed, limit {limit}"));
    }
    match loaded {
        Ok(_) if length > limit => {
            Err(format!("LOAD of {length} bytes, where {limit} are allowed"))
        }
        Ok(fd) => {
            world.machine.did("LOAD within a limit");
            let pages = zero_pages(length.div_ceil(PAGE as u64));
            store(&pages, 0, &bytes);
            load::put(world, at, fd, pages, Kind::Load, true)
        }
        Err(Errno::NOMEM) if limit < length + BESIDE => {
            world.machine.did("LOAD beyond a limit");
            Ok(())
        }
        Err(errno) => Err(format!("LOAD of {length} bytes, where {limit} are allowed: {errno}")),
    }
}

/// Runs in the child: READ of `source` into a buffer of a hole, with little memory for the page cache.
fn cached(
    source: &File,
    hole: &File,
    length: u64,
    group: &Group,
    limit: u64,
) -> Result<OwnedFd, Errno> {
    let max = File::options().write(true).open(group.path("memory.max"));
    let (Ok(max), Ok(())) = (max, group.enter()) else { return Err(Errno::PERM) };
    let context = dio::open()?;
    let buffer = load::request(context.as_fd(), hole.as_fd(), 0, length)?;
    dio::attach(context.as_fd(), buffer.as_fd(), &mut dio::Attach::default())?;
    let write = |limit: &str| rustix::io::write(&max, limit.as_bytes()).map_err(|_| Errno::PERM);
    // The buffer is charged, too.
    write(&(length + limit).to_string())?;
    let read = module_call(context.as_fd(), source.as_fd(), (0, 0, length), (0, 0), dio::read);
    write("max")?;
    match read.errno {
        Some(errno) => Err(errno),
        None if read.done < length => Err(Errno::NODATA),
        None => Ok(buffer),
    }
}

/// READ only: the kernel kills who writes much through the page cache within a limit, be it by `write()`.
pub(crate) fn read(world: &World<'_>, length: u64, limit: u64) -> Outcome {
    if !world.machine.groups || length < PAGE as u64 {
        return Ok(());
    }
    let group = Group::create("torture-limited")?;
    if !group.path("memory.max").exists() {
        return Ok(());
    }
    let folder = &world.machine.folder;
    let (mut source, hole) =
        (Known::create(folder, length, 1, 0)?, Known::create(folder, length, 1, 0)?);
    source.write(0, &stamp(limit, 0, length as usize))?;
    source.uncache()?;
    let life = || cached(&source.plain, &hole.plain, length, &group, limit);
    let (read, killed) = of_child(&group, life)?;
    if killed {
        return Err(format!("READ of {length} bytes has processes killed, limit {limit}"));
    }
    let buffer = read.map_err(|errno| format!("READ within a limit of {limit}: {errno}"))?;
    world.machine.did("READ within a limit");
    source.bytes.resize(source.bytes.len().next_multiple_of(PAGE), 0);
    let actual = Mapping::of(buffer.as_fd(), source.bytes.len(), false)?.bytes();
    difference("the buffer", &actual, &source.bytes)
}
