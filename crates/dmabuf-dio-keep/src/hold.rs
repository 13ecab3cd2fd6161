// SPDX-License-Identifier: MIT OR Apache-2.0
//! A service that holds a source: started by its socket, with descriptors that outlive it.

use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use dmabuf_dio::{Buffer, Kind, Options};
use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::fill::Loading;
use crate::holder::{HeldFile, Holder, Listener};
use crate::name::Name;
use crate::opened::OpenFile;
use crate::packet::{Header, Held, MOST};
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

/// The generation that a stored name is of; `None` if it is no name of a file.
pub(crate) fn generation_of(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("memfd-").or_else(|| name.strip_prefix("dmabuf-"))?;
    rest.split_once('-')?.0.parse().ok()
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

    /// A generation that no stored name has: a process that was killed before it stored its record leaves names that
    /// no record has.
    fn next_generation(&self, old: Option<&State>) -> u64 {
        let names = self.stored.iter().filter_map(|(name, _)| generation_of(name));
        let last = names.chain(old.map(|state| state.generation)).max();
        last.map_or(0, |last| last.wrapping_add(1))
    }

    /// Gives up what is not of a generation, here and in the service manager. The record stays.
    fn forget_others(
        &mut self,
        manager: &Manager,
        generation: Option<u64>,
    ) -> rustix::io::Result<()> {
        let is_of = |name: &str| generation.is_some() && generation_of(name) == generation;
        let all = std::mem::take(&mut self.stored).into_iter();
        let (own, others): (_, Vec<_>) = all.partition(|(name, _)| is_of(name));
        self.stored = own;
        let mut names = others.iter().map(|(name, _)| name).filter(|name| *name != RECORD);
        names.try_for_each(|name| manager.forget(name))
    }

    /// The held files of a state, if all of them are there.
    fn restore(&mut self, state: &State) -> Option<Vec<HeldFile>> {
        let has = |wanted: &str| self.stored.iter().any(|(name, _)| name == wanted);
        let is_whole = state.files.iter().enumerate().all(|(number, file)| {
            has(&memfd_name(state.generation, number))
                && has(&dma_buf_name(state.generation, number)) == file.has_dma_buf
        });
        if !is_whole {
            return None;
        }
        let mut files = Vec::new();
        for (number, file) in state.files.iter().enumerate() {
            let memfd = self.take(&memfd_name(state.generation, number))?;
            let dma_buf = self.take(&dma_buf_name(state.generation, number));
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
    let new = given.next_generation(old.as_ref());
    // Before others are stored: systemd takes no more than FileDescriptorStoreMax=.
    let told = given.forget_others(&manager, old.as_ref().map(|state| state.generation));
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
    let restored =
        usable.and_then(|state| Some((given.restore(&state)?, state.is_folder, state.generation)));
    let (files, is_folder, generation) = if let Some(restored) = restored {
        note = found.err().map(|error| format!("what was held is held on: {error}"));
        restored
    } else {
        let files = found?;
        let held = load(name.as_str(), &files, loading, with_dma_buf)?;
        let record = Record::of_unchanged(source, &files)?;
        let state = State {
            record,
            is_folder: files.is_folder,
            generation: new,
            files: held.iter().map(Stored::from).collect(),
        };
        if let Err(error) = store(&manager, &state, &held) {
            note = Some(format!("a restart will load again: {error}"));
        }
        (held, files.is_folder, new)
    };
    let told = told.and_then(|()| given.forget_others(&manager, Some(generation)));
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
fn load(name: &str, files: &Files, loading: &Loading, with_dma_buf: bool) -> Result<Vec<HeldFile>> {
    let count: usize = files.files.iter().map(|file| file.places.len()).sum();
    if count > MOST {
        return Err(Error::Source {
            path: files.files[0].places[0].clone(),
            what: format!("the folder has {count} files, and one packet has {MOST} descriptors"),
            remedy: "keep it in a folder: dmabuf-dio keep NAME=SOURCE, without --hold",
        });
    }
    let entries = files.files.iter().flat_map(|file| {
        let held = |place: &PathBuf| Held::new(place.clone(), file.identity.length(), Kind::DmaBuf);
        file.places.iter().map(held)
    });
    Header::new(name, files.is_folder, entries.collect()).text()?;
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
    let mut open = OpenFile::open(file)?;
    let mut dma_buf = None;
    let own = if file.identity.length() == 0 {
        memfd("dmabuf-dio").map_err(|errno| failed(errno.into()))?
    } else {
        let options = Options { kind: Kind::File, backend: None, ..loading.options.clone() };
        let mut loader = open
            .loader()
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
    open.check()?;
    let mut sealed = Buffer::from_fd(own)?;
    // Pages that a dma-buf pins cannot be sealed for those who have them mapped already, who are nobody yet.
    if dma_buf.is_some() || sealed.seal().is_err() {
        sealed.seal_future_writes()?;
    }
    let fd = sealed.fd()?;
    fix(fd.as_fd()).map_err(|errno| failed(errno.into()))?;
    let reading =
        std::fs::File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).map_err(failed)?;
    Ok((reading.into(), dma_buf))
}

/// Fixes the length and the seals of a memfd that is sealed against writing. Who gets it can open it for writing, and
/// what he writes beyond its end would be memory of this service.
fn fix(memfd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let length = SealFlags::SHRINK | SealFlags::GROW;
    rustix::fs::fcntl_add_seals(memfd, length | SealFlags::SEAL)?;
    let seals = rustix::fs::fcntl_get_seals(memfd)?;
    if seals.contains(length) && seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        Ok(())
    } else {
        Err(rustix::io::Errno::PERM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::OnDisk;

    #[test]
    fn generation_is_one_that_no_stored_name_has() {
        let stored = |name: &str| (name.to_owned(), memfd("test").expect("a memfd"));
        let next = |names: &[&str]| {
            let stored = names.iter().map(|name| stored(name)).collect();
            Given { listeners: Vec::new(), stored }.next_generation(None)
        };
        assert_eq!(next(&[]), 0);
        assert_eq!(next(&["memfd-0-0"]), 1);
        assert_eq!(next(&["memfd-2-0", "dmabuf-11-7", "memfd-3-1", "other"]), 12);
    }

    #[test]
    fn only_a_generation_is_kept() {
        let names = ["memfd-0-0", "memfd-1-0", "dmabuf-1-0", "dmabuf-2-0", "record", "other"];
        for (generation, kept) in [(None, &[][..]), (Some(1), &["memfd-1-0", "dmabuf-1-0"])] {
            let stored = names.map(|name| (name.to_owned(), memfd("test").expect("a memfd")));
            let mut given = Given { listeners: Vec::new(), stored: stored.into() };
            given.forget_others(&Manager::nobody(), generation).expect("nobody is told");
            let left: Vec<_> = given.stored.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(left, kept);
        }
    }

    #[test]
    fn file_that_is_swapped_for_the_load_is_not_held() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mine, secret) = (folder.path().join("mine"), folder.path().join("secret"));
        for path in [&mine, &secret] {
            std::fs::write(path, "bytes").expect("written");
        }
        let mut files = OnDisk::new(&mine).files().expect("files");
        files.files[0].path = Some(secret);
        let error = load("m", &files, &Loading::default(), false).expect_err("swapped");
        assert!(matches!(error, Error::Changed { .. }), "{error}");
    }

    #[test]
    fn what_is_held_has_a_fixed_length() {
        let folder = tempfile::tempdir().expect("a folder");
        for content in ["", "some"] {
            let path = folder.path().join("f");
            std::fs::write(&path, content).expect("written");
            let files = OnDisk::new(&path).files().expect("files");
            let held = load("m", &files, &Loading::default(), false).expect("loaded");
            let again = format!("/proc/self/fd/{}", held[0].memfd.as_raw_fd());
            let writer = std::fs::File::options().write(true).open(again).expect("again");
            writer.set_len(4096).expect_err("grown");
            rustix::io::pwrite(&writer, b"x", 4).expect_err("written");
            rustix::fs::fcntl_add_seals(&writer, SealFlags::WRITE).expect_err("sealed by another");
        }
    }
}
