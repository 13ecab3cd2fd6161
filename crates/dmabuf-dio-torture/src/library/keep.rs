// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept: put there from a saved file, and taken by other processes, by name and from a holder.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use dmabuf_dio::{Buffer, CancelToken, Kind, Options};
use dmabuf_dio_keep::{DMA_BUF, Error, Loading, Name, OnDisk, VARIABLE};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::during;
use super::kept::{FOLDER, KEPT, Keeping};
use super::settings::Told;
use crate::pages::{PAGE, difference};
use crate::process::Child;
use crate::world::{Outcome, World};

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// Programs find what is kept where this variable says. To be called before there are threads.
pub(crate) fn prepare() {
    // SAFETY: nobody else reads or writes the environment now.
    unsafe { std::env::set_var(VARIABLE, FOLDER) };
}

/// Another process has the bytes of all that is kept.
pub(crate) fn check(world: &World<'_>) -> Outcome {
    (0..KEPT as u64).try_for_each(|kept| check_one(world, kept))
}

fn check_one(world: &World<'_>, kept: u64) -> Outcome {
    let Some(keeping) = &world.keeping else { return Ok(()) };
    let name = format!("keep:{}", name(kept).map_err(failed("a name"))?.as_str());
    let taken = taken_by_another(|| {
        dmabuf_dio_keep::open(name.as_ref()).ok().flatten().ok_or_else(String::new)
    })?;
    match (&keeping.kept[kept as usize], taken) {
        (Some((bytes, ..)), Some(taken)) => difference("what is kept", &taken, bytes),
        (Some(_), None) => Err(format!("{name} cannot be opened")),
        (None, Some(_)) => Err(format!("{name} is there")),
        (None, None) => Ok(()),
    }
}

fn name(kept: u64) -> Result<Name, Error> {
    Name::new(&format!("torture-{kept}"))
}

/// A child opens a buffer, and says its length and its bytes. `None`: it could not.
fn taken_by_another(
    open: impl FnOnce() -> Result<Buffer, String>,
) -> Result<Option<Vec<u8>>, String> {
    let (read, write) = rustix::pipe::pipe().map_err(failed("a pipe"))?;
    let child = Child::start(|| {
        let bytes = open().and_then(|buffer| {
            let view = buffer.map().map_err(|error| error.to_string())?;
            view.to_vec().map_err(|error| error.to_string())
        });
        if let (Ok(bytes), Ok(pipe)) = (bytes, write.try_clone()) {
            let mut pipe = File::from(pipe);
            let _ = pipe.write_all(b"+").and_then(|()| pipe.write_all(&bytes));
        }
    })?;
    drop(write);
    let mut said = Vec::new();
    let all = File::from(read).read_to_end(&mut said);
    drop(child);
    all.map_err(failed("a pipe"))?;
    Ok(said.split_first().map(|(_, bytes)| bytes.to_vec()))
}

/// Keeps a saved file. What was kept under that name stays until it is complete.
pub(crate) fn keep(
    world: &mut World<'_>,
    kept: u64,
    file: u64,
    direct: u64,
    cancel: u64,
) -> Outcome {
    let armed = std::mem::take(&mut world.armed);
    let Some(content) = world.saved.get(file).cloned() else { return Ok(()) };
    if world.keeping.is_none() {
        world.keeping = Some(Keeping::create()?);
    }
    let Some(keeping) = &world.keeping else { return Ok(()) };
    let told = Told::new(cancel);
    let loading = Loading {
        options: Options { direct: direct != 0, ..Options::default() },
        progress: Some({
            let told = std::sync::Arc::clone(&told);
            std::sync::Arc::new(move |done, total| told.note(done, total))
        }),
        cancel: told.token.clone(),
    };
    let source = OnDisk::new(world.saved.path(file));
    let name = name(kept).map_err(failed("a name"))?;
    let result = during(world, armed, || keeping.store.keep(&name, &source, &loading));
    let old = &keeping.kept[kept as usize];
    let same =
        matches!(old, Some((_, from, version)) if (*from, *version) == (file, content.version));
    let length = content.bytes.len() as u64;
    match result {
        Ok(now) if now.length != length || now.loaded == same => {
            return Err(format!(
                "{} bytes are kept of {length}, loaded now: {}, kept already: {same}",
                now.length, now.loaded
            ));
        }
        Ok(now) => {
            if now.loaded {
                told.check(true, length)?;
            }
            world.machine.did(if now.loaded { "keep" } else { "keep what is kept" });
            if let Some(keeping) = &mut world.keeping {
                keeping.kept[kept as usize] = Some((content.bytes, file, content.version));
            }
        }
        Err(Error::Load(dmabuf_dio::Error::Cancelled { .. })) if cancel > 0 => {
            world.machine.did("keep cancelled");
        }
        Err(error) => return Err(format!("keep: {error}")),
    }
    check_one(world, kept)
}

/// Removes what is kept.
pub(crate) fn forget(world: &mut World<'_>, kept: u64) -> Outcome {
    let Some(keeping) = &mut world.keeping else { return Ok(()) };
    if keeping.kept[kept as usize].take().is_some() {
        let path = Path::new(FOLDER).join(name(kept).map_err(failed("a name"))?.as_str());
        std::fs::remove_file(path).map_err(failed("unlink"))?;
    }
    check_one(world, kept)
}

/// A socket that listens, and its path.
struct Listening(OwnedFd, PathBuf);

impl Listening {
    fn start() -> Result<Self, String> {
        let path = PathBuf::from("/run/torture-hold");
        let _ = std::fs::remove_file(&path);
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(failed("a socket"))?;
        let address = SocketAddrUnix::new(&path).map_err(failed("a socket"))?;
        rustix::net::bind(&socket, &address).map_err(failed("bind"))?;
        rustix::net::listen(&socket, 16).map_err(failed("listen"))?;
        Ok(Self(socket, path))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.1);
    }
}

/// A process holds a saved file, as a service would, and hands it to each that connects. Then it is killed: who
/// has the buffer keeps it.
pub(crate) fn hold(world: &mut World<'_>, file: u64, devices: bool) -> Outcome {
    let Some(content) = world.saved.get(file).cloned() else { return Ok(()) };
    let source = OnDisk::new(world.saved.path(file));
    let devices = devices && world.machine.udmabuf.is_some();
    let listening = Listening::start()?;
    let socket = listening.0.as_raw_fd();
    let child = Child::start(|| {
        let id = std::process::id().to_string();
        let names = if devices { DMA_BUF } else { "file" };
        // SAFETY: the child has one thread. What has number 3 here is not used by it.
        unsafe {
            std::env::set_var("LISTEN_PID", id);
            std::env::set_var("LISTEN_FDS", "1");
            std::env::set_var("LISTEN_FDNAMES", names);
            libc::dup2(socket, 3);
        }
        let Ok(name) = name(0) else { return };
        let held = dmabuf_dio_keep::hold(&name, &source, &Loading::default());
        match held {
            Ok((holder, _)) => drop(holder.serve(&CancelToken::new())),
            Err(error) => eprintln!("hold: {error}"),
        }
    })?;
    let length = content.bytes.len() as u64;
    let mut buffers = Vec::new();
    for _ in 0..3 {
        let mut received = dmabuf_dio_keep::receive(&listening.1).map_err(failed("the holder"))?;
        let one = received.header.files.first().ok_or("the holder has no file")?;
        if one.length != length || received.descriptors.len() != 1 {
            return Err(format!("the holder has {} bytes of {length}", one.length));
        }
        let kind = one.kind;
        let fd = received.descriptors.remove(0);
        let buffer = Buffer::from_fd(fd).map_err(failed("what the holder has"))?;
        let expected = if devices { Kind::DmaBuf } else { Kind::Memfd };
        if kind != expected || buffer.kind() != expected {
            return Err(format!("the holder has a {} and says {kind}", buffer.kind()));
        }
        buffers.push(buffer);
    }
    drop(child);
    world.machine.did("held by another process");
    for buffer in &buffers {
        let seen = buffer.map().and_then(|view| view.to_vec()).map_err(failed("a view"))?;
        let mut expected = content.bytes.clone();
        if devices {
            expected.resize(expected.len().next_multiple_of(PAGE), 0);
        }
        difference("what another process held", &seen, &expected)?;
    }
    Ok(())
}
