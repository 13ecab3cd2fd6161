// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders on a tmpfs, and sources.

#[path = "../../../dmabuf-dio-tensors/tests/common/bytes.rs"]
mod bytes;

use std::fs;
use std::path::{Path, PathBuf};

use dmabuf_dio_keep::{Kept, Loading, Name, OnDisk, Store};
use tempfile::TempDir;

pub(crate) use self::bytes::content;

/// A folder on a tmpfs; `None`, and a word, if there is no tmpfs here.
pub(crate) fn tmpfs() -> Option<TempDir> {
    let on = |place: &str| {
        rustix::fs::statfs(place).is_ok_and(|found| found.f_type as u32 == 0x0102_1994)
    };
    let own = std::env::var("TMPFS").ok();
    let place = own.into_iter().chain(["/dev/shm".into(), "/run".into()]).find(|place| on(place));
    let folder = place.and_then(|place| tempfile::Builder::new().tempdir_in(place).ok());
    if folder.is_none() {
        println!("skipped: no tmpfs that can be written");
    }
    folder
}

/// A folder for sources.
pub(crate) fn disk() -> TempDir {
    let parent = std::env::var_os("DMABUF_DIO_TEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    tempfile::Builder::new().tempdir_in(parent).expect("a folder")
}

pub(crate) fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    fs::write(path, bytes).expect("a source");
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub(crate) fn keep(store: &Store, text: &str, path: &Path) -> Kept {
    store.keep(&name(text), &OnDisk::new(path), &Loading::default()).expect("kept")
}

/// All files and folders below a folder, relative to it.
pub(crate) fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).expect("a list") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                left.push(path.clone());
            }
            found.push(path);
        }
    }
    let mut found: Vec<_> =
        found.iter().map(|path| path.strip_prefix(folder).expect("below").to_owned()).collect();
    found.sort();
    found
}
