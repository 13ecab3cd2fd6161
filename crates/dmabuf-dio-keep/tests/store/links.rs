// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links that other users put into the folder of a source.

use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};
use std::path::Path;

use crate::common::{disk, keep, tmpfs, write};
use dmabuf_dio_keep::Store;

const ALICE: u32 = 12_001;
const BOB: u32 = 12_002;

#[test]
fn link_of_one_user_to_the_file_of_another_is_left_out() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    let (alices, bobs) = (disk.path().join("alice"), disk.path().join("bob"));
    for (path, user) in [(&alices, ALICE), (&bobs, BOB)] {
        write(&path.join("own"), b"own");
        if let Err(error) = chown(path.join("own"), Some(user), Some(user)) {
            return println!("skipped: this user cannot give files to others: {error}");
        }
    }
    let link = |target: &Path, name: &str, user| {
        symlink(target, alices.join(name)).expect("a link");
        lchown(alices.join(name), Some(user), Some(user)).expect("an owner");
    };
    link(&bobs.join("own"), "hers", ALICE);
    link(&bobs, "hers-folder", ALICE);
    link(&bobs.join("own"), "his", BOB);
    link(&bobs.join("own"), "roots", 0);
    link(Path::new("hers"), "roots-over-hers", 0);
    link(Path::new("hers-folder/own"), "roots-by-hers-folder", 0);
    link(Path::new("own"), "to-own", ALICE);
    link(Path::new("../alice/./own"), "around", ALICE);
    link(Path::new("loop"), "loop", 0);
    let kept = keep(&store, "m", &alices);
    let left_out =
        ["hers", "hers-folder", "loop", "roots-by-hers-folder", "roots-over-hers"].map(Path::new);
    assert_eq!(kept.left_out, left_out);
    for name in ["own", "his", "roots", "to-own", "around"] {
        assert_eq!(fs::read(kept.path.join(name)).expect("kept"), b"own", "{name}");
    }
}
