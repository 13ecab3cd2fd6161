// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polling for completions, on disks with and without poll queues.

use dmabuf_dio::Backend;
use dmabuf_dio::gather::Gatherer;

use crate::common::{file_of, folder};
use crate::model::{Random, check, each, piece};

/// Whether the disk of the test files supports polling; `None` if unknown.
fn polls() -> Option<bool> {
    let device = std::env::var("DMABUF_DIO_DEVICE").ok()?;
    let queues = std::fs::read_to_string("/sys/module/nvme/parameters/poll_queues").ok();
    let queues: u32 = queues.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    Some(device == "nvme" && queues > 0)
}

#[test]
fn polled_gather_arrives_exactly() {
    let folder = folder();
    let (path, content) = file_of(&folder, 1 << 20);
    each(1 << 20, |buf, backend| {
        for depth in [1, 16, 128] {
            let gatherer = Gatherer::new(&path).backend(backend).polled(true).queue_depth(depth);
            let spare = 768 << 10..1 << 20;
            let mut gathering = gatherer.spare(spare.clone()).open(buf).expect("open");
            let mut report = None;
            for seed in 0..5 {
                let pieces = Random::new(seed).pieces(1 << 20, 768 << 10, 60);
                check(&mut gathering, buf, &content, &pieces, spare.clone());
                let pieces = [piece(0, 0, 4096)];
                report = Some(check(&mut gathering, buf, &content, &pieces, spare.clone()));
            }
            let report = report.expect("a report");
            let notes = &report.transfer.notes;
            println!("{backend}: polled: {}, {notes:?}", report.polled);
            assert_eq!(report.polled, !notes.iter().any(|note| note.starts_with("not polled: ")));
            let has_ring = matches!(backend, Backend::UringSlot | Backend::Memfd);
            if let Some(polls) = polls() {
                assert_eq!(report.polled, polls && has_ring, "{backend}: {notes:?}");
            }
        }
    });
}

#[test]
fn buffered_gather_is_not_polled() {
    let folder = folder();
    let (path, content) = file_of(&folder, 65_536);
    each(65_536, |buf, backend| {
        let gatherer = Gatherer::new(&path).backend(backend).polled(true).direct(false);
        let mut gathering = gatherer.open(buf).expect("open");
        let report = check(&mut gathering, buf, &content, &[piece(1, 1, 9000)], 0..0);
        assert!(!report.polled);
        let why = report.transfer.notes.iter().any(|note| note.starts_with("not polled: "));
        assert!(why, "{:?}", report.transfer.notes);
    });
}
