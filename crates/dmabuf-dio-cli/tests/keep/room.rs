// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tmpfs has a size.

use std::fs;

use super::common::{folder, program};
use super::inside::{SIZE, own_tmpfs, used};

#[test]
fn too_little_room_is_an_error() {
    let Some(kept) = own_tmpfs("room::too_little_room_is_an_error") else { return };
    let disk = folder();
    let source = disk.path().join("source");
    let keep = |name: &str| {
        let mut command = program();
        command.args(["keep", "--dir"]).arg(&kept).arg(format!("{name}={}", source.display()));
        command.output().expect("started")
    };
    fs::write(&source, vec![7; SIZE as usize / 2]).expect("a source");
    assert!(keep("half").status.success());
    let before = used(&kept);
    // More than there is, and more than is left
    for len in [SIZE + 1, SIZE / 2 + 1] {
        let file = fs::File::create(&source).expect("a source");
        file.set_len(len).expect("a length");
        let output = keep("more");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("has room for") && text.contains("--dir"), "{text}");
        assert!(!kept.join("more").exists());
        assert!(used(&kept) <= before + (64 << 10), "memory is left");
    }
}
