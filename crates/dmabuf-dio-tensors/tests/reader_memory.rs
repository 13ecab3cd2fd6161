// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of tensors that are read one by one. Alone in its process, whose memory it counts.

mod common;

use std::sync::Arc;

use common::in_two_files;
use dmabuf_dio::{CancelToken, Options};
use dmabuf_dio_tensors::Reader;

const MIB: u64 = 1 << 20;

/// Bytes of memory of this process that are not of files: `RssAnon` in /proc/self/status.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[test]
fn program_that_drops_tensors_needs_the_window_alone() {
    let (_folder, model, samples) = in_two_files(&[4 * MIB + 5; 60]);
    let window = 24 * MIB;
    for announces in [true, false] {
        let reader = Reader::with(Arc::clone(&model), Some(window), &Options::default());
        let before = anonymous();
        let announced = announces.then(|| reader.iter());
        let (mut peak, mut kept) = (0, Vec::new());
        for (number, sample) in samples.iter().enumerate() {
            let memory = reader.get(number, &CancelToken::new()).expect("read");
            let bytes = memory.as_ref().and_then(|memory| memory.bytes());
            assert!(bytes == Some(&sample.bytes[..]), "{}", sample.name);
            peak = peak.max(anonymous().saturating_sub(before));
            // One that is kept keeps no other.
            if number == 30 {
                kept.push(memory);
            }
        }
        drop(announced);
        let bound = window + 2 * (4 * MIB + 5) + 16 * MIB;
        assert!(peak <= bound, "{peak} bytes with a window of {window}");
        assert!(peak >= 4 * MIB, "{peak} bytes: nothing was measured");
        let left = anonymous().saturating_sub(before);
        assert!(left < 12 * MIB, "{left} bytes are left of {} kept", kept.len());
        let bytes = kept[0].as_ref().and_then(|memory| memory.bytes());
        assert!(bytes == Some(&samples[30].bytes[..]), "the one that is kept");
    }
}
