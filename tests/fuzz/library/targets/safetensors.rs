// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a safetensors file: no panic. Accepted files keep the format's promises, and the
//! `safetensors` crate accepts them, too.
#![no_main]

use dmabuf_dio_tensors::header::parse_safetensors;
use libfuzzer_sys::fuzz_target;
use safetensors::SafeTensors;

fuzz_target!(|bytes: &[u8]| {
    let theirs = SafeTensors::deserialize(bytes);
    let Ok(ours) = parse_safetensors(bytes, bytes.len() as u64) else { return };
    let theirs = theirs.expect("accepted by the crate");
    assert_eq!(ours.tensors.len(), theirs.len());
    for tensor in &ours.tensors {
        let view = theirs.tensor(&tensor.name).expect("in both");
        let range = tensor.range.start as usize..tensor.range.end as usize;
        assert_eq!(view.data(), &bytes[range]);
        assert_eq!(view.dtype().to_string(), tensor.dtype.name());
        assert!(view.shape().iter().map(|dim| *dim as u64).eq(tensor.shape.iter().copied()));
    }
});
