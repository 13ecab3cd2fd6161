// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a GGUF file, by themselves and in a file that claims to be long: no panic, and
//! accepted files keep the format's promises.
#![no_main]

use dmabuf_dio_tensors::header::{Header, parse_gguf};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for len in [bytes.len() as u64, 1 << 40, u64::MAX] {
        if let Ok(header) = parse_gguf(bytes, len) {
            check(&header, len);
        }
    }
});

fn check(header: &Header, len: u64) {
    let mut end = 0;
    for tensor in &header.tensors {
        assert!(tensor.range.start >= end && tensor.range.end <= len, "in the file, in order");
        assert_eq!(tensor.dtype.byte_len(&tensor.shape), Some(tensor.len()));
        end = tensor.range.end;
    }
    let mut names: Vec<_> = header.tensors.iter().map(|tensor| &tensor.name).collect();
    names.sort();
    assert!(names.windows(2).all(|two| two[0] != two[1]));
    let mut keys: Vec<_> = header.metadata.iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    assert!(keys.windows(2).all(|two| two[0] != two[1]));
}
