// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs examples.

use std::path::PathBuf;
use std::process::Command;

/// Cargo puts the examples next to the tests that it builds with them.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("path of this test");
    test.parent().and_then(|deps| deps.parent()).expect("a folder").join("examples").join(name)
}

pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().expect("run the example");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
