// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations. Each returns the way of the data, for the table, or an error.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use dmabuf_dio::gather::{Gatherer, Piece};
use dmabuf_dio::{Backend, Buffer, Direction, DmaBuf, Error, Loader, Mode, Report, Saver};
use dmabuf_dio_sys::dio;
use rustix::fs::{Advice, Mode as Permissions, OFlags};

use crate::common::{available, bytes, content, fill, write_cold};
use crate::evidence::{Counters, Scope, Way};

/// The tested files: one to read, one to write, and their content.
pub(crate) struct Place {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) is_device: bool,
    pub(crate) writable: bool,
    /// A file that all is in.
    pub(crate) below: Option<PathBuf>,
    pub(crate) scope: Scope,
    pub(crate) content: Vec<u8>,
}

type Cell = Result<String, String>;
type Operation = fn(&Place) -> Cell;

/// Names, as in the head of the table.
pub(crate) const OPERATIONS: [(&str, Operation); 8] = [
    ("READ", read),
    ("LOAD", load_call),
    ("READ_FIXED", read_slot),
    ("load", load),
    ("gather", gather),
    ("WRITE", write),
    ("WRITE_FIXED", write_slot),
    ("save", save),
];

/// In the table where an operation is not possible.
const NONE: &str = "–";
/// The content of a buffer before a load.
const BEFORE: u8 = 0xa5;
/// The length of a piece, a multiple of every block size.
const PIECE: usize = 64 << 10;

impl Place {
    fn length(&self) -> u64 {
        self.content.len() as u64
    }

    /// A call that moves all of the file.
    fn whole(&self, file: &OwnedFd) -> dio::ReadWrite {
        let (file_fd, length) = (file.as_raw_fd(), self.length());
        dio::ReadWrite { file_fd, length, ..dio::ReadWrite::default() }
    }

    /// A buffer longer than the file.
    fn buffer(&self) -> Buffer {
        let room = self.content.len().next_multiple_of(PIECE) + 4 * PIECE;
        DmaBuf::alloc(room as u64).expect("a buffer of the system heap").into()
    }

    /// A buffer that begins with what the file shall have.
    fn full_buffer(&self) -> Buffer {
        let mut buf = self.buffer();
        fill(&mut buf, BEFORE);
        let mut view = buf.map_mut().expect("map");
        view.write_at(0, &self.content).expect("fill");
        view.finish().expect("end the access");
        buf
    }

    /// The target's content before: some bytes more, except where a short file has to stay short.
    fn old(&self) -> Vec<u8> {
        let behind = if self.content.len() < PIECE { 0 } else { PIECE };
        content(self.content.len() + behind, 99)
    }

    /// Opens a file with `O_DIRECT`, or without it where that is refused.
    fn open(path: &Path, access: OFlags) -> (OwnedFd, bool) {
        let open =
            |flags| rustix::fs::open(path, access | flags | OFlags::CLOEXEC, Permissions::empty());
        match open(OFlags::DIRECT) {
            Ok(fd) => (fd, true),
            Err(_) => (open(OFlags::empty()).expect("open"), false),
        }
    }

    /// Writes everything back, and empties the page cache of the files.
    fn settle(&self) {
        rustix::fs::sync();
        for path in [Some(&self.source), Some(&self.target), self.below.as_ref()] {
            if let Some(file) = path.and_then(|path| File::open(path).ok()) {
                rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("drop its cache");
            }
        }
    }

    /// Runs an operation, and finds the way of the data.
    fn observe<T>(&self, direction: Direction, act: impl FnOnce() -> T) -> (T, Way) {
        let path = if direction == Direction::Load { &self.source } else { &self.target };
        self.settle();
        let before = Counters::now(path, self.length());
        let result = act();
        if direction == Direction::Save {
            // A save that failed may have left no file.
            if let Ok(file) = File::open(path) {
                file.sync_all().expect("written back");
            }
        }
        let seen = Counters::now(path, self.length()).since(before);
        println!("    {seen:?}");
        (result, seen.way(direction, self.length(), self.scope))
    }

    /// Whether the buffer has the content of the file, and nothing else has changed.
    fn check_buffer(&self, buf: &Buffer) -> Result<(), String> {
        let mut expected = vec![BEFORE; buf.len() as usize];
        expected[..self.content.len()].copy_from_slice(&self.content);
        same(&bytes(buf), &expected)
    }

    /// Whether the target has the new content, and its old content behind that.
    fn check_target(&self, old: &[u8]) -> Result<(), String> {
        self.settle();
        let mut expected = old.to_vec();
        expected.resize(old.len().max(self.content.len()), 0);
        expected[..self.content.len()].copy_from_slice(&self.content);
        let file = File::open(&self.target).expect("open");
        let mut found = Vec::new();
        // A device does not end there.
        let most = expected.len() as u64 + u64::from(!self.is_device);
        file.take(most).read_to_end(&mut found).expect("read");
        same(&found, &expected)
    }
}

fn same(found: &[u8], expected: &[u8]) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{} bytes, not {}", found.len(), expected.len()));
    }
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} is {:#04x}, not {:#04x}", found[at], expected[at])),
    }
}

/// The module counts what it requested with `O_DIRECT`. A file system that takes the page cache
/// nevertheless is marked with an asterisk.
fn by_module(place: &Place, way: Way, is_direct: bool, done: u64, direct: u64) -> Cell {
    let length = place.length();
    let told = format!("{way}, but {direct} of {done} bytes counted as requested with O_DIRECT");
    if done != length {
        return Err(format!("{done} of {length} bytes moved"));
    }
    match way {
        _ if !is_direct && direct > 0 => Err(told),
        Way::Direct if direct * 8 < length * 7 => Err(told),
        Way::Direct => Ok(way.to_string()),
        _ if direct * 8 > length => Ok(format!("{way}*")),
        _ => Ok(way.to_string()),
    }
}

/// The library reports how the data went.
fn by_library(place: &Place, way: Way, report: &Report) -> Cell {
    let (length, copied) = (place.length(), report.copied_bytes);
    println!("    {report}; {copied} bytes copied; {}", report.evidence);
    for note in &report.notes {
        println!("    {note}");
    }
    let agrees = match way {
        Way::Direct => {
            // A part of a block may stay in the page cache with the whole of it.
            report.mode == Mode::Direct || report.mode == Mode::Mixed && copied * 8 <= length
        }
        Way::Mixed => matches!(report.mode, Mode::Mixed | Mode::Buffered) && copied > 0,
        Way::Buffered => {
            matches!(report.mode, Mode::Mixed | Mode::Buffered | Mode::PageCache)
                && copied * 8 >= length * 7
        }
    };
    if !agrees {
        return Err(format!("{way}, but reported as {report}, {copied} bytes copied by the CPU"));
    }
    // File systems may copy past the page cache.
    let by_cpu = if way == Way::Direct && copied * 2 >= length { ", copied" } else { "" };
    Ok(format!("{way}{by_cpu}"))
}

/// The buffer, attached to a context of its own.
fn attached(buf: &Buffer) -> OwnedFd {
    let context = dio::open().expect("the module");
    let mut attach = dio::Attach::default();
    dio::attach(context.as_fd(), buf.fd().expect("a descriptor"), &mut attach).expect("attach");
    context
}

fn read(place: &Place) -> Cell {
    let mut buf = place.buffer();
    fill(&mut buf, BEFORE);
    let context = attached(&buf);
    let (file, is_direct) = Place::open(&place.source, OFlags::RDONLY);
    let mut rw = place.whole(&file);
    let (result, way) = place.observe(Direction::Load, || dio::read(context.as_fd(), &mut rw));
    result.map_err(|errno| errno.to_string())?;
    place.check_buffer(&buf)?;
    by_module(place, way, is_direct, rw.done, rw.direct)
}

fn load_call(place: &Place) -> Cell {
    let context = dio::open().expect("the module");
    let (file, is_direct) = Place::open(&place.source, OFlags::RDONLY);
    let mut load = dio::Load {
        file_fd: file.as_raw_fd(),
        fd_flags: (OFlags::RDWR | OFlags::CLOEXEC).bits(),
        length: place.length(),
        ..dio::Load::default()
    };
    let (result, way) = place.observe(Direction::Load, || dio::load(context.as_fd(), &mut load));
    let buf = Buffer::from_fd(result.map_err(|errno| errno.to_string())?).expect("a buffer");
    let mut expected = place.content.clone();
    expected.resize(buf.len() as usize, 0);
    same(&bytes(&buf), &expected)?;
    by_module(place, way, is_direct, load.done, load.direct)
}

/// Slots are not used on FUSE, nor on kernels that have none.
fn slot(result: Result<Report, Error>) -> Result<Option<Report>, String> {
    match result {
        Ok(report) => Ok(Some(report)),
        Err(error @ Error::Unavailable { .. })
            if !available(Backend::UringSlot) || error.to_string().contains("FUSE") =>
        {
            println!("    {error}");
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

fn read_slot(place: &Place) -> Cell {
    let mut buf = place.buffer();
    fill(&mut buf, BEFORE);
    let loader = Loader::new(&place.source).length(place.length()).backend(Backend::UringSlot);
    let (result, way) = place.observe(Direction::Load, || loader.load_into(&buf, 0));
    let Some(report) = slot(result)? else { return Ok(NONE.into()) };
    place.check_buffer(&buf)?;
    by_library(place, way, &report)
}

fn load(place: &Place) -> Cell {
    let loader = Loader::new(&place.source).length(place.length());
    let (result, way) = place.observe(Direction::Load, || loader.load());
    let loaded = result.map_err(|error| error.to_string())?;
    let range = loaded.range();
    same(&bytes(&loaded)[range.start as usize..range.end as usize], &place.content)?;
    by_library(place, way, loaded.report().expect("loaded"))
}

fn gather(place: &Place) -> Cell {
    let mut buf = place.buffer();
    fill(&mut buf, BEFORE);
    let end = place.content.len().next_multiple_of(PIECE) as u64;
    let pieces: Vec<_> = (0..place.content.len())
        .step_by(PIECE)
        .map(|at| Piece {
            offset: at as u64,
            buf_offset: at as u64,
            len: PIECE.min(place.content.len() - at) as u64,
        })
        .collect();
    // The cached bytes at the opening decide whether a call checks the cache.
    place.settle();
    let gatherer = Gatherer::new(&place.source).spare(end..buf.len());
    let mut gathering = gatherer.open(&buf).map_err(|error| error.to_string())?;
    let (result, way) = place.observe(Direction::Load, || gathering.read(&pieces));
    let gathered = result.map_err(|error| error.to_string())?;
    let found = bytes(&buf);
    for (piece, result) in pieces.iter().zip(gathered.pieces()) {
        let part = result.map_err(|error| format!("{piece:?}: {error}"))?;
        let at = piece.offset as usize;
        let start = part.start as usize;
        let len = piece.len as usize;
        same(&found[start..start + len], &place.content[at..at + len])
            .map_err(|wrong| format!("{piece:?}: {wrong}"))?;
    }
    by_library(place, way, &gathered.report().transfer)
}

fn write(place: &Place) -> Cell {
    if !place.writable {
        return Ok(NONE.into());
    }
    let (buf, old) = (place.full_buffer(), place.old());
    write_cold(&place.target, &old);
    let context = attached(&buf);
    let (file, is_direct) = Place::open(&place.target, OFlags::RDWR);
    let mut rw = place.whole(&file);
    let (result, way) = place.observe(Direction::Save, || dio::write(context.as_fd(), &mut rw));
    result.map_err(|errno| errno.to_string())?;
    drop(file);
    place.check_target(&old)?;
    place.check_buffer(&buf)?;
    by_module(place, way, is_direct, rw.done, rw.direct)
}

fn write_slot(place: &Place) -> Cell {
    if !place.writable {
        return Ok(NONE.into());
    }
    let (buf, old) = (place.full_buffer(), place.old());
    write_cold(&place.target, &old);
    let file = File::options().read(true).write(true).open(&place.target).expect("open");
    let saver = Saver::to_fd(file.as_fd()).backend(Backend::UringSlot);
    let (result, way) = place.observe(Direction::Save, || saver.save(&buf, 0..place.length()));
    let Some(report) = slot(result)? else { return Ok(NONE.into()) };
    place.check_target(&old)?;
    by_library(place, way, &report)
}

fn save(place: &Place) -> Cell {
    if !place.writable {
        return Ok(NONE.into());
    }
    let buf = place.full_buffer();
    // A file is replaced, a device is not.
    let old = if place.is_device { place.old() } else { Vec::new() };
    write_cold(&place.target, &old);
    let saver = Saver::new(&place.target);
    let (result, way) = place.observe(Direction::Save, || saver.save(&buf, 0..place.length()));
    let report = result.map_err(|error| error.to_string())?;
    place.check_target(&old)?;
    by_library(place, way, &report)
}
