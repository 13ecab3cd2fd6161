// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a child of fork(2) gets, in a process of its own.

mod common;

use common::{StandIn, folder, sample};
use dmabuf_dio::{Kind, Loader};
use dmabuf_dio_device::{StagingRing, Vendor};

const MIB: usize = 1 << 20;

/// Bytes of memory that children do not get.
fn kept_from_children() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the mappings");
    let mut size = 0;
    let mut kept = 0;
    for line in maps.lines() {
        if let Some(kib) = line.strip_prefix("Size:") {
            size = kib.trim().trim_end_matches(" kB").parse().expect("a number");
        } else if line.starts_with("VmFlags:") && line.split(' ').any(|flag| flag == "dc") {
            kept += size << 10;
        }
    }
    kept
}

#[test]
fn pinned_pages_are_not_copied_for_children() {
    let (stand_in, folder) = (StandIn::new(), folder());
    stand_in.setup(1, 0, 0);
    let (file, _) = sample(folder.path(), "sample", 5 * MIB);
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    let before = kept_from_children();
    for bytes in [MIB, 16 * MIB] {
        // Two of eight blocks
        let ring = StagingRing::new(&device, bytes as u64).expect("a ring");
        assert_eq!(kept_from_children(), before + bytes / 4);
        drop(ring);
        assert_eq!(kept_from_children(), before);
    }
    let buffer = Loader::from(&file).kind(Kind::Private).load().expect("a load");
    let memory = device.map(buffer).expect("mapped");
    assert_eq!(kept_from_children(), before + 5 * MIB);
    drop(memory);
    assert_eq!(kept_from_children(), before);
}
