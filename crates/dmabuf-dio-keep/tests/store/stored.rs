// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a store has is kept by its version.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dmabuf_dio::content::{Content, Fetched, Fill, Folder};
use dmabuf_dio_keep::{Error, Loading, Name, Opened, Store, Stored};

use crate::common::{below, content, tmpfs};

/// A store with one object, whose bytes follow from its version.
#[derive(Clone, Debug)]
struct Bucket(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    version: Option<u64>,
    /// The object is replaced when it was read so many times.
    replaced_after: Option<u32>,
    reads: u32,
}

impl Bucket {
    fn new(version: Option<u64>) -> Self {
        Self(Arc::new(Mutex::new(State { version, replaced_after: None, reads: 0 })))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("no panic")
    }

    fn bytes(version: u64) -> Vec<u8> {
        content((3 << 20) + version as usize, version)
    }

    fn object(&self, name: &str) -> Arc<dyn Content> {
        let version = self.state().version;
        Arc::new(Object { bucket: self.clone(), name: name.into(), version })
    }
}

#[derive(Debug)]
struct Object {
    bucket: Bucket,
    name: PathBuf,
    version: Option<u64>,
}

impl Content for Object {
    fn name(&self) -> &Path {
        &self.name
    }

    fn length(&self) -> u64 {
        Bucket::bytes(self.version.unwrap_or(0)).len() as u64
    }

    fn version(&self) -> Option<String> {
        self.version.map(|version| format!("\"{version}\""))
    }

    fn read(&self, offset: u64, fill: &Fill<'_>) -> dmabuf_dio::Result<Fetched> {
        let bytes = Bucket::bytes(self.version.unwrap_or(0));
        let range = offset as usize..(offset + fill.length()) as usize;
        fill.write(0, &bytes[range])?;
        fill.count(fill.length());
        let mut state = self.bucket.state();
        state.reads += 1;
        if state.replaced_after == Some(state.reads) {
            state.version = state.version.map(|version| version + 1);
        }
        Ok(Fetched::default())
    }
}

impl Folder for Bucket {
    fn name(&self) -> &Path {
        Path::new("s3://bucket/model/")
    }

    fn list(&self) -> dmabuf_dio::Result<Vec<(PathBuf, u64)>> {
        Ok(["a.gguf", "deep/b.gguf"].map(|name| (name.into(), self.object(name).length())).into())
    }

    fn open(&self, name: &Path) -> dmabuf_dio::Result<Arc<dyn Content>> {
        Ok(self.object(&format!("s3://bucket/model/{}", name.display())))
    }
}

fn object(bucket: &Bucket) -> Stored {
    let bucket = bucket.clone();
    let url = "s3://bucket/model.gguf";
    Stored::new(url, move || Ok(Opened::Content(bucket.object(url))))
}

#[test]
fn object_is_fetched_again_only_if_its_version_changed() {
    let Some(folder) = tmpfs() else { return };
    let store = Store::create(folder.path()).expect("a store");
    let bucket = Bucket::new(Some(1));
    let (name, loading) = (Name::new("m").expect("a name"), Loading::default());
    let keep = || store.keep(&name, &object(&bucket), &loading);
    let kept = keep().expect("kept");
    assert!(kept.loaded && fs::read(&kept.path).expect("read") == Bucket::bytes(1));
    let mode = fs::metadata(&kept.path).expect("stat").permissions().mode();
    assert_eq!(mode & 0o7777, 0o444);
    assert!(!keep().expect("kept").loaded);
    assert_eq!(bucket.state().reads, 1);

    bucket.state().version = Some(2);
    let kept = keep().expect("kept");
    assert!(kept.loaded && fs::read(&kept.path).expect("read") == Bucket::bytes(2));
}

#[test]
fn objects_of_a_prefix_are_a_folder() {
    let Some(folder) = tmpfs() else { return };
    let store = Store::create(folder.path()).expect("a store");
    let bucket = Bucket::new(Some(5));
    let opened = bucket.clone();
    let source =
        Stored::new("s3://bucket/model/", move || Ok(Opened::Folder(Arc::new(opened.clone()))));
    let (name, loading) = (Name::new("m").expect("a name"), Loading::default());
    let kept = store.keep(&name, &source, &loading).expect("kept");
    let all = ["a.gguf", "deep", "deep/b.gguf"].map(PathBuf::from);
    assert_eq!(below(&kept.path), all);
    for place in ["a.gguf", "deep/b.gguf"] {
        assert!(fs::read(kept.path.join(place)).expect("read") == Bucket::bytes(5), "{place}");
    }
    assert!(!store.keep(&name, &source, &loading).expect("kept").loaded);
    assert_eq!(bucket.state().reads, 2);
}

#[test]
fn object_that_is_replaced_meanwhile_is_not_kept() {
    let Some(folder) = tmpfs() else { return };
    let store = Store::create(folder.path()).expect("a store");
    let (name, loading) = (Name::new("m").expect("a name"), Loading::default());
    let bucket = Bucket::new(Some(1));
    bucket.state().replaced_after = Some(1);
    let error = store.keep(&name, &object(&bucket), &loading).expect_err("replaced");
    assert!(matches!(error, Error::Changed { .. }), "{error:?}");
    assert!(store.list().expect("a list").is_empty());
}

#[test]
fn object_without_a_version_is_fetched_anew_each_time() {
    let Some(folder) = tmpfs() else { return };
    let store = Store::create(folder.path()).expect("a store");
    let (name, bucket) = (Name::new("m").expect("a name"), Bucket::new(None));
    for reads in 1..4 {
        let kept = store.keep(&name, &object(&bucket), &Loading::default()).expect("kept");
        assert!(kept.loaded && fs::read(&kept.path).expect("read") == Bucket::bytes(0));
        assert_eq!(bucket.state().reads, reads);
    }
}

#[test]
fn object_of_which_something_else_is_asked_is_fetched_again() {
    let Some(folder) = tmpfs() else { return };
    let store = Store::create(folder.path()).expect("a store");
    let (name, bucket) = (Name::new("m").expect("a name"), Bucket::new(Some(1)));
    for (asked, loads) in [("", true), ("a", true), ("a", false), ("b", true), ("", true)] {
        let source = object(&bucket).asked(asked);
        let kept = store.keep(&name, &source, &Loading::default()).expect("kept");
        assert_eq!(kept.loaded, loads, "{asked}");
    }
}
