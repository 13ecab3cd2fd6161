// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples to a file and back.

use std::fs;
use std::path::{Path, PathBuf};

use dmabuf_dio_stream::{BlockRing, Error, FileSink, FileSource, Overrun, Stream};

use crate::common::{FRAME, whole};
use crate::devices::{Devices, NoModule, number, run};

/// A folder on the file system under test.
fn folder() -> tempfile::TempDir {
    let parent =
        std::env::var_os("DMABUF_DIO_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(parent).expect("a folder")
}

fn capture(devices: &Devices, path: &Path, blocks: (usize, u64), limit: u64) -> String {
    let mut sink = FileSink::create(path).expect("a file");
    let summary = run(devices.source(), &mut sink, blocks, limit);
    assert_eq!((summary.bytes, summary.gaps.len()), (limit / FRAME * FRAME, 0));
    assert_eq!(fs::metadata(path).expect("the file").len(), summary.bytes);
    summary.sink
}

#[test]
fn samples_round_trip_through_a_file() {
    let Some(devices) = Devices::get() else { return };
    into_a_file_and_out_again(&devices, "io_uring");
}

#[test]
fn samples_round_trip_through_a_file_without_slots() {
    let Some(devices) = Devices::get() else { return };
    let _hidden = NoModule::hide();
    into_a_file_and_out_again(&devices, "there is no /dev/dmabuf_dio");
}

fn into_a_file_and_out_again(devices: &Devices, way: &str) {
    let folder = folder();
    let path = folder.path().join("samples");
    let sizes = [
        ((2, 16 << 10), 1 << 20),
        ((4, 1 << 20), 40 << 20),
        ((3, 1 << 20), (5 << 20) + 4096 + 80),
        ((3, 4096 + 24), 1_000_000),
        ((8, 4096), 8),
        // Joined: several in a request, which begin and end anywhere in the ring.
        ((64, 16 << 10), 24 << 20),
        ((37, 64 << 10), (20 << 20) + 4096 + 40),
        ((300, 4096), 5 << 20),
    ];
    for (blocks, limit) in sizes {
        let how = capture(devices, &path, blocks, limit);
        println!("{blocks:?}: {how}");
        assert!(how.contains(way), "{how}");
        // Blocks are joined only if they fill their pages.
        let is_paged = blocks.1 % rustix::param::page_size() as u64 == 0;
        let quarter = if is_paged { blocks.0 as u64 / 4 * blocks.1 } else { 0 };
        let direct =
            way == "io_uring" && blocks.1 % 4096 == 0 && quarter.max(blocks.1) >= 128 << 10;
        assert_eq!(how == "io_uring, O_DIRECT", direct, "{blocks:?}: {how}");
        let bytes = fs::read(&path).expect("the file");
        assert_eq!(whole(&bytes), limit / FRAME);

        let source = FileSource::open(&path, FRAME).expect("the file");
        let summary = run(source, &mut devices.sink(), blocks, u64::MAX);
        assert_eq!(summary.bytes, limit / FRAME * FRAME, "{summary:?}");
        assert_eq!(number(&devices.dac, "moved_frames"), limit / FRAME);
        assert_eq!(number(&devices.dac, "wrong_frames"), 0);
    }
}

#[test]
fn unsuitable_paths_are_refused() {
    let folder = folder();
    let path = folder.path().join("samples");
    fs::write(&path, [0; 12]).expect("written");
    let cut = FileSource::open(&path, FRAME).expect_err("one frame and a half");
    assert!(matches!(cut, Error::CutFrame { length: 12, frame: 8, .. }), "{cut}");
    let none = FileSource::open(folder.path().join("none"), FRAME).expect_err("no file");
    assert!(matches!(none, Error::Transfer(dmabuf_dio::Error::Open { .. })), "{none}");
    let folder = FileSink::create(folder.path()).expect_err("a folder");
    assert!(matches!(folder, Error::Transfer(dmabuf_dio::Error::Open { .. })), "{folder}");
}

/// A full disk leaves a valid prefix, whether the size was known before or not.
#[test]
fn full_disk_leaves_a_valid_prefix() {
    let Some(devices) = Devices::get() else { return };
    full(&devices);
}

#[test]
fn full_disk_without_slots_leaves_a_valid_prefix() {
    let Some(devices) = Devices::get() else { return };
    let _hidden = NoModule::hide();
    full(&devices);
}

fn full(devices: &Devices) {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.folder.path().join("samples");
    // At a low rate there is one block at a time, and none after the one that fails.
    for (limit, rate) in [(None, "0"), (Some(1_u64 << 30), "0"), (None, "5000000")] {
        devices.adc.write("sampling_frequency", rate).expect("rate");
        let mut source = devices.source();
        let mut sink = FileSink::create(&path).expect("a file");
        let ring = BlockRing::new(4, 1 << 20).expect("blocks");
        let mut stream = Stream::new(&mut source, &mut sink, ring).overrun(Overrun::Block);
        if let Some(limit) = limit {
            stream = stream.limit(limit);
        }
        let ended = stream.run().expect_err("there is no room");
        assert_eq!(ended.error.errno(), Some(dmabuf_dio::Errno::NOSPC), "{ended}");
        let bytes = fs::read(&path).expect("the file");
        assert_eq!(bytes.len() as u64, ended.summary.bytes);
        // With a rate, a slow guest loses some frames and reports it.
        if ended.summary.gaps.is_empty() {
            assert_eq!(whole(&bytes), ended.summary.bytes / FRAME);
        }
        assert!(rate != "0" || ended.summary.gaps.is_empty(), "{ended}");
        assert_eq!(limit.is_none(), ended.summary.bytes > 0, "{ended}");
    }
}

/// An ext4 of 48 MiB in a file.
struct SmallDisk {
    folder: tempfile::TempDir,
    _image: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let place = folder();
        let image = place.path().join("image");
        fs::File::create(&image).expect("an image").set_len(48 << 20).expect("its length");
        let folder = tempfile::tempdir().expect("a folder");
        let run = |program: &str, args: &[&std::ffi::OsStr]| {
            std::process::Command::new(program).args(args).output().is_ok_and(|output| {
                let good = output.status.success();
                if !good {
                    println!("{program}: {}", String::from_utf8_lossy(&output.stderr));
                }
                good
            })
        };
        let made = run("mkfs.ext4", &["-q".as_ref(), image.as_os_str()])
            && run(
                "mount",
                &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), folder.path().as_os_str()],
            );
        if !made {
            println!("skipped: no file system of its own to fill");
            return None;
        }
        Some(Self { folder, _image: place })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.folder.path()).status();
    }
}

/// Blocks that are held back to be written together are written in time, and at the end.
#[test]
fn held_back_blocks_are_written_in_time() {
    let Some(devices) = Devices::get() else { return };
    // A block takes 8 ms, a quarter of the ring 512 ms.
    devices.adc.write("sampling_frequency", "250000").expect("rate");
    let folder = folder();
    let path = folder.path().join("samples");
    let mut source = devices.source();
    let mut sink = FileSink::create(&path).expect("a file");
    let ring = BlockRing::new(256, 16 << 10).expect("blocks");
    let (mut before, mut writes) = (0, 0);
    let seen = |_| {
        let length = fs::metadata(&path).map_or(0, |file| file.len());
        writes += u32::from(length > before);
        before = length;
    };
    let stream = Stream::new(&mut source, &mut sink, ring).limit(2 << 20).progress(seen);
    let summary = stream.run().expect("run");
    assert_eq!((summary.bytes, summary.gaps.len()), (2 << 20, 0), "{summary:?}");
    assert_eq!(whole(&fs::read(&path).expect("the file")), (2 << 20) / FRAME);
    if summary.sink == "io_uring, O_DIRECT" {
        // It takes a second. At the quarters there would be one.
        assert!(writes >= 3, "the file grew {writes} times");
    }
}
