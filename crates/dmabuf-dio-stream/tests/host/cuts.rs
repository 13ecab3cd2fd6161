// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that are cut, of a source that fills more than was requested, as a device's DMA does. The
//! blocks are memfds.

use std::fs;

use dmabuf_dio_stream::convert::Layout;
use dmabuf_dio_stream::{ConvertingSource, FileSink, Filled, Format, RotatingSink, Source, Stream};

use crate::common::{Made, put, ring};

/// Numbers frames of 4 bytes, and fills multiples of `align` bytes.
fn dma(align: u64) -> impl Source {
    let mut next = 0;
    let mut source = Made::new(4, move |block, Filled { bytes, .. }| {
        let frames = (bytes.next_multiple_of(align) / 4) as u32;
        let content: Vec<u8> = (next..next + frames).flat_map(u32::to_le_bytes).collect();
        next += frames;
        put(block, &content);
        Some(bytes)
    });
    source.facts.align = align;
    source
}

/// The contents of the files of at most `limit` bytes.
fn files(source: &mut dyn Source, size: u64, limit: u64, bytes: u64) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |number: u64| folder.path().join(format!("{number:03}"));
    let mut count = 0;
    let mut sink = RotatingSink::new(limit, |number, _| {
        count = number + 1;
        FileSink::create(path(number))
    });
    let stream = Stream::new(source, &mut sink, ring(3, size)).cut(limit).limit(bytes);
    assert_eq!(stream.run().expect("the whole of it").bytes, bytes);
    drop(sink);
    (0..count).map(|number| fs::read(path(number)).expect("a file")).collect()
}

#[test]
fn nothing_is_lost_between_files() {
    // The length of a file is no multiple of what the device fills, less than that, or no multiple of
    // a frame; blocks end where a file ends, or not.
    for (align, size, limit) in [
        (8, 4096, 40_004),
        (8, 4096, 4100),
        (8, 4096, 4),
        (8, 8, 20),
        (12, 6000, 10_000),
        (64, 4096, 4099),
        (64, 128, 8192),
        (4, 4096, 40_004),
    ] {
        let bytes = (5 * limit / 4 + 1) * 4;
        let files = files(&mut dma(align), size, limit, bytes);
        let whole = limit / align.max(4) * align.max(4);
        for file in &files[..files.len() - 1] {
            assert_eq!(file.len() as u64, whole.max(align), "{align}, {size}, {limit}");
        }
        let expected: Vec<u8> = (0..(bytes / 4) as u32).flat_map(u32::to_le_bytes).collect();
        assert!(files.concat() == expected, "multiples of {align}, {size}, files of {limit}");
    }
}

#[test]
fn nothing_is_lost_between_converted_files() {
    let layout = |format: &str| Layout::uniform(format.parse::<Format>().expect(format), 1);
    let (from, to) = (layout("le:u32/32"), layout("le:u64/64"));
    let inner = Box::new(dma(8));
    let mut source = ConvertingSource::new(inner, from, to).expect("a source");
    assert_eq!(source.facts().align, 16);
    let files = files(&mut source, 4096, 40_008, 200_008);
    assert!(files[..files.len() - 1].iter().all(|file| file.len() == 40_000));
    for (number, value) in (0_u64..).zip(files.concat().chunks_exact(8)) {
        let value = u64::from_le_bytes(value.try_into().expect("eight"));
        assert_eq!(value >> 32, number, "unsigned full scale");
    }
}
