// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads a file by a built-in method: from its path to all bytes in memory.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::slice;

use dmabuf_dio::Direction;
use dmabuf_dio::{Error, Kind, Loader};
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::io::Errno as Os;

use super::held::Held;
use super::methods::{LoadMethod, ReadInto};
use super::ring;
use crate::buffer::mapping::{Mapping, Pages};
use crate::buffer::transfer::{Mover, TransferMethod};
use crate::buffer::{BufferKind, Maker};
use crate::measure::outcome::{Status, Trouble, os};

impl LoadMethod {
    pub(crate) fn run(self, path: &Path) -> Result<Held, Trouble> {
        match self {
            Self::Library(backend) => buffer(&Loader::new(path).backend(backend)),
            Self::LibrarySmall(backend) => {
                buffer(&Loader::new(path).backend(backend).huge_pages(false))
            }
            Self::Private => buffer(&Loader::new(path).kind(Kind::Private)),
            Self::Read(ReadInto::Malloc) => read_into_malloc(path),
            Self::Read(ReadInto::Memfd) => read_into(BufferKind::Memfd, path),
            Self::Read(ReadInto::DmaBuf) => read_into(BufferKind::DmaBuf, path),
            Self::Map => map(path),
            Self::Direct { piece } => direct(piece, path),
            Self::Ring { piece, depth } => by_ring(piece, depth, path),
        }
    }
}

fn buffer(loader: &Loader<'_>) -> Result<Held, Trouble> {
    loader.load().map(Held::Library).map_err(|error| explain(&error))
}

fn explain(error: &Error) -> Trouble {
    let (status, reason) = match error {
        Error::Unavailable { refusals, .. } => {
            let reason = refusals.first().map(|refusal| refusal.reason.clone());
            (Status::Unavailable, reason.unwrap_or_else(|| error.to_string()))
        }
        _ => (Status::Failed, error.to_string()),
    };
    Trouble { status, reason: format!("{reason}; {}", error.hint()), errno: error.errno() }
}

fn read_into_malloc(path: &Path) -> Result<Held, Trouble> {
    let (file, len) = open(path, OFlags::empty())?;
    let mut bytes = Vec::with_capacity(len as usize);
    while bytes.len() < len as usize {
        match rustix::io::read(&file, spare_capacity(&mut bytes)) {
            Ok(0) => return Err(Trouble::short("read", bytes.len() as u64, len)),
            Ok(_) | Err(Os::INTR) => {}
            Err(errno) => return Err(Trouble::failed("read", errno)),
        }
    }
    Ok(Held::Vec(bytes))
}

fn read_into(kind: BufferKind, path: &Path) -> Result<Held, Trouble> {
    let (file, len) = open(path, OFlags::empty())?;
    let buffer = Maker::new(kind)?.make(len)?;
    let mover = Mover::new(TransferMethod::ReadWrite, Direction::Load)?;
    let mappings = mover.run(&file, kind, slice::from_ref(&buffer))?;
    Ok(Held::Buffer(buffer, mappings))
}

fn map(path: &Path) -> Result<Held, Trouble> {
    let (file, len) = open(path, OFlags::empty())?;
    let mapping =
        Mapping::of_file(file.as_fd(), len).map_err(|errno| Trouble::failed("mmap", errno))?;
    let page = rustix::param::page_size();
    // SAFETY: nobody else knows the file, so nobody changes or shrinks it.
    for byte in unsafe { mapping.content() }.iter().step_by(page) {
        std::hint::black_box(*byte);
    }
    Ok(Held::Mapping(mapping))
}

fn direct(piece: usize, path: &Path) -> Result<Held, Trouble> {
    let (file, len) = open(path, OFlags::DIRECT)?;
    let mut mapping = anonymous(len, Pages::Huge)?;
    // SAFETY: this process alone has the memory.
    let bytes = unsafe { mapping.bytes() };
    let mut done = 0;
    while done < bytes.len() {
        let end = bytes.len().min(done + piece);
        match rustix::io::pread(&file, &mut bytes[done..end], done as u64) {
            Ok(0) => return Err(Trouble::short("pread", done as u64, len)),
            Ok(read) => done += read,
            Err(Os::INTR) => {}
            Err(errno) => return Err(Trouble::failed("pread with O_DIRECT", errno)),
        }
    }
    Ok(Held::Mapping(mapping))
}

fn by_ring(piece: usize, depth: u32, path: &Path) -> Result<Held, Trouble> {
    let (file, len) = open(path, OFlags::DIRECT)?;
    let mut mapping = anonymous(len, Pages::Small)?;
    // SAFETY: this process alone has the memory.
    let bytes = unsafe { mapping.bytes() };
    let done = ring::read(&file, bytes, piece, depth).map_err(|error| match os(&error) {
        errno @ (Os::NOSYS | Os::PERM) => {
            Trouble::unavailable("io_uring", errno, "it is forbidden or missing here")
        }
        errno => Trouble::failed("io_uring", errno),
    })?;
    if done as u64 != len {
        return Err(Trouble::short("io_uring", done as u64, len));
    }
    Ok(Held::Mapping(mapping))
}

fn anonymous(len: u64, pages: Pages) -> Result<Mapping, Trouble> {
    Mapping::anonymous(len, pages).map_err(|errno| Trouble::failed("mmap", errno))
}

fn open(path: &Path, flags: OFlags) -> Result<(File, u64), Trouble> {
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let file = file.map_err(|error| match os(&error) {
        Os::INVAL if flags.contains(OFlags::DIRECT) => Trouble::unavailable(
            "open with O_DIRECT",
            Os::INVAL,
            "this file system does not support it; choose another: --dir DIR",
        ),
        errno => Trouble::failed("open", errno),
    })?;
    let len = file.metadata().map_err(|error| Trouble::failed("fstat", os(&error)))?.len();
    Ok((file, len))
}
