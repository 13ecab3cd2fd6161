// SPDX-License-Identifier: MIT OR Apache-2.0
//! The example works.

use std::path::PathBuf;
use std::process::Command;

/// Cargo puts the examples next to the tests that it builds with them.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("path of this test");
    test.parent().and_then(|deps| deps.parent()).expect("a folder").join("examples").join(name)
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("run the example");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn capture() {
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
