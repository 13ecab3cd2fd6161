// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads to a stand-in for a device: every byte, and what the driver is asked to do.

mod common;
#[path = "../../dmabuf-dio-tensors/tests/common/contents.rs"]
mod contents;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use common::{StandIn, content, folder, sample};
use dmabuf_dio::CancelToken;
use dmabuf_dio::content::Content;
use dmabuf_dio_device::{Device, Error, ForeignStream, Place, StagingRing, Vendor};

const MIB: u64 = 1 << 20;
/// The smallest ring.
const SMALL: u64 = MIB / 2;

/// Ranges of a file of 24 MiB and a few bytes: short ones and long ones, next to each other and not.
fn ranges(len: u64) -> Vec<Range<u64>> {
    let mut ranges = vec![0..1, 1..1, 1..4096, 4096..9000, 9001..9002, 300_000..700_001];
    ranges.extend([MIB..9 * MIB + 3, 9 * MIB + 3..9 * MIB + 4, 9 * MIB + 4..20 * MIB]);
    // Backwards, and what was there already
    ranges.extend([5 * MIB + 7..5 * MIB + 9000, 20 * MIB - 1..len - 1, len - 1..len]);
    ranges.extend((0..300).map(|at| 12 * MIB + at * 777..12 * MIB + at * 777 + 700));
    ranges
}

fn load_all(stand_in: &StandIn, vendor: Vendor, bytes: u64, folder: &Path) {
    let device = stand_in.open(vendor, 0).expect("a device");
    let mut ring = StagingRing::new(&device, bytes).expect("a ring");
    let (file, expected) = sample(folder, "sample", (24 * MIB + 77) as usize);
    let ranges = ranges(expected.len() as u64);
    for _ in 0..2 {
        let memories: Vec<_> = ranges
            .iter()
            .map(|range| device.alloc(range.end - range.start + 5).expect("memory"))
            .collect();
        let place = |(range, memory): (&Range<u64>, _)| Place::new(&file, range.clone(), memory, 3);
        let places: Vec<_> = ranges.iter().zip(&memories).map(place).map(Result::unwrap).collect();
        let report = ring.load(&places, None, &CancelToken::new()).expect("a load");
        let copied: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert_eq!(report.copied, copied);
        assert!(report.read <= copied + 10 * (256 << 10), "{report:?}");
        for (range, memory) in ranges.iter().zip(&memories) {
            let found = content(memory);
            let inner = &found[3..found.len() - 2];
            assert!(inner == &expected[range.start as usize..range.end as usize], "{range:?}");
            assert_eq!((&found[..3], &found[found.len() - 2..]), (&[0xee; 3][..], &[0xee; 2][..]));
        }
    }
}

#[test]
fn every_byte_arrives_however_late_the_copies_are() {
    let folder = folder();
    for (vendor, bytes, delay) in
        [(Vendor::Cuda, SMALL, 300), (Vendor::Hip, 3 * MIB, 3000), (Vendor::Cuda, 64 * MIB, 0)]
    {
        let stand_in = StandIn::new();
        stand_in.setup(bytes, delay, 1 << 40);
        load_all(&stand_in, vendor, bytes, folder.path());
        stand_in.assert_clean("a load");
        let counters = stand_in.counters();
        assert_eq!(counters.pins, 8, "registered once: {counters:?}");
        assert!(delay == 0 || counters.most_pending > 1, "nothing overlaps: {counters:?}");
    }
}

#[test]
fn bytes_of_a_content_arrive_or_its_error_does() {
    let (stand_in, folder) = (StandIn::new(), folder());
    stand_in.setup(1, 300, 1 << 40);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let mut ring = StagingRing::new(&device, 3 * MIB).expect("a ring");
    let (_, expected) = sample(folder.path(), "sample", (24 * MIB + 77) as usize);
    let memory = contents::Memory::new("store://of/tests", expected.clone());
    let content: Arc<dyn Content> = memory.clone();
    let ranges = ranges(expected.len() as u64);
    let targets: Vec<_> = ranges
        .iter()
        .map(|range| device.alloc(range.end - range.start + 1).expect("memory"))
        .collect();
    let place = |(range, target): (&Range<u64>, _)| Place::new(&content, range.clone(), target, 1);
    let places: Vec<_> = ranges.iter().zip(&targets).map(place).map(Result::unwrap).collect();
    let report = ring.load(&places, None, &CancelToken::new()).expect("a load");
    let asked = memory.asked();
    assert_eq!(report.reads, asked.len() as u64);
    assert_eq!(report.read, asked.iter().map(|range| range.end - range.start).sum::<u64>());
    for (range, target) in ranges.iter().zip(&targets) {
        let found = self::content(target);
        assert!(found[1..] == expected[range.start as usize..range.end as usize], "{range:?}");
    }
    memory.break_at(15 * MIB, 1);
    let error = ring.load(&places, None, &CancelToken::new()).expect_err("broken");
    let Error::Host(dmabuf_dio::Error::Content { offset, .. }) = error else { panic!("{error}") };
    assert_eq!(offset, 15 * MIB);
    ring.load(&places, None, &CancelToken::new()).expect("the next time");
    drop((ring, targets, device));
    stand_in.assert_clean("loads of a content");
}

#[test]
fn content_that_panics_leaves_nothing_in_flight() {
    let (stand_in, folder) = (StandIn::new(), folder());
    stand_in.setup(1, 0, 1 << 40);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    // Fewer reads than blocks: none waits for a copy.
    let len = 300 << 10;
    let (_, expected) = sample(folder.path(), "sample", len as usize);
    let memory = contents::Memory::new("store://of/tests", expected.clone());
    let content: Arc<dyn Content> = memory.clone();
    let target = device.alloc(len).expect("memory");
    let place = || Place::new(&content, 0..len, &target, 0).expect("a place");
    let mut ring = StagingRing::new(&device, SMALL).expect("a ring");
    memory.call_at(len / 2, || panic!("as a content may"));
    // Copies begin much later.
    let busy = device.alloc(1).expect("memory");
    stand_in.fill_late(&busy, 0x55, 900_000);
    // SAFETY: the default stream.
    let after = Some(unsafe { ForeignStream::new(0) });
    let load = AssertUnwindSafe(|| ring.load(&[place()], after, &CancelToken::new()));
    assert!(catch_unwind(load).is_err());
    drop(ring);
    assert_eq!(stand_in.counters().torn, 0, "memory is unregistered under a copy");
    let mut ring = StagingRing::new(&device, SMALL).expect("a ring");
    ring.load(&[place()], None, &CancelToken::new()).expect("the next time");
    assert!(self::content(&target) == &expected[..]);
    drop((ring, target, busy, device));
    stand_in.assert_clean("loads, one of which has panicked");
}

#[test]
fn copies_wait_for_the_work_of_another_stream() {
    let (stand_in, folder) = (StandIn::new(), folder());
    stand_in.setup(1, 0, 1 << 40);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let mut ring = StagingRing::new(&device, SMALL).expect("a ring");
    let (file, expected) = sample(folder.path(), "sample", 10_000);
    let memory = device.alloc(10_000).expect("memory");
    stand_in.fill_late(&memory, 0x55, 300_000);
    let place = Place::new(&file, 0..10_000, &memory, 0).expect("a place");
    // SAFETY: the default stream.
    let stream = unsafe { ForeignStream::new(0) };
    ring.load(&[place], Some(stream), &CancelToken::new()).expect("a load");
    assert!(content(&memory) == &expected[..]);
    drop((ring, memory, device));
    stand_in.assert_clean("a load");
}

/// Opens a device and loads to it.
fn attempt(stand_in: &StandIn, file: &std::fs::File, len: u64) -> Result<bool, Error> {
    let device = stand_in.open(Vendor::Cuda, 0)?;
    let memory = device.alloc(len)?;
    let mut ring = StagingRing::new(&device, SMALL)?;
    let place = Place::new(file, 0..len, &memory, 0)?;
    // SAFETY: the default stream.
    let stream = unsafe { ForeignStream::new(0) };
    ring.load(&[place], Some(stream), &CancelToken::new())?;
    let found = content(&memory);
    Ok(found.iter().any(|byte| *byte != 0xee))
}

#[test]
fn every_call_of_the_driver_may_fail() {
    let folder = folder();
    let (file, expected) = sample(folder.path(), "sample", (MIB + 5) as usize);
    let mut failures = 0;
    for call in [
        "cuInit",
        "cuDeviceGet",
        "cuMemAlloc",
        "cuStreamCreate",
        "cuEventCreate",
        "cuMemHostRegister",
        "cuMemcpyHtoDAsync",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuEventSynchronize",
    ] {
        for n in 1.. {
            let stand_in = StandIn::new();
            stand_in.fail(n as u64, 200, 1 << 40, call, n, 719);
            let result = attempt(&stand_in, &file, expected.len() as u64);
            stand_in.assert_clean(&format!("{call}, call {n}"));
            match result {
                Ok(arrived) => {
                    assert!(arrived && n > 1, "{call} was never called");
                    break;
                }
                Err(Error::Driver { status: 719, text, .. }) => {
                    assert_eq!(text, "unspecified launch failure");
                    failures += 1;
                }
                Err(error) => panic!("{call}: {error}"),
            }
        }
    }
    assert!(failures > 60, "{failures}");
}

#[test]
fn lost_device_fails_every_later_load_and_leaves_nothing_registered() {
    let (stand_in, folder) = (StandIn::new(), folder());
    let len = 6 * MIB;
    let (file, _) = sample(folder.path(), "sample", len as usize);
    stand_in.fail(1, 100_000, 1 << 40, "cuStreamSynchronize", 1, 719);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let memory = device.alloc(len).expect("memory");
    // Blocks that are unmapped when they are freed
    let mut ring = StagingRing::new(&device, 16 * MIB).expect("a ring");
    let place = Place::new(&file, 0..len, &memory, 0).expect("a place");
    for _ in 0..2 {
        let lost = ring.load(std::slice::from_ref(&place), None, &CancelToken::new());
        assert!(matches!(lost, Err(Error::Driver { status: 719, .. })), "{lost:?}");
    }
    let pinned = stand_in.counters().pinned;
    drop(ring);
    assert!((4..=8).contains(&pinned) && stand_in.counters().pinned == 0, "{pinned}");
    // The copies may still read from it.
    while stand_in.counters().copied < len {
        thread::yield_now();
    }
}

#[test]
fn failed_and_cancelled_loads_leave_nothing_in_flight() {
    let (stand_in, folder) = (StandIn::new(), folder());
    let len = 5 * MIB;
    let (file, expected) = sample(folder.path(), "sample", len as usize);
    stand_in.setup(3, 2000, 1 << 40);
    let device = stand_in.open(Vendor::Cuda, 1).expect("a device");
    let memory = device.alloc(len).expect("memory");
    let mut ring = StagingRing::new(&device, SMALL).expect("a ring");
    let place = |range: Range<u64>| Place::new(&file, range, &memory, 0).expect("a place");
    let token = CancelToken::new();
    token.cancel();
    let cancelled = ring.load(&[place(0..len)], None, &token);
    assert!(
        matches!(cancelled, Err(Error::Host(dmabuf_dio::Error::Cancelled { .. }))),
        "{cancelled:?}"
    );
    let path = folder.path().join("sample");
    let writer = std::fs::OpenOptions::new().write(true).open(path).expect("the file");
    writer.set_len(len - 5000).expect("truncated");
    let short = ring.load(&[place(0..len)], None, &CancelToken::new());
    assert!(matches!(short, Err(Error::Host(dmabuf_dio::Error::ShortFile { .. }))), "{short:?}");
    // What was begun has ended, and the ring is as good as new.
    let counters = stand_in.counters();
    assert_eq!(counters.copied, counters.copies * (counters.copied / counters.copies.max(1)));
    ring.load(&[place(0..len - 5000)], None, &CancelToken::new()).expect("a load");
    assert!(content(&memory)[..(len - 5000) as usize] == expected[..(len - 5000) as usize]);
    drop((ring, memory, device));
    stand_in.assert_clean("failed loads");
}

#[test]
fn two_devices_load_at_the_same_time() {
    let (stand_in, folder) = (StandIn::new(), folder());
    stand_in.setup(9, 500, 1 << 40);
    thread::scope(|scope| {
        for number in 0..4_u32 {
            let (stand_in, folder) = (&stand_in, folder.path());
            scope.spawn(move || {
                let device = stand_in.open(Vendor::Hip, number % 2).expect("a device");
                let len = 3_000_001 + number as usize;
                let (file, expected) = sample(folder, &format!("{number}"), len);
                let memory = device.alloc(len as u64).expect("memory");
                let mut ring = StagingRing::new(&device, SMALL).expect("a ring");
                let place = Place::new(&file, 0..len as u64, &memory, 0).expect("a place");
                // Made in one thread, used in another
                let ring = &mut ring;
                let load = move || ring.load(&[place], None, &CancelToken::new());
                thread::scope(|scope| scope.spawn(load).join().expect("joined")).expect("a load");
                assert!(content(&memory) == &expected[..]);
            });
        }
    });
    stand_in.assert_clean("four loads");
}

#[test]
fn thread_keeps_the_device_that_it_works_with() {
    let folder = folder();
    let (file, _) = sample(folder.path(), "sample", 10_000);
    for (vendor, before) in [(Vendor::Cuda, -1), (Vendor::Cuda, 1), (Vendor::Hip, 1)] {
        let stand_in = StandIn::new();
        stand_in.setup(1, 0, 1 << 40);
        stand_in.let_work_with(vendor, before);
        let device = stand_in.open(vendor, 0).expect("a device");
        let memory = device.alloc(10_000).expect("memory");
        let mut ring = StagingRing::new(&device, SMALL).expect("a ring");
        let place = Place::new(&file, 0..10_000, &memory, 0).expect("a place");
        ring.load(&[place], None, &CancelToken::new()).expect("a load");
        drop((ring, memory, device));
        assert_eq!(stand_in.works_with(), before, "{vendor}");
        stand_in.assert_clean("a load");
        stand_in.let_work_with(vendor, -1);
    }
}

#[test]
fn load_does_not_end_a_capture_of_another_thread() {
    let folder = folder();
    let (file, expected) = sample(folder.path(), "sample", 1_000_000);
    for vendor in [Vendor::Cuda, Vendor::Hip] {
        let stand_in = StandIn::new();
        stand_in.setup(1, 300, 1 << 40);
        stand_in.capture(true);
        let device = stand_in.open(vendor, 0).expect("a device");
        let memory = device.alloc(1_000_000).expect("memory");
        let mut ring = StagingRing::new(&device, SMALL).expect("a ring");
        let place = Place::new(&file, 0..1_000_000, &memory, 0).expect("a place");
        // SAFETY: the default stream.
        let stream = unsafe { ForeignStream::new(0) };
        ring.load(&[place], Some(stream), &CancelToken::new()).expect("a load");
        assert!(content(&memory) == &expected[..]);
        drop(ring);
        stand_in.capture(false);
        drop((memory, device));
        stand_in.assert_clean("a load");
    }
}

#[test]
fn ring_is_as_long_as_can_be_pinned() {
    let (stand_in, folder) = (StandIn::new(), folder());
    let (file, expected) = sample(folder.path(), "sample", 3_000_000);
    stand_in.setup(1, 300, 1 << 40);
    stand_in.pin_at_most(5 * MIB);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let memory = device.alloc(3_000_000).expect("memory");
    let mut ring = StagingRing::new(&device, StagingRing::DEFAULT).expect("a ring");
    let place = Place::new(&file, 0..3_000_000, &memory, 0).expect("a place");
    let report = ring.load(&[place], None, &CancelToken::new()).expect("a load");
    // Two blocks of 2 MiB, less the ends
    assert_eq!((stand_in.counters().pinned, report.reads), (2, 2));
    assert!(content(&memory) == &expected[..]);
    drop(ring);
    // Blocks of a quarter of a MiB, until the driver refuses one
    stand_in.pin_at_most(3 * SMALL);
    let mut ring = StagingRing::new(&device, 4 * SMALL).expect("a ring");
    let place = Place::new(&file, 0..3_000_000, &memory, 0).expect("a place");
    ring.load(&[place], None, &CancelToken::new()).expect("a load");
    assert_eq!(stand_in.counters().pinned, 6);
    assert!(content(&memory) == &expected[..]);
    drop(ring);
    stand_in.pin_at_most(100_000);
    let error = StagingRing::new(&device, StagingRing::DEFAULT).expect_err("too much");
    assert!(matches!(error, Error::Driver { status: 2, .. }), "{error}");
    drop((memory, device));
    stand_in.assert_clean("a short ring");
}

#[test]
fn too_little_memory_is_told_with_figures() {
    let stand_in = StandIn::new();
    stand_in.setup(1, 0, MIB);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let error = device.alloc(MIB + 1).expect_err("too much");
    assert_eq!(
        error.to_string(),
        "CUDA device 0 has 1048576 of 1048576 bytes free: 1048577 are wanted"
    );
    assert!(error.hint().contains("free memory"), "{}", error.hint());
    let error = StagingRing::new(&device, SMALL - 1).expect_err("too small");
    assert!(matches!(error, Error::SmallRing { least: SMALL, .. }), "{error}");
    let (memory, file) = (device.alloc(10).expect("memory"), std::fs::File::open("/dev/null"));
    let file = file.expect("a file");
    #[allow(clippy::reversed_empty_ranges, reason = "a range that is refused")]
    let reversed = 5..4;
    for (range, at) in [(0..11, 0), (0..10, 1), (0..1, u64::MAX), (reversed, 0)] {
        let refused = Place::new(&file, range, &memory, at);
        assert!(matches!(refused, Err(Error::NoPlace { room: 10, .. })), "{refused:?}");
    }
    drop(memory);
    let error = stand_in.open(Vendor::Cuda, 2).expect_err("no such device");
    assert!(matches!(error, Error::Driver { status: 101, .. }), "{error}");
}

#[test]
fn machine_without_a_driver_is_told_so() {
    let none = Device::open_with(Vendor::Hip, Path::new("/nonexistent.so"), 0).expect_err("none");
    assert!(matches!(none, Error::NoDriver { vendor: Vendor::Hip, .. }), "{none}");
    assert!(none.hint().contains("HIP driver"), "{}", none.hint());
    // A library, but not a driver
    let other = Device::open_with(Vendor::Cuda, Path::new("libc.so.6"), 0).expect_err("none");
    assert!(other.to_string().contains("cuInit"), "{other}");
}
