// SPDX-License-Identifier: MIT OR Apache-2.0
//! A service that holds a source: started by its socket, with descriptors that outlive it.

use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use dmabuf_dio::{Buffer, Kind, Options};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::fill::Loading;
use crate::holder::{HeldFile, Holder, Listener};
use crate::identity::Stamp;
use crate::name::Name;
use crate::packet::MOST;
use crate::record::{Record, length};
use crate::source::{File, Files, Source};
use crate::systemd::{Manager, handed_over};

/// The name of a socket whose clients get dma-bufs: `FileDescriptorName=` in systemd.socket(5).
pub const DMA_BUF: &str = "dma-buf";
/// The name of the stored record.
const RECORD: &str = "record";

/// What is stored with systemd beside the descriptors.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    record: Record,
    is_folder: bool,
    /// Part of the names of its descriptors: those of another are old.
    generation: u64,
    files: Vec<Stored>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    place: PathBuf,
    length: u64,
    has_dma_buf: bool,
}

fn memfd_name(generation: u64, number: usize) -> String {
    format!("memfd-{generation}-{number}")
}

fn dma_buf_name(generation: u64, number: usize) -> String {
    format!("dmabuf-{generation}-{number}")
}

/// What was handed over.
#[derive(Debug, Default)]
struct Given {
    listeners: Vec<Listener>,
    stored: Vec<(String, OwnedFd)>,
}

impl Given {
    fn sorted(all: Vec<(String, OwnedFd)>) -> Result<Self> {
        let mut given = Self::default();
        for (name, fd) in all {
            match rustix::net::sockopt::socket_type(&fd) {
                Ok(rustix::net::SocketType::SEQPACKET) => {
                    given.listeners.push(Listener::new(fd, name == DMA_BUF));
                }
                Ok(_) => {
                    return Err(Error::NoSocket { what: "ListenSequentialPacket= is needed" });
                }
                Err(_) => given.stored.push((name, fd)),
            }
        }
        if given.listeners.is_empty() {
            return Err(Error::NoSocket { what: "only stored descriptors were" });
        }
        Ok(given)
    }

    fn state(&mut self) -> Option<State> {
        let place = self.stored.iter().position(|(name, _)| name == RECORD)?;
        let (_, fd) = self.stored.remove(place);
        let mut file = std::fs::File::from(fd);
        let mut text = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut text)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn take(&mut self, name: &str) -> Option<OwnedFd> {
        let place = self.stored.iter().position(|(stored, _)| stored == name)?;
        Some(self.stored.remove(place).1)
    }

    /// The held files of a state, if all of them are there.
    fn restore(&mut self, state: &State) -> Option<Vec<HeldFile>> {
        let mut files = Vec::new();
        for (number, file) in state.files.iter().enumerate() {
            let memfd = self.take(&memfd_name(state.generation, number))?;
            let dma_buf = self.take(&dma_buf_name(state.generation, number));
            if dma_buf.is_some() != file.has_dma_buf {
                return None;
            }
            files.push(HeldFile { place: file.place.clone(), length: file.length, memfd, dma_buf });
        }
        Some(files)
    }
}

/// Holds a source under a name, as a service of systemd: takes over the sockets, and what an earlier process has
/// stored; loads the source unless that is there and the source has not changed; stores what is new; says that it is
/// ready. Returns the holder, to be served, and a note if something is not as asked.
///
/// To be called once, before anything else opens files: the variables `LISTEN_FDS` and `LISTEN_PID` say which
/// descriptors are the service's.
///
/// # Errors
///
/// [`Error::NoSocket`]; errors of the source and of the load, as for [`Store::keep`](crate::Store::keep).
pub fn hold(
    name: &Name,
    source: &dyn Source,
    loading: &Loading,
) -> Result<(Holder, Option<String>)> {
    let mut given = Given::sorted(handed_over()?)?;
    let manager = Manager::of_environment();
    let with_dma_buf = given.listeners.iter().any(|listener| listener.gives_dma_buf);
    let old = given.state();
    let generation = old.as_ref().map_or(0, |state| state.generation.wrapping_add(1));
    let found = source.files();
    let is_same = |state: &State| match &found {
        Ok(files) => state.record.is_of(&source.shown(), files),
        // A source that cannot be reached now is no reason to give up what is held.
        Err(_) => state.record.source == source.shown(),
    };
    let is_complete = |state: &State| {
        !with_dma_buf || state.files.iter().all(|file| file.has_dma_buf || file.length == 0)
    };
    let mut note = None;
    let usable = old.filter(|state| is_same(state) && is_complete(state));
    let restored = usable.and_then(|state| Some((given.restore(&state)?, state.is_folder)));
    let (files, is_folder) = if let Some(restored) = restored {
        note = found.err().map(|error| format!("what was held is held on: {error}"));
        restored
    } else {
        let files = found?;
        let held = load(&files, loading, with_dma_buf)?;
        let record = Record::new(Stamp::default(), &source.shown(), &files);
        if !record.is_of(&source.shown(), &source.files()?) {
            return Err(Error::Changed { path: source.shown().into() });
        }
        let state = State {
            record,
            is_folder: files.is_folder,
            generation,
            files: held.iter().map(Stored::from).collect(),
        };
        if let Err(error) = store(&manager, &state, &held) {
            note = Some(format!("a restart will load again: {error}"));
        }
        (held, files.is_folder)
    };
    // What is left belongs to earlier processes.
    let told = given.stored.iter().try_for_each(|(name, _)| manager.forget(name));
    if let Err(errno) = told.and_then(|()| manager.wait()).and_then(|()| manager.ready()) {
        note = Some(format!("systemd cannot be told: {errno}"));
    }
    Ok((Holder::new(name.as_str(), is_folder, files, given.listeners), note))
}

impl From<&HeldFile> for Stored {
    fn from(file: &HeldFile) -> Self {
        let has_dma_buf = file.dma_buf.is_some();
        Self { place: file.place.clone(), length: file.length, has_dma_buf }
    }
}

/// Has systemd keep what is held, and then the record of it.
fn store(manager: &Manager, state: &State, held: &[HeldFile]) -> std::io::Result<()> {
    for (number, file) in held.iter().enumerate() {
        manager.store(&memfd_name(state.generation, number), file.memfd.as_fd())?;
        if let Some(dma_buf) = &file.dma_buf {
            manager.store(&dma_buf_name(state.generation, number), dma_buf.as_fd())?;
        }
    }
    let mut record = std::fs::File::from(memfd("dmabuf-dio-record")?);
    record.write_all(&serde_json::to_vec(state)?)?;
    manager.forget(RECORD)?;
    manager.store(RECORD, record.as_fd())?;
    Ok(manager.wait()?)
}

fn memfd(name: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
}

/// Loads all files into memfds.
fn load(files: &Files, loading: &Loading, with_dma_buf: bool) -> Result<Vec<HeldFile>> {
    let count: usize = files.files.iter().map(|file| file.places.len()).sum();
    if count > MOST {
        return Err(Error::Source {
            path: files.files[0].places[0].clone(),
            what: format!("the folder has {count} files, and one packet has {MOST} descriptors"),
            remedy: "keep it in a folder: dmabuf-dio keep NAME=SOURCE, without --hold",
        });
    }
    let total = length(files);
    let mut before = 0;
    let mut held = Vec::new();
    for file in &files.files {
        let (memfd, dma_buf) = load_one(file, loading, with_dma_buf, before, total)?;
        before += file.identity.length();
        for place in &file.places {
            let again = |fd: &OwnedFd| {
                fd.try_clone().map_err(|error| Error::Io {
                    path: place.clone(),
                    step: "open another descriptor for it",
                    error,
                })
            };
            held.push(HeldFile {
                place: place.clone(),
                length: file.identity.length(),
                memfd: again(&memfd)?,
                dma_buf: dma_buf.as_ref().map(again).transpose()?,
            });
        }
    }
    Ok(held)
}

/// A sealed memfd with the content of a file, open for reading, and the dma-buf over it.
fn load_one(
    file: &File,
    loading: &Loading,
    with_dma_buf: bool,
    before: u64,
    total: u64,
) -> Result<(OwnedFd, Option<OwnedFd>)> {
    let failed = |error: std::io::Error| Error::Io {
        path: file.places[0].clone(),
        step: "hold it in memory",
        error,
    };
    let mut dma_buf = None;
    let own = if file.identity.length() == 0 {
        memfd("dmabuf-dio").map_err(|errno| failed(errno.into()))?
    } else {
        let options = Options { kind: Kind::File, backend: None, ..loading.options.clone() };
        let mut loader = file
            .loader
            .clone()
            .options(options)
            .length(file.identity.length())
            .cancel(loading.cancel.clone());
        if let Some(told) = &loading.progress {
            let told = Arc::clone(told);
            loader = loader.progress(move |progress| told(before + progress.done, total));
        }
        let buffer = loader.load()?;
        if with_dma_buf {
            let face = buffer.dma_buf()?;
            dma_buf = Some(face.as_fd().try_clone_to_owned().map_err(failed)?);
        }
        buffer.into_fd()?
    };
    let mut sealed = Buffer::from_fd(own)?;
    // Pages that a dma-buf pins cannot be sealed for those who have them mapped already, who are nobody yet.
    if dma_buf.is_some() || sealed.seal().is_err() {
        sealed.seal_future_writes()?;
    }
    let path = format!("/proc/self/fd/{}", sealed.fd()?.as_raw_fd());
    let reading = std::fs::File::open(path).map_err(failed)?;
    Ok((reading.into(), dma_buf))
}
