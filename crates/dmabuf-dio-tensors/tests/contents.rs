// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models whose files are contents of a store: what is opened, and what is asked of the store for it.

mod common;
#[path = "common/contents.rs"]
mod contents;

use std::path::Path;
use std::sync::Arc;
use std::thread;

use common::{Gguf, Sample, folder, safetensors, string, write};
use contents::{Memory, Store};
use dmabuf_dio::CancelToken;
use dmabuf_dio::content::Content;
use dmabuf_dio_tensors::{Dtype, Error, Malformed, Mistaken, Model};

const KIB: u64 = 1 << 10;

fn never() -> CancelToken {
    CancelToken::new()
}

fn samples(count: u64) -> Vec<Sample> {
    (0..count).map(|number| Sample::new(&format!("t{number}"), Dtype::F16, &[3, 500])).collect()
}

/// Fails unless a model is the one of the files.
fn assert_same(found: &Model, files: &Model) {
    assert_eq!(found.tensors(), files.tensors());
    assert_eq!(found.format(), files.format());
    assert_eq!(found.files().len(), files.files().len());
    for (content, file) in found.files().iter().zip(files.files()) {
        assert_eq!(
            content.path(),
            Path::new(Store::NAME).join(file.path().file_name().expect("a name"))
        );
        assert_eq!((content.len(), content.metadata()), (file.len(), file.metadata()));
        assert!(content.file().is_none() && file.file().is_some());
    }
}

/// The bytes before the first tensor.
fn header_of(model: &Model) -> u64 {
    model.tensors().first().map_or(model.files()[0].len(), |tensor| tensor.range.start)
}

#[test]
fn header_is_asked_for_by_itself() {
    let cut = 256 * KIB;
    // Names make headers longer.
    for (count, requests) in [(0, 1), (1, 1), (2000, 1), (4000, 2), (20_000, 2)] {
        let samples: Vec<_> = (0..count)
            .map(|number| Sample::new(&format!("{number:030}"), Dtype::F16, &[3]))
            .chain([Sample::new("large", Dtype::U8, &[4 * cut])])
            .collect();
        let memory = Memory::new("store://one.safetensors", safetensors(&samples));
        let model = Model::open_content(memory.clone(), &never()).expect("a model");
        assert_eq!(model.tensors().len(), samples.len());
        let (asked, header) = (memory.asked(), header_of(&model));
        assert_eq!(asked.len(), requests, "{count} tensors, {header} bytes");
        assert_eq!(asked[0], 0..cut);
        assert_eq!((requests == 2).then_some(cut..header).as_ref(), asked.get(1));
    }
}

#[test]
fn header_of_gguf_takes_few_requests() {
    let sample = Sample::new("weight", Dtype::F32, &[64, 64]);
    let words: Vec<u8> =
        (0..150_000).flat_map(|number| string(format!("word number {number}"))).collect();
    let words = [&8_u32.to_le_bytes()[..], &150_000_u64.to_le_bytes(), &words].concat();
    for (keys, requests) in [(false, 1), (true, 2)] {
        let mut gguf = Gguf::default().tensor(&sample);
        if keys {
            gguf = gguf.key("tokenizer.ggml.tokens", 9, &words);
        }
        // A longer file than what is read of it.
        gguf.data.resize(gguf.data.len() + (12 << 20), 0);
        let memory = Memory::new("store://one.gguf", gguf.bytes());
        let model = Model::open_content(memory.clone(), &never()).expect("a model");
        assert_eq!(model.tensor("weight").map(|tensor| &tensor.shape[..]), Some(&[64, 64][..]));
        assert_eq!(memory.asked().len(), requests, "{} bytes", header_of(&model));
    }
}

#[test]
fn wrong_contents_are_told_as_files_are() {
    let folder = folder();
    let good = safetensors(&samples(3));
    let mut wrong = vec![
        Vec::new(),
        vec![0; 5000],
        b"<html>no</html>".to_vec(),
        good[..good.len() - 1].to_vec(),
    ];
    wrong.extend((0..200).map(|cut| good[..cut].to_vec()));
    wrong.push([&u64::MAX.to_le_bytes()[..], &good[8..]].concat());
    wrong.push(Gguf::default().tensor(&samples(1)[0]).bytes()[..60].to_vec());
    for bytes in wrong {
        let path = folder.path().join("model.safetensors");
        write(&path, &bytes);
        let expected = Model::open(&path).expect_err("wrong").to_string();
        let memory = Memory::new(&path, bytes);
        let error = Model::open_content(memory.clone(), &never()).expect_err("wrong");
        assert_eq!(error.to_string(), expected);
        assert!(memory.asked().len() <= 2);
    }
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 7\n".to_vec();
    let error =
        Model::open_content(Memory::new("store://p", pointer), &never()).expect_err("wrong");
    let Error::Malformed { reason: Malformed::NotAModel { found }, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(found, Mistaken::LfsPointer { size: Some(7) });
}

fn write_index(folder: &Path, files: &[(&str, Vec<Sample>)]) {
    let mut map = serde_json::Map::new();
    for (name, samples) in files {
        write(&folder.join(name), &safetensors(samples));
        map.extend(samples.iter().map(|sample| (sample.name.clone(), (*name).into())));
    }
    let index = serde_json::json!({ "weight_map": map }).to_string();
    write(&folder.join("model.safetensors.index.json"), index.as_bytes());
}

/// `count` samples of a name that begins so.
fn named(prefix: &str, count: u64) -> Vec<Sample> {
    (0..count)
        .map(|number| Sample::new(&format!("{prefix}{number}"), Dtype::U8, &[900 + number]))
        .collect()
}

#[test]
fn folders_of_contents_are_models_as_folders_are() {
    let index: fn(&Path) = |folder| {
        let names: Vec<_> = (0..40).map(|number| format!("part{number}.safetensors")).collect();
        let files = names.iter().map(|name| (name.as_str(), named(name, 3)));
        write_index(folder, &files.collect::<Vec<_>>());
        write(&folder.join("config.json"), b"{}");
    };
    let single: fn(&Path) =
        |folder| write(&folder.join("model.safetensors"), &safetensors(&samples(4)));
    let other: fn(&Path) =
        |folder| write(&folder.join("other.safetensors"), &safetensors(&samples(4)));
    let shards: fn(&Path) = |folder| {
        for number in 1..=3 {
            let name = format!("model-0000{number}-of-00003.safetensors");
            write(&folder.join(name), &safetensors(&named(&number.to_string(), 2)));
        }
    };
    let gguf: fn(&Path) = |folder| split(folder, 3);
    for (make, usual) in
        [(index, true), (single, true), (other, false), (shards, false), (gguf, false)]
    {
        let folder = folder();
        make(folder.path());
        let files = Model::open(folder.path()).expect("a model");
        let mut store = Store::of(folder.path());
        // Folders below have nothing to do with it.
        store.add("below/model.safetensors", safetensors(&samples(1)));
        assert_same(&Model::open_folder(&store, &never()).expect("a model"), &files);
        store.lists = false;
        match Model::open_folder(&store, &never()) {
            Ok(model) => assert_same(&model, &files),
            Err(Error::Load { source, .. }) => assert!(!usual, "{source}"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A model of `count` GGUF files.
fn split(folder: &Path, count: u16) {
    for number in 0..count {
        let sample = Sample::new(&format!("t{number}"), Dtype::F32, &[32, 8]);
        let gguf = Gguf::default().tensor(&sample);
        let gguf = gguf.key("split.no", 2, &number.to_le_bytes()).key(
            "split.count",
            2,
            &count.to_le_bytes(),
        );
        let gguf = gguf.key("split.tensors.count", 5, &i32::from(count).to_le_bytes());
        write(&folder.join(format!("m-{:05}-of-{count:05}.gguf", number + 1)), &gguf.bytes());
    }
}

#[test]
fn file_of_a_folder_finds_the_others() {
    let folder = folder();
    split(folder.path(), 3);
    write_index(
        folder.path(),
        &[("a.safetensors", named("a", 2)), ("b.safetensors", named("b", 1))],
    );
    let mut store = Store::of(folder.path());
    for lists in [true, false] {
        store.lists = lists;
        for name in ["m-00001-of-00003.gguf", "model.safetensors.index.json", "b.safetensors"] {
            let files = Model::open(folder.path().join(name)).expect("a model");
            assert_same(&Model::open_in(&store, name, &never()).expect("a model"), &files);
        }
    }
    for name in ["m-00001-of-00003.gguf", "model.safetensors.index.json"] {
        let error = Model::open_content(store.memory(name).clone(), &never()).expect_err("alone");
        assert!(matches!(&error, Error::NeedsFolder { path } if path.ends_with(name)), "{error}");
        assert!(error.hint().to_string().contains("the folder that it is in"));
    }
    let alone = Model::open_content(store.memory("b.safetensors").clone(), &never());
    assert_eq!(alone.expect("a model").tensors().len(), 1);
}

#[test]
fn missing_contents_are_named() {
    let folder = folder();
    split(folder.path(), 4);
    write_index(
        folder.path(),
        &[("a.safetensors", named("a", 2)), ("b.safetensors", named("b", 1))],
    );
    let mut store = Store::of(folder.path());
    for name in ["m-00002-of-00004.gguf", "m-00004-of-00004.gguf", "b.safetensors"] {
        store.contents.remove(Path::new(name));
    }
    let open =
        |store: &Store, name: &str| Model::open_in(store, name, &never()).expect_err("incomplete");
    let error = open(&store, "m-00001-of-00004.gguf");
    let Error::MissingParts { path, missing, count: 4 } = &error else { panic!("{error}") };
    assert_eq!(path, Path::new(Store::NAME));
    assert_eq!(missing, &["m-00002-of-00004.gguf", "m-00004-of-00004.gguf"]);
    let error = open(&store, "model.safetensors.index.json");
    let Error::MissingFiles { path, missing, beside } = &error else { panic!("{error}") };
    assert!(path.ends_with("model.safetensors.index.json"));
    assert_eq!((&missing[..], beside), (&["b.safetensors".to_owned()][..], &None));
    // A store that does not say what it has names the first.
    store.lists = false;
    for (name, missing) in [
        ("m-00001-of-00004.gguf", "m-00002-of-00004.gguf"),
        ("model.safetensors.index.json", "b.safetensors"),
    ] {
        let error = open(&store, name);
        let Error::Load { path, .. } = &error else { panic!("{error}") };
        assert!(path.ends_with(missing), "{error}");
        assert_eq!(error.to_string().matches("store://").count(), 1, "{error}");
        assert_eq!(error.hint().to_string(), "look for it");
    }
    let error = Model::open_in(&store, "nowhere", &never()).expect_err("no such content");
    assert!(matches!(&error, Error::Load { path, .. } if path.ends_with("nowhere")), "{error}");
    store.lists = true;
    store.contents.retain(|name, _| name.starts_with("config.json"));
    let error = Model::open_folder(&store, &never()).expect_err("no model");
    assert!(
        matches!(&error, Error::NoModel { path, other: None } if path == Path::new(Store::NAME)),
        "{error}"
    );
}

#[test]
fn failed_header_is_an_error_with_name_and_place() {
    let memory = Memory::new("store://one", safetensors(&samples(20)));
    memory.break_at(100, 1);
    let error = Model::open_content(memory.clone(), &never()).expect_err("broken");
    let Error::Load { path, source } = &error else { panic!("{error}") };
    assert_eq!(path, memory.name());
    assert!(matches!(source, dmabuf_dio::Error::Content { offset: 100, .. }), "{source}");
    assert_eq!(error.to_string().matches("store://one").count(), 1, "{error}");
    assert_eq!(error.hint().to_string(), "try again");
    Model::open_content(memory, &never()).expect("the next time");
}

#[test]
fn opening_is_cancelled() {
    let folder = folder();
    write_index(
        folder.path(),
        &[("a.safetensors", named("a", 2)), ("b.safetensors", named("b", 1))],
    );
    let store = Arc::new(Store::of(folder.path()));
    for stalled in ["model.safetensors.index.json", "a.safetensors"] {
        let memory = store.memory(stalled);
        memory.stall();
        let token = CancelToken::new();
        let opening = {
            let (store, token) = (Arc::clone(&store), token.clone());
            thread::spawn(move || Model::open_folder(&*store, &token).map(drop))
        };
        memory.wait_for_stall();
        token.cancel();
        let error = opening.join().expect("no panic").expect_err("cancelled");
        assert!(
            matches!(error, Error::Load { source: dmabuf_dio::Error::Cancelled { .. }, .. }),
            "{error}"
        );
        if stalled == "model.safetensors.index.json" {
            // The next one stalls later.
            memory.go_on();
        }
    }
}
