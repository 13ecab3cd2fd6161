// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schemes that load a file into a new dma-buf.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use dmabuf_dio::Direction;
use dmabuf_dio_sys::dio;
use rustix::fs::OFlags;
use rustix::io::Errno as Os;

use crate::buffer::devices::{allocate_and_read, open_heap, open_module};
use crate::buffer::mapping::Mapping;
use crate::buffer::parallel;
use crate::buffer::transfer::{Mover, TransferMethod};
use crate::buffer::{Buffer, BufferKind, Maker, memfd};
use crate::disk::IoMode;
use crate::load::read_gather::ReadGather;
use crate::measure::outcome::Trouble;
use crate::measure::time::{Start, Took};

/// Larger than any buffer: all memory is allocated before the first read.
const ALL: u64 = 1 << 40;
/// The default gather size of the heap flag.
pub(crate) const HEAP_GATHER: u64 = 128 << 20;

/// How the file is read into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Means {
    /// Allocate a dma-buf, map it, read.
    Normal,
    /// Create a udmabuf over a memfd, map the memfd, read.
    Udmabuf,
    /// Read into a memfd from several threads. The udmabuf over it is created meanwhile, or, if `huge`,
    /// at the end, as what it pins cannot become a huge page.
    Parallel { huge: bool },
    /// Fill a memfd by sendfile, create a udmabuf over it.
    Sendfile,
    /// Allocate and read in one call.
    Load { by: LoadProvider, gather: bool },
}

/// The provider of LOAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LoadProvider {
    Heap,
    Module,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scheme {
    pub(crate) means: Means,
    pub(crate) mode: IoMode,
}

impl Scheme {
    pub(crate) fn name(self) -> String {
        let mode = self.mode.name();
        match self.means {
            Means::Normal => "normal".into(),
            Means::Udmabuf => format!("udmabuf {mode}"),
            Means::Parallel { huge: false } => format!("udmabuf {mode}, parallel"),
            Means::Parallel { huge: true } => format!("udmabuf {mode}, parallel, huge pages"),
            Means::Sendfile => format!("sendfile {mode}"),
            Means::Load { by, gather } => {
                let by = match by {
                    LoadProvider::Heap => "heap",
                    LoadProvider::Module => "module",
                };
                format!("LOAD {by} {mode}{}", if gather { ", gather" } else { "" })
            }
        }
    }

    /// For a LOAD with gather: the same without gather.
    pub(crate) fn without_gather(self) -> Option<Self> {
        match self.means {
            Means::Load { by, gather: true } => {
                Some(Self { means: Means::Load { by, gather: false }, ..self })
            }
            _ => None,
        }
    }
}

/// All schemes, those through the page cache first. A LOAD without gather precedes the one with
/// gather that is compared with it.
pub(crate) fn all() -> Vec<Scheme> {
    let mut schemes = vec![Scheme { means: Means::Normal, mode: IoMode::Buffer }];
    for mode in IoMode::BOTH {
        schemes.push(Scheme { means: Means::Udmabuf, mode });
        if mode == IoMode::Direct {
            schemes
                .extend([false, true].map(|huge| Scheme { means: Means::Parallel { huge }, mode }));
        }
        schemes.push(Scheme { means: Means::Sendfile, mode });
        for by in [LoadProvider::Heap, LoadProvider::Module] {
            schemes.extend(
                [false, true].map(|gather| Scheme { means: Means::Load { by, gather }, mode }),
            );
        }
    }
    schemes
}

/// A loaded buffer, and the time it took.
#[derive(Debug)]
pub(crate) struct LoadedBuffer {
    pub(crate) buffer: Buffer,
    /// If they can be separated: milliseconds of allocation and of I/O.
    pub(crate) parts: Option<[f64; 2]>,
    pub(crate) total: Took,
    /// Mappings used for the I/O.
    _mappings: Vec<Mapping>,
}

/// Runs schemes on a file of `len` bytes.
pub(crate) struct Runner {
    pub(crate) len: u64,
    /// The gather size, if the user selects one.
    pub(crate) gather: Option<u64>,
}

impl Runner {
    pub(crate) fn run(&self, scheme: Scheme, file: &File) -> Result<LoadedBuffer, Trouble> {
        match scheme.means {
            Means::Normal => self.read(BufferKind::DmaBuf, file),
            Means::Udmabuf => self.read(BufferKind::UdmabufMemfd, file),
            Means::Parallel { huge } => self.parallel(huge, file),
            Means::Sendfile => self.sendfile(file),
            Means::Load { by: LoadProvider::Heap, gather } => self.load_by_heap(gather, file),
            Means::Load { by: LoadProvider::Module, gather } => self.load_by_module(gather, file),
        }
    }

    fn read(&self, kind: BufferKind, file: &File) -> Result<LoadedBuffer, Trouble> {
        let maker = Maker::new(kind)?;
        let mover = Mover::new(TransferMethod::ReadWrite, Direction::Load)?;
        let start = Start::now();
        let buffer = maker.make(self.len)?;
        let allocation = start.took().wall_ms;
        let mappings = mover.run(file, kind, std::slice::from_ref(&buffer))?;
        let total = start.took();
        let parts = Some([allocation, total.wall_ms - allocation]);
        Ok(LoadedBuffer { buffer, parts, total, _mappings: mappings })
    }

    fn parallel(&self, huge: bool, file: &File) -> Result<LoadedBuffer, Trouble> {
        let start = Start::now();
        let (buffer, mapping) = parallel::load(file, self.len, huge)?;
        let total = start.took();
        Ok(LoadedBuffer { buffer, parts: None, total, _mappings: vec![mapping] })
    }

    /// Creates the dma-buf last, which also allocates the memfd's pages.
    fn sendfile(&self, file: &File) -> Result<LoadedBuffer, Trouble> {
        let maker = Maker::new(BufferKind::UdmabufMemfd)?;
        let mover = Mover::new(TransferMethod::Sendfile, Direction::Load)?;
        let start = Start::now();
        let empty = memfd(self.len)?;
        let before = start.took().wall_ms;
        mover.run(file, BufferKind::Memfd, std::slice::from_ref(&empty))?;
        let moved = start.took().wall_ms;
        let buffer = maker.cover(empty)?;
        let total = start.took();
        let io = moved - before;
        let parts = Some([total.wall_ms - io, io]);
        Ok(LoadedBuffer { buffer, parts, total, _mappings: Vec::new() })
    }

    fn load_by_heap(&self, gather: bool, file: &File) -> Result<LoadedBuffer, Trouble> {
        let wait = if gather { self.gather.unwrap_or(HEAP_GATHER) } else { ALL };
        let _until_done = ReadGather::set(wait)?;
        let heap = open_heap()?;
        let start = Start::now();
        let (fd, done) = allocate_and_read(&heap, self.len, file)?;
        self.loaded(fd, "DMA_HEAP_FLAG_READ_FILE", done, start.took())
    }

    fn load_by_module(&self, gather: bool, file: &File) -> Result<LoadedBuffer, Trouble> {
        let context = open_module()?;
        let mut load = dio::Load {
            file_fd: file.as_raw_fd(),
            fd_flags: (OFlags::RDWR | OFlags::CLOEXEC).bits(),
            length: self.len,
            gather: if gather { self.gather.unwrap_or(0) } else { ALL },
            ..dio::Load::default()
        };
        let start = Start::now();
        let fd = dio::load(context.as_fd(), &mut load)
            .map_err(|errno| Trouble::failed("LOAD of /dev/dmabuf_dio", errno))?;
        self.loaded(fd, "LOAD of /dev/dmabuf_dio", load.done, start.took())
    }

    fn loaded(
        &self,
        fd: OwnedFd,
        what: &str,
        done: u64,
        total: Took,
    ) -> Result<LoadedBuffer, Trouble> {
        if done != self.len {
            return Err(Trouble::short(what, done, self.len));
        }
        let buffer = Buffer::of_dmabuf(fd, self.len);
        Ok(LoadedBuffer { buffer, parts: None, total, _mappings: Vec::new() })
    }

    /// Reads the file again into a buffer created by LOAD, by the same provider: the I/O without the
    /// allocation.
    pub(crate) fn io_alone(
        &self,
        by: LoadProvider,
        buffer: &Buffer,
        file: &File,
    ) -> Result<Took, Trouble> {
        match by {
            LoadProvider::Heap => {
                let mover = Mover::new(TransferMethod::CopyFileRange, Direction::Load)?;
                let start = Start::now();
                mover.run(file, BufferKind::DmaBuf, std::slice::from_ref(buffer))?;
                Ok(start.took())
            }
            LoadProvider::Module => {
                let context = open_module()?;
                dio::attach(context.as_fd(), buffer.target(), &mut dio::Attach::default())
                    .map_err(|errno| Trouble::failed("ATTACH of /dev/dmabuf_dio", errno))?;
                let mut read = dio::ReadWrite {
                    file_fd: file.as_raw_fd(),
                    length: self.len,
                    ..dio::ReadWrite::default()
                };
                let start = Start::now();
                dio::read(context.as_fd(), &mut read)
                    .map_err(|errno| Trouble::failed("READ of /dev/dmabuf_dio", errno))?;
                let took = start.took();
                if read.done != self.len {
                    return Err(Trouble::short("READ of /dev/dmabuf_dio", read.done, self.len));
                }
                Ok(took)
            }
        }
    }
}

/// The result of `sendfile` to a dma-buf, which explains why a memfd is used. `None` without a heap.
pub(crate) fn sendfile_to_dmabuf(file: &File) -> Option<Result<(), Os>> {
    let page = rustix::param::page_size();
    let buffer = Maker::new(BufferKind::DmaBuf).ok()?.make(page as u64).ok()?;
    let moved = rustix::fs::sendfile(buffer.target(), file, Some(&mut 0), page);
    Some(moved.map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn schemes_are_unique_and_gather_follows_its_base() {
        let schemes = all();
        assert_eq!(schemes.len(), 15);
        let names: HashSet<String> = schemes.iter().map(|scheme| scheme.name()).collect();
        assert_eq!(names.len(), 15);
        for (index, scheme) in schemes.iter().enumerate() {
            if let Some(without) = scheme.without_gather() {
                assert_eq!(schemes[index - 1], without);
            }
        }
        assert_eq!(schemes.iter().filter_map(|scheme| scheme.without_gather()).count(), 4);
    }
}
