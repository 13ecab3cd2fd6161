// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders and sources that are refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use dmabuf_dio_keep::{Error, Files, Loading, OnDisk, Result, Source, Store};

use crate::common::{disk, keep, name, tmpfs, write};

#[test]
fn folder_that_others_may_write_is_refused() {
    let Some(folder) = tmpfs() else { return };
    let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode));
    for open in [0o777, 0o1777, 0o775, 0o757] {
        mode(open).expect("a mode");
        let error = Store::create(folder.path()).expect_err("refused");
        assert!(matches!(error, Error::Folder { .. }), "{open:o}: {error}");
        assert_eq!(fs::read_dir(folder.path()).expect("a list").count(), 0, "nothing was made");
    }
    mode(0o755).expect("a mode");
    Store::create(folder.path()).expect("a store");
    // A link to a folder may be another user's.
    let link = folder.path().join("link");
    symlink(".", &link).expect("a link");
    assert!(matches!(Store::create(&link).expect_err("refused"), Error::Folder { .. }));
}

#[test]
fn folder_of_another_user_is_refused() {
    let Some(folder) = tmpfs() else { return };
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can give a folder to another user");
    }
    std::os::unix::fs::chown(folder.path(), Some(1234), None).expect("chown");
    let error = Store::create(folder.path()).expect_err("refused");
    assert!(error.to_string().contains("1234"), "{error}");
}

#[test]
fn folder_on_a_disk_is_refused() {
    let disk = disk();
    let found = rustix::fs::statfs(disk.path()).expect("a file system");
    if found.f_type as u32 == 0x0102_1994 {
        return println!("skipped: the test's folder is on a tmpfs");
    }
    let error = Store::create(disk.path()).expect_err("refused");
    assert!(error.to_string().contains("not on a tmpfs"), "{error}");
    Store::create(disk.path().join("new")).expect_err("refused");
    assert_eq!(fs::read_dir(disk.path()).expect("a list").count(), 0, "nothing was made");
    let error = Store::create(disk.path().join("no/parent")).expect_err("refused");
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[test]
fn files_of_others_are_not_replaced() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    let source = disk.path().join("f");
    write(&source, b"f");
    fs::write(folder.path().join("m"), "mine").expect("written");
    symlink("/etc/passwd", folder.path().join("l")).expect("a link");
    for taken in ["m", "l"] {
        let asked = store.keep(&name(taken), &OnDisk::new(&source), &Loading::default());
        assert!(matches!(asked.expect_err("taken"), Error::Folder { .. }));
    }
    assert_eq!(fs::read(folder.path().join("m")).expect("read"), b"mine");
    // In the place of what was kept, too
    let kept = keep(&store, "k", &source);
    fs::remove_file(&kept.path).expect("removed");
    let target = disk.path().join("target");
    write(&target, b"target");
    symlink(&target, &kept.path).expect("a link");
    let ask = || store.keep(&name("k"), &OnDisk::new(&source), &Loading::default());
    assert!(matches!(ask().expect_err("a link"), Error::Folder { .. }));
    assert_eq!(fs::read_link(&kept.path).expect("the link"), target);
    assert_eq!(fs::read(&target).expect("read"), b"target");
    fs::remove_file(&kept.path).expect("removed");
    fs::write(&kept.path, "mine").expect("written");
    write(&source, b"newer");
    assert!(matches!(ask().expect_err("a file"), Error::Folder { .. }));
    assert_eq!(fs::read(&kept.path).expect("read"), b"mine");
    fs::remove_file(&kept.path).expect("removed");
    assert!(ask().expect("kept").loaded);
}

#[test]
fn old_file_that_a_killed_process_left_is_replaced() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    let (source, aside) = (disk.path().join("f"), folder.path().join("aside"));
    write(&source, b"old");
    let kept = keep(&store, "k", &source);
    fs::hard_link(&kept.path, &aside).expect("a name");
    write(&source, b"newer");
    keep(&store, "k", &source);
    // As if it had been killed between the record and the file
    fs::rename(&aside, &kept.path).expect("renamed");
    assert!(keep(&store, "k", &source).loaded);
    assert_eq!(fs::read(&kept.path).expect("read"), b"newer");
}

/// A source that finds what a killed process left when it is listed.
#[derive(Debug)]
struct Leaving(OnDisk, std::path::PathBuf);

impl Source for Leaving {
    fn shown(&self) -> String {
        self.0.shown()
    }

    fn files(&self) -> Result<Files> {
        fs::write(&self.1, "left behind").expect("written");
        self.0.files()
    }
}

#[test]
fn leftover_of_a_killed_process_is_not_published() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    let source = disk.path().join("f");
    write(&source, b"old");
    let kept = keep(&store, "m", &source);
    write(&source, b"newer");
    let left = folder.path().join(".dmabuf-dio/new/m");
    let leaving = Leaving(OnDisk::new(&source), left.clone());
    let error = store.keep(&name("m"), &leaving, &Loading::default()).expect_err("in the way");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(fs::read(&kept.path).expect("read"), b"old");
    assert!(keep(&store, "m", &source).loaded);
    assert_eq!(fs::read(&kept.path).expect("read"), b"newer");
    assert!(!left.exists());
}

#[test]
fn names_that_are_not_utf_8_are_refused_before_the_load() {
    use std::os::unix::ffi::OsStrExt as _;
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    let source = disk.path().join(std::ffi::OsStr::from_bytes(b"f\xff"));
    write(&source, b"f");
    for bad in [source.as_path(), disk.path()] {
        let asked = store.keep(&name("m"), &OnDisk::new(bad), &Loading::default());
        let error = asked.expect_err("refused");
        assert!(matches!(error, Error::Source { .. }), "{error}");
    }
}

#[test]
fn sources_without_an_identity_are_refused() {
    let Some(folder) = tmpfs() else { return };
    let store = Store::create(folder.path()).expect("a store");
    for bad in ["/dev/null", "/nowhere"] {
        let asked = store.keep(&name("m"), &OnDisk::new(Path::new(bad)), &Loading::default());
        let error = asked.expect_err("refused");
        assert!(!error.hint().to_string().is_empty(), "{error}");
    }
    assert!(!folder.path().join("m").exists());
}

#[test]
fn secret_source_stays_secret() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    for (mode, wanted) in [(0o600, 0o400), (0o640, 0o440), (0o644, 0o444), (0o777, 0o444)] {
        let source = disk.path().join("f");
        write(&source, b"f");
        fs::set_permissions(&source, fs::Permissions::from_mode(mode)).expect("a mode");
        let kept = keep(&store, "m", &source);
        let own = fs::metadata(&kept.path).expect("stat").permissions().mode() & 0o7777;
        assert_eq!(own, wanted, "{mode:o}");
    }
}
