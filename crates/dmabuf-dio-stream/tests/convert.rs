// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversions, cuts and parts of files in a stream. The blocks are memfds.

mod common;

use std::cell::RefCell;
use std::fs;
use std::sync::Arc;

use dmabuf_dio_stream::convert::Layout;
use dmabuf_dio_stream::{
    ConvertingSink, ConvertingSource, Discard, Error, FileSink, FileSource, Filled, Format,
    RotatingSink, Source, Stream, Summary,
};

use crate::common::{Made, ring};

fn layout(format: &str, count: usize) -> Layout {
    Layout::uniform(format.parse::<Format>().expect(format), count)
}

/// Every value of 16 bits three times, in a file.
fn all_values() -> Vec<u8> {
    (0..3_u32 << 16).flat_map(|value| (value as u16).to_le_bytes()).collect()
}

fn ran(stream: Stream<'_>) -> Summary {
    stream.run().expect("the whole of it")
}

/// The blocks of the stream and of the adapter have several lengths, and the last one is not full.
#[test]
fn conversion_through_files_round_trips() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let shorts = all_values();
    fs::write(path("shorts"), &shorts).expect("written");
    let (short, single) = (layout("le:s16/16", 2), layout("be:f32/32", 2));
    for size in [4, 5000, 65_536, 1 << 20] {
        let mut source = FileSource::open(path("shorts"), 4).expect("a file");
        let file = Box::new(FileSink::create(path("singles")).expect("a file"));
        let mut sink = ConvertingSink::new(file, short.clone(), single.clone()).expect("a sink");
        // A block of a frame is slow, and one of two blocks fills both.
        let limit = if size == 4 { 4000 } else { u64::MAX };
        let summary = ran(Stream::new(&mut source, &mut sink, ring(2, size)).limit(limit));
        let frames = shorts.len().min(limit as usize) / 4;
        assert_eq!((summary.bytes, summary.complete), (4 * frames as u64, true));
        assert!(summary.sink.contains("le:s16/16>>0 x 2 to be:f32/32>>0 x 2"), "{}", summary.sink);
        let converted = sink.converted();
        assert_eq!((converted.frames, converted.to_frame_bytes), (frames as u64, 8));
        let singles = fs::read(path("singles")).expect("read");
        assert_eq!(singles.len(), 8 * frames);
        for (short, single) in shorts.chunks_exact(2).zip(singles.chunks_exact(4)) {
            let short = i16::from_le_bytes(short.try_into().expect("two"));
            let single = f32::from_be_bytes(single.try_into().expect("four"));
            assert_eq!(single.to_bits(), (f32::from(short) / 32768.0).to_bits(), "{short}");
        }

        let file = Box::new(FileSource::open(path("singles"), 8).expect("a file"));
        let mut source =
            ConvertingSource::new(file, single.clone(), short.clone()).expect("a source");
        let mut sink = FileSink::create(path("back")).expect("a file");
        let summary = ran(Stream::new(&mut source, &mut sink, ring(3, size)));
        assert_eq!(summary.bytes, 4 * frames as u64);
        assert!(fs::read(path("back")).expect("read") == shorts[..4 * frames], "{size}");
    }
}

/// Errors of the other end are reported, and only delivered samples count as delivered.
#[test]
fn errors_of_the_wrapped_end_pass_through() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shorts");
    fs::write(&path, [0; 4000]).expect("written");
    let mut source = FileSource::open(&path, 2).expect("a file");
    let (full, from) = ("/dev/full", layout("le:s16/16", 1));
    let Ok(sink) = FileSink::create(full) else { return };
    let mut sink = ConvertingSink::new(Box::new(sink), from, layout("le:s8/8", 1)).expect("a sink");
    let failed = Stream::new(&mut source, &mut sink, ring(2, 1000)).run().expect_err("it is full");
    assert_eq!(failed.summary.bytes, 0, "{failed}");
    let two = ConvertingSink::new(
        Box::new(Discard::default()),
        layout("le:s8/8", 2),
        layout("le:s8/8", 1),
    );
    assert!(matches!(two.err(), Some(Error::Stream { .. })));
}

#[test]
fn part_of_a_file_is_streamed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let bytes = all_values();
    fs::write(path("in"), &bytes).expect("written");
    for start in [0, 512, 4096, 5000] {
        let len = 100_000;
        let mut source = FileSource::open_part(path("in"), 4, start, len).expect("a part");
        let mut sink = FileSink::create(path("out")).expect("a file");
        let summary = ran(Stream::new(&mut source, &mut sink, ring(2, 8192)));
        assert_eq!(summary.bytes, len);
        let out = fs::read(path("out")).expect("read");
        assert!(out == bytes[start as usize..][..len as usize], "at {start}");
    }
    let beyond = FileSource::open_part(path("in"), 4, bytes.len() as u64 - 4, 8);
    assert!(beyond.is_err());
    assert!(FileSource::open_part(path("in"), 4, u64::MAX, 8).is_err());
    assert!(matches!(FileSource::open_part(path("in"), 4, 0, 6), Err(Error::CutFrame { .. })));
}

/// Together the files are the recording, and each has its length.
#[test]
fn recordings_are_rotated() {
    let bytes = all_values();
    for (size, limit) in
        [(4096, 100_000), (4096, 8192), (5000, 1000), (65_536, 393_216), (4096, 1 << 30)]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("in"), &bytes).expect("written");
        let starts = RefCell::new(Vec::new());
        let mut source = FileSource::open(path("in"), 4).expect("a file");
        let mut sink = RotatingSink::new(limit, |number, start| {
            starts.borrow_mut().push(start);
            FileSink::create(path(&format!("out{number:03}")))
        });
        let summary = ran(Stream::new(&mut source, &mut sink, ring(3, size)).cut(limit));
        assert_eq!(summary.bytes, bytes.len() as u64);
        drop(sink);
        let count = (bytes.len() as u64).div_ceil(limit);
        assert_eq!(starts.borrow().len() as u64, count, "blocks of {size}, files of {limit}");
        let mut at = 0;
        for (number, start) in starts.borrow().iter().enumerate() {
            let part = fs::read(path(&format!("out{number:03}"))).expect("read");
            assert_eq!(
                (*start, part.len() as u64),
                (at as u64, limit.min((bytes.len() - at) as u64))
            );
            assert!(part == bytes[at..at + part.len()], "file {number}");
            at += part.len();
        }
        assert_eq!(at, bytes.len());
    }
}

/// An error between two files leaves those before complete.
#[test]
fn failed_rotation_keeps_the_complete_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let bytes = all_values();
    fs::write(path("in"), &bytes).expect("written");
    let mut source = FileSource::open(path("in"), 4).expect("a file");
    let mut sink = RotatingSink::new(100_000, |number, _| {
        let folder = if number == 2 { "missing/" } else { "" };
        FileSink::create(path(&format!("{folder}out{number}")))
    });
    let failed = Stream::new(&mut source, &mut sink, ring(3, 4096)).cut(100_000).run();
    let summary = failed.expect_err("there is no such folder").summary;
    assert_eq!((summary.bytes, summary.complete), (200_000, false));
    drop(sink);
    for (number, part) in bytes.chunks(100_000).take(2).enumerate() {
        assert!(fs::read(path(&format!("out{number}"))).expect("read") == part, "{number}");
    }
}

/// The frames of a partly filled block are converted.
#[test]
fn partial_blocks_are_converted() {
    // This source fills half of each block, like a source that is stopped.
    let inner = Box::new(Made::new(2, |_, filled| Some(filled.bytes / 2)));
    let (short, single) = (layout("le:s16/16", 1), layout("le:f32/32", 1));
    let mut source = ConvertingSource::new(inner, short, single).expect("a source");
    let ring = Arc::new(ring(2, 4000));
    let queue = |source: &mut dyn Source, block, bytes| source.queue(&[Filled { block, bytes }]);
    assert!(queue(&mut source, 0, 4000).is_err(), "not attached");
    source.attach(&ring).expect("attached");
    for bad in [(0, 4001), (2, 4), (0, 0)] {
        assert!(queue(&mut source, bad.0, bad.1).is_err(), "{bad:?}");
    }
    for (block, bytes) in [(1, 4000), (0, 400)] {
        queue(&mut source, block, bytes).expect("queued");
    }
    assert_eq!((source.facts().frame, source.pending().blocks), (4, 2));
    for filled in [Filled { block: 1, bytes: 2000 }, Filled { block: 0, bytes: 200 }] {
        assert_eq!(source.take().expect("taken"), Some(filled));
    }
    assert_eq!((source.pending().blocks, source.converted().frames), (0, 550));
}
