// SPDX-License-Identifier: MIT OR Apache-2.0
//! README's example works on any machine, also one without dma-bufs. One test: it changes the working
//! directory.

mod common;

include!("common/readme.rs");

use common::{file_of, folder};

#[test]
fn readme_example_runs() {
    let readme = include_str!("../../../README.md");
    assert!(readme.contains(&format!("```rust\n{}```", include_str!("common/readme.rs"))));
    let folder = folder();
    let (path, bytes) = file_of(&folder, 5_000_001);
    std::fs::rename(path, folder.path().join("model.safetensors")).expect("rename");
    std::env::set_current_dir(&folder).expect("a working directory");
    load_and_copy().expect("it works");
    assert!(std::fs::read("copy.safetensors").expect("the copy") == bytes);
}
