// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several ask for the same at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dmabuf_dio_keep::{Files, Loading, OnDisk, Result, Source, Store};

use crate::common::{content, disk, name, tmpfs, write};

#[test]
fn source_is_read_once_however_many_ask() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let path = disk.path().join("f");
    write(&path, &content(4 << 20, 1));
    let loads = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                // Each has descriptors, and so locks, of its own, as processes have.
                let store = Store::create(folder.path()).expect("a store");
                let source = OnDisk::new(&path);
                let kept = store.keep(&name("m"), &source, &Loading::default()).expect("kept");
                assert_eq!(std::fs::metadata(&kept.path).expect("stat").len(), 4 << 20);
                loads.fetch_add(kept.loaded.into(), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(loads.into_inner(), 1);
}

/// A source whose file is written while it is loaded.
#[derive(Debug)]
struct Written(OnDisk, std::path::PathBuf, AtomicUsize);

impl Source for Written {
    fn shown(&self) -> String {
        self.0.shown()
    }

    fn files(&self) -> Result<Files> {
        if self.2.fetch_add(1, Ordering::Relaxed) == 1 {
            write(&self.1, b"shorter");
        }
        self.0.files()
    }
}

#[test]
fn source_that_changes_meanwhile_is_not_kept() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    let path = disk.path().join("f");
    write(&path, &content(1 << 20, 1));
    let source = Written(OnDisk::new(&path), path, AtomicUsize::new(0));
    let error = store.keep(&name("m"), &source, &Loading::default()).expect_err("changed");
    assert!(matches!(error, dmabuf_dio_keep::Error::Changed { .. }), "{error}");
    assert!(!folder.path().join("m").exists());
    store.keep(&name("m"), &source, &Loading::default()).expect("kept");
    assert_eq!(std::fs::read(folder.path().join("m")).expect("read"), b"shorter");
}

#[test]
fn progress_counts_all_files() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    write(&disk.path().join("a"), &content(3 << 20, 1));
    write(&disk.path().join("b"), &content(1 << 20, 1));
    let last = Arc::new(std::sync::Mutex::new((0, 0)));
    let told = Arc::clone(&last);
    let progress = move |done, total| {
        let mut last = told.lock().expect("unpoisoned");
        assert!(done >= last.0 && done <= total);
        *last = (done, total);
    };
    let loading = Loading { progress: Some(Arc::new(progress)), ..Loading::default() };
    store.keep(&name("m"), &OnDisk::new(disk.path()), &loading).expect("kept");
    assert_eq!(*last.lock().expect("unpoisoned"), (4 << 20, 4 << 20));
}
