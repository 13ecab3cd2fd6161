// SPDX-License-Identifier: MIT OR Apache-2.0
//! The example of docs/tensors.md works on any machine, also one without dma-bufs.

mod common;

include!("common/example.rs");

use common::{Sample, folder, safetensors, write};
use dmabuf_dio_tensors::Dtype;

#[test]
fn document_example_runs() {
    let document = include_str!("../../../docs/tensors.md");
    assert!(document.contains(&format!("```rust\n{}```", include_str!("common/example.rs"))));
    let folder = folder();
    let samples = ["blk.0.experts.7.w", "blk.0.experts.8.w"];
    let samples = samples.map(|name| Sample::new(name, Dtype::F32, &[3, 5]));
    write(&folder.path().join("model.safetensors"), &safetensors(&samples));
    experts(folder.path().to_str().expect("UTF-8")).expect("it works");
}
