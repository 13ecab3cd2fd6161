// SPDX-License-Identifier: MIT OR Apache-2.0
//! `keep:NAME` leads to what is kept. A program of its own, with one test: the variable belongs to the process.

#[path = "store/common.rs"]
#[allow(dead_code)]
mod common;

use std::path::Path;

use dmabuf_dio::{Kind, Options};
use dmabuf_dio_keep::{Error, Store, VARIABLE, find, open, open_for, resolve};

use self::common::{content, disk, keep, tmpfs, write};

#[test]
fn kept_files_are_found_by_name() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    let (file, model) = (disk.path().join("weights.gguf"), disk.path().join("model"));
    let bytes = content((2 << 20) + 5, 1);
    write(&file, &bytes);
    write(&model.join("config.json"), b"{}");
    keep(&store, "w", &file);
    keep(&store, "m", &model);
    // SAFETY: this is the only thread that uses variables.
    unsafe { std::env::set_var(VARIABLE, folder.path()) };

    let found = find(Path::new("keep:w")).expect("found").expect("a name");
    assert_eq!(found.path, folder.path().join("w"));
    assert_eq!(found.name, Path::new("weights.gguf"), "with the extension of the source");
    let path = resolve(Path::new("keep:m/config.json")).expect("found");
    assert_eq!(std::fs::read(path).expect("read"), b"{}");
    assert_eq!(resolve(Path::new("./keep:w")).expect("a path"), Path::new("./keep:w"));
    // A record that somebody else wrote does not lead elsewhere.
    let record = folder.path().join(".dmabuf-dio/source/w");
    let text = std::fs::read_to_string(&record).expect("a record");
    for name in ["/etc/profile.d/x.sh", "../x", "a/b", "..", ""] {
        std::fs::remove_file(&record).expect("removed");
        std::fs::write(&record, text.replace("weights.gguf", name)).expect("written");
        let found = find(Path::new("keep:w")).expect("found").expect("a name");
        assert_eq!(found.name, Path::new("w"), "{name:?}");
    }
    std::fs::write(&record, text).expect("written");

    let error = resolve(Path::new("keep:x")).expect_err("not kept");
    assert!(matches!(&error, Error::NotKept { name, .. } if name == "x"), "{error}");
    assert!(matches!(resolve(Path::new("keep:../w")), Err(Error::Name { .. })));

    let buffer = open(Path::new("keep:w")).expect("opened").expect("a buffer");
    assert_eq!((buffer.kind(), buffer.len()), (Kind::Memfd, bytes.len() as u64));
    assert!(!buffer.is_writable());
    let mut there = vec![0; bytes.len()];
    buffer.read_at(0, &mut there).expect("read");
    assert!(there == bytes, "bytes differ");
    assert!(open(Path::new("keep:m")).is_err(), "a folder is no buffer");
    // A load that asks for memory of its own is not answered by it.
    let asked = |options: &Options, whole| {
        open_for(Path::new("keep:w"), options, whole).expect("found").is_some()
    };
    let of_kind = |kind| Options { kind, ..Options::default() };
    assert!(asked(&Options::default(), true) && asked(&of_kind(Kind::File), true));
    assert!(!asked(&Options::default(), false) && !asked(&of_kind(Kind::DmaBuf), true));
    assert!(!asked(&of_kind(Kind::Private), true));
    assert!(!asked(&Options { lock: true, ..Options::default() }, true));
    assert!(open(&file).expect("a path").is_none());
}
