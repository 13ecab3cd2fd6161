// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that a device which is not coherent has attached (`kernel/sim/shadow_importer`): every byte
//! that it writes arrives in files and pipes, and every byte from there reaches it. Blocks of the
//! system heap, and of the kernel module where there is no heap.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use dmabuf_dio::{Backend, Buffer, DmaBuf, Kind, Loader};
use dmabuf_dio_stream::{
    BlockRing, FdSink, FdSource, FileSink, FileSource, Filled, Source, Stream,
};
use rustix::pipe::{PipeFlags, pipe_with};

use common::{FRAME, Keeper, Made};

const DEVICE: &str = "/dev/shadow_importer";
/// `EDU_IMPORT_READER` and `EDU_IMPORT_WRITER` of `edu_importer.h`.
const READER: libc::Ioctl = (0xed << 8) + 1;
const WRITER: libc::Ioctl = (0xed << 8) + 2;
/// Ends inside a disk block, and inside a block of the ring.
const LENGTH: u64 = (3 << 20) + 4096 + 24;
/// Blocks of a ring, and the bytes of each.
const RINGS: [(usize, u64); 4] = [(2, 64 << 10), (4, 1 << 20), (3, 4096 + 24), (64, 16 << 10)];

/// The blocks of a ring, as the device has them.
fn import(ring: &BlockRing, import: libc::Ioctl) -> Vec<File> {
    let import = |block: &Buffer| {
        let device = OpenOptions::new().read(true).write(true).open(DEVICE).expect("open");
        let block = block.fd().expect("a descriptor").as_raw_fd();
        // SAFETY: the call takes a number and no memory.
        let result = unsafe { libc::ioctl(device.as_raw_fd(), import, block) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        device
    };
    ring.blocks().iter().map(import).collect()
}

/// The device, which fills blocks at once.
fn writer(ring: &BlockRing) -> impl Source + use<> {
    let (blocks, mut written) = (import(ring, WRITER), 0);
    let mut source = Made::new(FRAME, move |_, Filled { block, bytes }| {
        blocks[block].write_all_at(&content(written, bytes), 0).expect("the device writes");
        written += bytes;
        Some(bytes)
    });
    source.facts.len = Some(LENGTH);
    source
}

/// The device, which empties blocks at once.
fn reader(ring: &BlockRing) -> Keeper {
    let blocks = import(ring, READER);
    let mut sink = Keeper::new(1);
    sink.read = Box::new(move |_, Filled { block, bytes }| {
        let mut seen = vec![0; bytes as usize];
        blocks[block].read_exact_at(&mut seen, 0).expect("it reads");
        seen
    });
    sink
}

/// Bytes of the stream from `start` on: the numbers of its frames.
fn content(start: u64, bytes: u64) -> Vec<u8> {
    let first = start / FRAME;
    (first..first + bytes / FRAME)
        .flat_map(|number| (number ^ 0x5a5a_0000_5a5a).to_le_bytes())
        .collect()
}

#[track_caller]
fn assert_all(what: &str, found: &[u8]) {
    let wanted = content(0, LENGTH);
    assert_eq!(found.len(), wanted.len(), "{what}");
    let differs = found.iter().zip(&wanted).position(|(one, other)| one != other);
    assert_eq!(differs, None, "{what}");
}

fn folder() -> tempfile::TempDir {
    let parent =
        std::env::var_os("DMABUF_DIO_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(parent).expect("a folder")
}

fn pipe() -> (File, OwnedFd) {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    (read.into(), write)
}

/// Rings of each exporter.
fn rings() -> Vec<(String, BlockRing)> {
    let folder = folder();
    let path = folder.path().join("zeros");
    let mut rings = Vec::new();
    for (count, size) in RINGS {
        if DmaBuf::alloc(4096).is_ok() {
            let ring = BlockRing::new(count, size).expect("blocks");
            rings.push((format!("{count} of {size} bytes, system heap"), ring));
        }
        File::create(&path).expect("a file").set_len(size).expect("its length");
        let load = |_| {
            Loader::new(&path).backend(Backend::Module).kind(Kind::DmaBuf).load().expect("load")
        };
        let ring = BlockRing::of((0..count).map(load).collect(), size).expect("blocks");
        rings.push((format!("{count} of {size} bytes, module"), ring));
    }
    rings
}

/// Whether there is the device. `DMABUF_DIO_REQUIRE` says whether there has to be.
fn is_there() -> bool {
    let is_there = fs::exists(DEVICE).expect("a look at /dev");
    let required = std::env::var("DMABUF_DIO_REQUIRE").unwrap_or_default();
    assert!(is_there || !required.split(',').any(|name| name == "shadow"), "no {DEVICE}");
    if !is_there {
        println!("skipped: no {DEVICE}");
    }
    is_there
}

#[test]
fn device_writes_reach_the_file() {
    if !is_there() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("samples");
    for (what, ring) in rings() {
        let (mut source, mut sink) = (writer(&ring), FileSink::create(&path).expect("a file"));
        let summary = Stream::new(&mut source, &mut sink, ring).run().expect("run");
        println!("{what}: {}", summary.sink);
        assert_eq!(summary.bytes, LENGTH, "{what}");
        assert_all(&what, &fs::read(&path).expect("the file"));
    }
}

#[test]
fn device_reads_the_bytes_of_the_file() {
    if !is_there() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("samples");
    fs::write(&path, content(0, LENGTH)).expect("written");
    for (what, ring) in rings() {
        let mut source = FileSource::open(&path, FRAME).expect("the file");
        let mut sink = reader(&ring);
        let summary = Stream::new(&mut source, &mut sink, ring).run().expect("run");
        println!("{what}: {}", summary.source);
        assert_all(&what, &sink.bytes);
    }
}

#[test]
fn device_streams_through_pipes() {
    if !is_there() {
        return;
    }
    for (what, ring) in rings() {
        let (mut from, to) = pipe();
        let receiver = std::thread::spawn(move || {
            let mut found = Vec::new();
            from.read_to_end(&mut found).expect("read");
            found
        });
        let (mut source, mut sink) =
            (writer(&ring), FdSink::new(to, "the pipe", FRAME).expect("a sink"));
        Stream::new(&mut source, &mut sink, ring).run().expect("run");
        drop(sink);
        assert_all(&what, &receiver.join().expect("it reads"));
    }
    for (what, ring) in rings() {
        let (from, to) = pipe();
        let writer = std::thread::spawn(move || {
            File::from(to).write_all(&content(0, LENGTH)).expect("written");
        });
        let (mut source, mut sink) =
            (FdSource::new(from, "the pipe", FRAME).expect("a source"), reader(&ring));
        Stream::new(&mut source, &mut sink, ring).run().expect("run");
        writer.join().expect("it writes");
        assert_all(&what, &sink.bytes);
    }
}
