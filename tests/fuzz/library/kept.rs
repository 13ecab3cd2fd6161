// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries the inputs that are kept for the fuzzer, without it.

use std::fs;
use std::path::Path;

/// Calls what a target of the fuzzer calls, with each input that is kept for it.
pub(crate) fn try_all(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/library/corpus");
    let mut count = 0;
    for entry in fs::read_dir(folder.join(target)).expect("a folder") {
        let path = entry.expect("an entry").path();
        println!("{}", path.display());
        check(&fs::read(&path).expect("read"));
        count += 1;
    }
    assert!(count > 0, "no input is kept for {target}");
}
