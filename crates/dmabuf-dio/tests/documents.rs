// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples of documents work on any machine, also one without dma-bufs. One test: it changes the
//! working directory.

mod common;

mod readme {
    include!("common/readme.rs");

    pub(super) fn run() {
        load_and_copy().expect("it works");
    }
}

mod faces {
    include!("common/faces.rs");

    pub(super) fn run() {
        load_look_and_save().expect("it works");
    }
}

use std::fs::{read, rename};

use common::{file_of, folder};

#[test]
fn examples_of_documents_run() {
    for (document, example) in [
        (include_str!("../../../README.md"), include_str!("common/readme.rs")),
        (include_str!("../../../docs/faces.md"), include_str!("common/faces.rs")),
    ] {
        assert!(document.contains(&format!("```rust\n{example}```")));
    }
    let folder = folder();
    let (path, bytes) = file_of(&folder, 5_000_001);
    std::env::set_current_dir(&folder).expect("a working directory");
    rename(path, "model.safetensors").expect("rename");
    readme::run();
    assert!(read("copy.safetensors").expect("the copy") == bytes);
    rename("model.safetensors", "model.bin").expect("rename");
    faces::run();
    assert!(read("copy.bin").expect("the copy") == bytes[4096..4096 + (1 << 16)]);
}
