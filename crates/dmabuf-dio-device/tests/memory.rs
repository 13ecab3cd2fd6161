// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a load takes of the host's memory, in a process of its own.

mod common;

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{StandIn, content, folder};
use dmabuf_dio::CancelToken;
use dmabuf_dio_device::{Place, StagingRing, Vendor};

const MIB: u64 = 1 << 20;

/// Anonymous and shared memory of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>().expect("a number") << 10
    };
    bytes("RssAnon") + bytes("RssShmem")
}

#[test]
fn load_of_four_gib_takes_the_ring_and_no_more() {
    let (stand_in, folder) = (StandIn::new(), folder());
    stand_in.setup(1, 0, 1 << 40);
    let (len, ring_len, part) = (4096 * MIB, 64 * MIB, 16 * MIB);
    let path = folder.path().join("sparse");
    File::create(&path).and_then(|file| file.set_len(len)).expect("a file");
    let file = File::open(path).expect("the file");
    let device = stand_in.open(Vendor::Cuda, 0).expect("a device");
    // The stand-in's memory is the host's: all parts go to the same place.
    let memory = device.alloc(part).expect("memory");
    assert!(content(&memory).iter().all(|byte| *byte == 0xee));
    let before = resident();
    let (peak, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                peak.fetch_max(resident(), Ordering::Relaxed);
                thread::yield_now();
            }
        });
        let mut ring = StagingRing::new(&device, ring_len).expect("a ring");
        let place = |at: u64| Place::new(&file, at..at + part, &memory, 0).expect("a place");
        let places: Vec<_> = (0..len / part).map(|number| place(number * part)).collect();
        let report = ring.load(&places, None, &CancelToken::new()).expect("a load");
        over.store(true, Ordering::Relaxed);
        assert_eq!((report.copied, report.read), (len, len));
    });
    let grown = peak.into_inner() - before;
    println!(
        "{} MiB beside a ring of {} MiB",
        grown.saturating_sub(ring_len) >> 20,
        ring_len >> 20
    );
    assert!(grown <= ring_len + 16 * MIB, "{} MiB", grown >> 20);
    assert!(content(&memory).iter().all(|byte| *byte == 0));
}
