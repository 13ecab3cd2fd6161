// SPDX-License-Identifier: MIT OR Apache-2.0
//! The example works.

#[path = "../../dmabuf-dio/tests/common/example.rs"]
mod example;

use std::process::Command;

use example::{example, output};

#[test]
fn capture_example_runs() {
    use dmabuf_dio_stream::Device;

    let none = Command::new(example("capture")).args(["no such device", "x", "1"]).status();
    assert_eq!(none.expect("run").code(), Some(2));
    let Some(device) = Device::find("stream-adc") else {
        println!("skipped: no simulated IIO device");
        return;
    };
    device.write("sampling_frequency", "0").expect("rate");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("samples");
    let text =
        output(Command::new(example("capture")).args(["stream-adc"]).arg(&file).arg("10000"));
    assert!(text.starts_with("80000 bytes, filled by IIO, dma-buf"), "{text}");
    let bytes = std::fs::read(&file).expect("the file");
    let wanted: Vec<u8> = (0..10_000_u64).flat_map(u64::to_le_bytes).collect();
    assert!(bytes == wanted, "{} bytes", bytes.len());
}
