// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept has every byte of its source, as it was when it was asked for.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use dmabuf_dio_keep::{Error, Loading, OnDisk, Store};

use crate::common::{below, content, disk, keep, name, tmpfs, write};

#[test]
fn every_byte_is_kept() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    for len in [0, 1, 511, 512, 4096, 4097, (2 << 20) - 1, 2 << 20, (5 << 20) + 777] {
        let path = disk.path().join(format!("source-{len}.gguf"));
        let bytes = content(len, len as u64);
        write(&path, &bytes);
        let kept = keep(&store, &format!("n{len}"), &path);
        assert!(kept.loaded && kept.length == len as u64, "{kept:?}");
        assert!(fs::read(&kept.path).expect("read") == bytes, "{len}: bytes differ");
        let (own, source) =
            (fs::metadata(&kept.path).expect("stat"), fs::metadata(&path).expect("stat"));
        assert_eq!(own.permissions().mode() & 0o7777, 0o444 & source.mode() | 0o400);
        assert_eq!((own.mtime(), own.mtime_nsec()), (source.mtime(), source.mtime_nsec()));
    }
    assert_eq!(store.list().expect("a list").len(), 9);
}

#[test]
fn what_is_kept_is_loaded_again_only_if_the_source_changed() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    let path = disk.path().join("model");
    let (old, new) = (content(3 << 20, 1), content((3 << 20) + 1, 2));
    write(&path, &old);
    let first = keep(&store, "m", &path);
    let inode = || fs::metadata(&first.path).expect("stat").ino();
    let number = inode();
    let again = keep(&store, "m", &path);
    assert!(!again.loaded && again.reports.is_empty() && inode() == number);
    let open = fs::File::open(&first.path).expect("opened");

    write(&path, &new);
    assert!(keep(&store, "m", &path).loaded && inode() != number);
    assert!(fs::read(&first.path).expect("read") == new, "the name has the new bytes");
    let mut kept = Vec::new();
    std::io::Read::read_to_end(&mut &open, &mut kept).expect("read");
    assert!(kept == old, "who has it open keeps the old bytes");

    // The same bytes under another path are another source.
    let other = disk.path().join("other");
    write(&other, &new);
    assert!(keep(&store, "m", &other).loaded);
    assert!(!keep(&store, "m", &other).loaded);
    // What was put in the place of a kept file is neither taken for it nor replaced.
    fs::remove_file(&first.path).expect("removed");
    fs::write(&first.path, &new).expect("written");
    let asked = store.keep(&name("m"), &OnDisk::new(&other), &Loading::default());
    assert!(matches!(asked, Err(Error::Folder { .. })));
    fs::remove_file(&first.path).expect("removed");
    assert!(keep(&store, "m", &other).loaded);
}

#[test]
fn folder_is_kept_whole_and_replaced_at_once() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    let source = disk.path().join("model");
    for (place, len) in [("a.safetensors", 3 << 20), ("config.json", 10), ("deep/er/b", 5000)] {
        write(&source.join(place), &content(len, len as u64));
    }
    symlink("a.safetensors", source.join("again")).expect("a link");
    symlink("nowhere", source.join("dangling")).expect("a link");
    let kept = keep(&store, "m", &source);
    assert_eq!(kept.left_out, [std::path::Path::new("dangling")]);
    let all = ["a.safetensors", "again", "config.json", "deep", "deep/er", "deep/er/b"];
    assert_eq!(below(&kept.path), all.map(std::path::PathBuf::from));
    for place in ["a.safetensors", "again", "config.json", "deep/er/b"] {
        let (own, there) = (kept.path.join(place), source.join(place));
        assert!(fs::read(own).expect("read") == fs::read(there).expect("read"), "{place}");
    }
    let inode = |place: &str| fs::metadata(kept.path.join(place)).expect("stat").ino();
    assert_eq!(inode("a.safetensors"), inode("again"), "one file with two names is kept once");
    assert!(!keep(&store, "m", &source).loaded);
    for damage in ["deep/er/b", "a.safetensors"] {
        fs::remove_file(kept.path.join(damage)).expect("removed");
        assert!(keep(&store, "m", &source).loaded, "without {damage}");
    }
    fs::write(kept.path.join("deep/other"), "more").expect("written");
    fs::remove_file(kept.path.join("deep/er/b")).expect("removed");
    fs::write(kept.path.join("deep/er/b"), content(5000, 1)).expect("written");
    assert!(keep(&store, "m", &source).loaded, "another file in its place");
    assert!(!kept.path.join("deep/other").exists());

    write(&source.join("config.json"), b"other");
    fs::remove_file(source.join("deep/er/b")).expect("removed");
    assert!(keep(&store, "m", &source).loaded);
    assert_eq!(fs::read(kept.path.join("config.json")).expect("read"), b"other");
    assert!(!kept.path.join("deep").exists());
    // A file in the place of a folder, and back
    let file = disk.path().join("file");
    write(&file, b"file");
    keep(&store, "m", &file);
    assert_eq!(fs::read(&kept.path).expect("read"), b"file");
    keep(&store, "m", &source);
    assert!(kept.path.is_dir());
    let left: Vec<_> = below(&folder.path().join(".dmabuf-dio"));
    let wanted = ["lock", "lock/m", "new", "source", "source/m", "write"];
    assert_eq!(left, wanted.map(std::path::PathBuf::from), "nothing else is left");
}

#[test]
fn records_of_removed_files_are_removed() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    let path = disk.path().join("f");
    write(&path, b"f");
    let kept = keep(&store, "a", &path);
    fs::remove_file(&kept.path).expect("removed");
    assert!(store.list().expect("a list").is_empty());
    keep(&store, "b", &path);
    let left = below(&folder.path().join(".dmabuf-dio"));
    let wanted = ["lock", "lock/b", "new", "source", "source/b", "write"];
    assert_eq!(left, wanted.map(std::path::PathBuf::from));
}
