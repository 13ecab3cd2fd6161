// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the host that a device uses where it is, and memory that is copied to a device.

mod common;

use std::ffi::c_void;
use std::ptr;

use common::{StandIn, content, folder, sample};
use dmabuf_dio::{CancelToken, Kind, Loader};
use dmabuf_dio_device::{Error, Place, StagingRing, Vendor};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const MIB: usize = 1 << 20;

#[test]
fn mapped_memory_is_the_file_and_is_copied_nowhere() {
    let (stand_in, folder) = (StandIn::new(), folder());
    stand_in.setup(1, 0, 0);
    let (file, expected) = sample(folder.path(), "sample", 5 * MIB + 77);
    for (vendor, offset) in [(Vendor::Cuda, 0), (Vendor::Hip, 1), (Vendor::Cuda, 4099)] {
        let device = stand_in.open(vendor, 1).expect("a device");
        let buffer = Loader::from(&file).offset(offset as u64).kind(Kind::Private).load();
        let buffer = buffer.expect("a load");
        let at = buffer.bytes().expect("its bytes").as_ptr().addr();
        let memory = device.map(buffer).expect("mapped");
        assert_eq!((memory.address(), memory.is_mapped()), (at as u64, true));
        assert!(content(&memory) == &expected[offset..], "{offset}");
        // The device still works with it when it is dropped.
        stand_in.fill_late(&memory, 0x55, 200_000);
        drop((memory, device));
        stand_in.assert_clean("a mapping");
        assert_eq!(stand_in.counters().copies, 0);
    }
}

#[test]
fn own_memory_is_freed_after_the_work_with_it() {
    let stand_in = StandIn::new();
    stand_in.setup(1, 0, 1 << 40);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let memory = device.alloc(4096).expect("memory");
    assert!(!memory.is_mapped() && memory.device().ordinal() == 0);
    stand_in.fill_late(&memory, 0x55, 200_000);
    drop((memory, device));
    stand_in.assert_clean("memory");
}

#[test]
fn no_bytes_need_no_memory() {
    let (stand_in, folder) = (StandIn::new(), folder());
    stand_in.setup(1, 0, 1 << 40);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let (file, _) = sample(folder.path(), "sample", 5000);
    let none = dmabuf_dio::Buffer::zeroed(0).expect("a buffer");
    for memory in [device.alloc(0).expect("memory"), device.map(none).expect("mapped")] {
        assert!(memory.is_empty() && memory.address() == 0 && !memory.is_mapped());
        let mut ring = StagingRing::new(&device, StagingRing::LEAST).expect("a ring");
        let place = Place::new(&file, 7..7, &memory, 0).expect("a place");
        ring.load(&[place], None, &CancelToken::new()).expect("a load");
    }
    drop(device);
    stand_in.assert_clean("no bytes");
}

/// A memfd that is mapped for reading, as a sealed one has to be.
struct ReadOnly(*mut c_void);

// SAFETY: an address of memory of the process.
unsafe impl Send for ReadOnly {}
// SAFETY: as above.
unsafe impl Sync for ReadOnly {}

impl ReadOnly {
    fn new(len: usize) -> Self {
        let memfd = memfd_create("read-only", MemfdFlags::CLOEXEC).expect("a memfd");
        rustix::fs::ftruncate(&memfd, len as u64).expect("resized");
        let address = ptr::null_mut();
        // SAFETY: a new mapping, at an address of the kernel's choice.
        Self(
            unsafe { mmap(address, len, ProtFlags::READ, MapFlags::SHARED, memfd, 0) }
                .expect("mapped"),
        )
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        let _ = unsafe { munmap(self.0, MIB) };
    }
}

#[test]
fn memory_that_may_not_be_written_is_mapped_for_reading() {
    let stand_in = StandIn::new();
    stand_in.setup(1, 0, 0);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let memory = ReadOnly::new(MIB);
    let first = memory.0.cast();
    // SAFETY: mapped as long as the owner exists; nothing writes to it.
    let refused = unsafe { device.map_memory((), first, MIB, true) };
    assert!(matches!(refused, Err(Error::Driver { status: 1, .. })), "{refused:?}");
    // SAFETY: as above.
    let mapped = unsafe { device.map_memory(memory, first, MIB, false) }.expect("mapped");
    assert!(content(&mapped).iter().all(|byte| *byte == 0));
    drop((mapped, device));
    stand_in.assert_clean("a mapping");
}

#[test]
fn only_private_memory_is_mapped() {
    let (stand_in, folder) = (StandIn::new(), folder());
    let (file, _) = sample(folder.path(), "sample", 5000);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let memfd = Loader::from(&file).kind(Kind::Memfd).load().expect("a load");
    let refused = device.map(memfd).expect_err("a memfd");
    assert!(matches!(refused, Error::NotPrivate { kind: Kind::Memfd }), "{refused}");
    assert!(refused.hint().contains("Private"), "{}", refused.hint());
}

#[test]
fn every_call_for_a_mapping_may_fail() {
    let folder = folder();
    let (file, _) = sample(folder.path(), "sample", 3 * MIB);
    for call in ["cuMemHostRegister", "cuMemHostGetDevicePointer", "cuDeviceGetAttribute", "none"] {
        let stand_in = StandIn::new();
        stand_in.fail(1, 0, 0, call, 1, 719);
        let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
        let buffer = Loader::from(&file).kind(Kind::Private).load().expect("a load");
        let is_integrated = device.is_integrated();
        let mapped = device.map(buffer);
        let failed = is_integrated.is_err() || mapped.is_err();
        assert_eq!(failed, call != "none", "{call}: {is_integrated:?} {mapped:?}");
        drop((mapped, device));
        stand_in.assert_clean(call);
    }
}

#[test]
fn memory_whose_device_is_lost_is_not_freed_under_it() {
    let (stand_in, folder) = (StandIn::new(), folder());
    stand_in.fail(1, 0, 0, "cuCtxSynchronize", 1, 719);
    let (file, expected) = sample(folder.path(), "sample", 3 * MIB);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let buffer = Loader::from(&file).kind(Kind::Private).load().expect("a load");
    let memory = device.map(buffer).expect("mapped");
    // SAFETY: the memory is never freed, as the device is lost.
    let bytes = unsafe { std::slice::from_raw_parts(content(&memory).as_ptr(), 3 * MIB) };
    drop(memory);
    assert!(bytes == &expected[..]);
    assert_eq!(stand_in.counters().pinned, 0);
}

#[test]
fn memory_that_cannot_be_waited_for_stays() {
    let (stand_in, folder) = (StandIn::new(), folder());
    stand_in.setup(1, 0, 1 << 40);
    let (file, _) = sample(folder.path(), "sample", 3 * MIB);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let own = device.alloc(4096).expect("memory");
    let buffer = Loader::from(&file).kind(Kind::Private).load().expect("a load");
    let mapped = device.map(buffer).expect("mapped");
    stand_in.fill_late(&own, 0x55, 100_000);
    stand_in.fill_late(&mapped, 0x55, 100_000);
    stand_in.capture(true);
    drop((own, mapped));
    let counters = stand_in.counters();
    // The driver ends the capture each time, but nothing went under the work.
    assert_eq!((counters.torn, counters.pinned, counters.allocations), (2, 1, 1), "{counters:?}");
}

#[test]
fn integrated_device_says_so() {
    for vendor in [Vendor::Cuda, Vendor::Hip] {
        let stand_in = StandIn::new();
        let device = stand_in.open(vendor, 1).expect("a device");
        assert!(!device.is_integrated().expect("an answer"));
        stand_in.integrate();
        assert!(device.is_integrated().expect("an answer"));
    }
}

#[test]
fn memory_is_copied_to_a_device_beside_files() {
    let (stand_in, folder) = (StandIn::new(), folder());
    stand_in.setup(5, 500, 1 << 40);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let (file, expected) = sample(folder.path(), "sample", 3 * MIB);
    let (one, other) = (&expected[5..2 * MIB], &expected[MIB..MIB + 100]);
    let memory = device.alloc(6 * MIB as u64).expect("memory");
    let mut ring = StagingRing::new(&device, StagingRing::LEAST).expect("a ring");
    let places = [
        Place::of_bytes(one, &memory, 0).expect("a place"),
        Place::of_bytes(other, &memory, one.len() as u64).expect("a place"),
        Place::new(&file, 0..3 * MIB as u64, &memory, 3 * MIB as u64).expect("a place"),
    ];
    // Blocks that had few bytes of a file before
    let few: Vec<_> = (0..8).map(|at| at * MIB as u64 / 3 + 5).collect();
    let few: Vec<_> = few.iter().map(|at| Place::new(&file, *at..at + 7, &memory, 0)).collect();
    let few: Vec<_> = few.into_iter().map(|place| place.expect("a place")).collect();
    ring.load(&few, None, &CancelToken::new()).expect("a load");
    let report = ring.load(&places, None, &CancelToken::new()).expect("a load");
    assert_eq!(report.copied, (one.len() + 100 + 3 * MIB) as u64);
    let found = content(&memory);
    assert!(found[..one.len()] == *one && found[one.len()..one.len() + 100] == *other);
    assert!(found[3 * MIB..] == expected);
    let refused = Place::of_bytes(&expected, &memory, 4 * MIB as u64);
    assert!(matches!(refused, Err(Error::NoPlace { .. })), "{refused:?}");
    drop((ring, memory, device));
    stand_in.assert_clean("a load");
}
