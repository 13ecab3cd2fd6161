// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of different lengths, one in each block, as compressed video has them: a file gets each of
//! their bytes, one frame behind the other.

use std::fs;

use dmabuf_dio_stream::{BlockRing, FileSink, Stream};

use crate::common::{Made, put, ring};

/// The content of a frame.
fn content(number: u64, length: u64) -> Vec<u8> {
    (0..length).map(|at| ((at * 31) ^ (at >> 9) ^ (number * 7)) as u8).collect()
}

/// Returns how.
fn goes_to_a_file(lengths: &[u64]) -> String {
    let parent = std::env::var_os("DMABUF_DIO_TEST_DIR")
        .map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), std::path::PathBuf::from);
    let folder = tempfile::tempdir_in(parent).expect("a folder");
    let path = folder.path().join("frames");
    let size = *lengths.iter().max().expect("some");
    let ring = BlockRing::new(6, size).unwrap_or_else(|_| ring(6, size));
    let mut left = (0..).zip(lengths);
    let mut source = Made::new(size, |block, _| {
        let (number, &length) = left.next()?;
        put(block, &content(number, length));
        Some(length)
    });
    let mut sink = FileSink::create(&path).expect("a file");
    let stream = Stream::new(&mut source, &mut sink, ring);
    let summary = stream.run().expect("all of it");
    println!("{} frames: {}", lengths.len(), summary.sink);
    let found = fs::read(&path).expect("the file");
    assert_eq!((found.len() as u64, summary.complete), (lengths.iter().sum(), true));
    assert_eq!(summary.bytes, found.len() as u64);
    let mut rest = &found[..];
    for (number, length) in (0..).zip(lengths) {
        let (frame, behind) = rest.split_at(*length as usize);
        assert!(frame == content(number, *length), "frame {number} of {length} bytes");
        rest = behind;
    }
    summary.sink
}

/// Whether frames that are not whole disk blocks are written without a copy: with slots, on disks that
/// take memory at any multiple of four bytes.
fn has_edges() -> bool {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    variable("DMABUF_DIO_REQUIRE").contains("slot")
        && variable("DMABUF_DIO_DEVICE") == "nvme"
        && variable("DMABUF_DIO_FS") != "f2fs"
}

#[test]
fn frames_of_whole_disk_blocks_are_written() {
    goes_to_a_file(&[614_400; 20]);
    goes_to_a_file(&[3_110_400; 20]);
}

#[test]
fn frames_of_one_odd_length_are_written() {
    for (length, direct) in [(86_400, false), (460_928, true), (300_001, false), (700_004, true)] {
        let how = goes_to_a_file(&[length; 40]);
        assert!(!has_edges() || (how == "io_uring, O_DIRECT") == direct, "{length}: {how}");
    }
}

#[test]
fn frames_of_different_lengths_are_written() {
    let lengths: Vec<_> = (0..60).map(|n: u64| 1 + (n * n * 7919) % 614_400).collect();
    goes_to_a_file(&lengths);
    let small: Vec<_> = (0..200).map(|n: u64| 1 + (n * 37) % 700).collect();
    goes_to_a_file(&small);
    // Whole disk blocks, then one that is not.
    goes_to_a_file(&[262_144, 262_144, 262_144, 100_000, 262_144, 262_144, 262_143, 1, 1, 262_144]);
}
