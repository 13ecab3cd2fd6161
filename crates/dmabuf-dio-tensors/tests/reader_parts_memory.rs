// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a part of a tensor takes. Alone in its process, whose memory it counts.

mod common;

use std::sync::Arc;

use common::{Sample, folder, safetensors, write};
use dmabuf_dio::{CancelToken, Options};
use dmabuf_dio_tensors::{Dtype, Model, Part, Reader};

const MIB: u64 = 1 << 20;

/// A line of /proc/self/status, in bytes.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[test]
fn part_of_many_strips_needs_its_own_memory_and_windows() {
    // Each strip is a byte: what is kept for each of them would be many times that.
    let matrix = Sample::new("matrix", Dtype::U8, &[16 << 20, 2]);
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    write(&path, &safetensors(std::slice::from_ref(&matrix)));
    let model = Arc::new(Model::open(path).expect("a model"));
    let reader = Reader::with(model, Some(0), &Options::default());
    std::fs::write("/proc/self/clear_refs", "5").expect("forget the peak");
    let before = status("VmRSS:");
    let part = Part::whole(0).take(1, 1..2);
    let found = reader.part(&part, &CancelToken::new()).expect("read").expect("bytes");
    let peak = status("VmHWM:").saturating_sub(before);
    let bytes = found.bytes().expect("private memory");
    assert!(bytes.iter().eq(matrix.bytes.iter().skip(1).step_by(2)), "other bytes");
    assert!(peak <= found.len() + 20 * MIB, "{peak} bytes for {}", found.len());
    assert!(peak >= found.len() / 2, "{peak} bytes: nothing was measured");
}
