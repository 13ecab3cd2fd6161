// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saves of tensors: the bytes of safetensors, or an error and the old file.

mod common;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use common::{SAFETENSORS, Sample, content, folder};
use dmabuf_dio::{CancelToken, Kind, Options};
use dmabuf_dio_tensors::{Dtype, Error, Malformed, Model, Outline, TensorSaver};

type Metadata<'a> = Option<&'a [(&'a str, &'a str)]>;

/// What safetensors writes.
fn theirs(samples: &[Sample], metadata: Metadata<'_>) -> Vec<u8> {
    let views = samples.iter().map(|sample| {
        let found = SAFETENSORS.iter().find(|(ours, _)| *ours == sample.dtype);
        let shape = sample.shape.iter().map(|dim| *dim as usize).collect();
        let view =
            safetensors::tensor::TensorView::new(found.expect("a type").1, shape, &sample.bytes);
        (sample.name.clone(), view.expect("a tensor"))
    });
    let entries = |keys: &[(&str, &str)]| {
        keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    safetensors::serialize(views, metadata.map(entries)).expect("serialised")
}

fn given(samples: &[Sample]) -> impl Iterator<Item = (Outline, &[u8])> {
    samples.iter().map(|sample| {
        (Outline::new(&sample.name, sample.dtype, &sample.shape[..]), &sample.bytes[..])
    })
}

/// Small requests, so that the window is passed many times.
fn small() -> Options {
    Options { block_size: Some(65_536), queue_depth: Some(2), ..Options::default() }
}

/// Saves, and fails unless the file is the one that safetensors writes, and loads again.
#[track_caller]
fn assert_same_file(samples: &[Sample], metadata: Metadata<'_>) {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let theirs = theirs(samples, metadata);
    for options in [Options::default(), small(), Options { direct: false, ..small() }] {
        let saver = TensorSaver::new(&path).options(options);
        let saver = match metadata {
            Some(keys) => saver.metadata(keys.iter().copied()),
            None => saver,
        };
        let report = saver.save(given(samples)).expect("saved");
        let ours = std::fs::read(&path).expect("read");
        assert_eq!((report.bytes, ours.len()), (theirs.len() as u64, theirs.len()));
        let at = ours.iter().zip(&theirs).position(|(one, other)| one != other);
        assert_eq!(at, None, "the first byte that differs");
    }
    let model = Model::open(&path).expect("a model");
    let loaded = model.loader().kind(Kind::Private).load().expect("loaded");
    assert_eq!(loaded.views.len(), samples.len());
    for sample in samples {
        let tensor = model.tensor(&sample.name).expect("listed");
        assert_eq!((tensor.dtype, &tensor.shape), (sample.dtype, &sample.shape));
        assert!(loaded.to_vec(&sample.name).expect("loaded") == sample.bytes, "{}", sample.name);
    }
}

#[test]
fn file_of_every_type_is_that_of_safetensors() {
    let mut samples = Vec::new();
    // Names whose order is not that of the types.
    for (number, (dtype, _)) in SAFETENSORS.into_iter().enumerate() {
        for (shape, name) in [(&[3, 5, 4][..], "some"), (&[0, 4], "none"), (&[8], "flat")] {
            let name = format!("{}.{name}", (number * 7) % 22);
            samples.push(Sample::new(&name, dtype, shape));
        }
        if dtype.block().elements == 1 {
            samples.push(Sample::new(&format!("{number}.scalar"), dtype, &[]));
        }
    }
    assert_same_file(&samples, None);
    samples.reverse();
    assert_same_file(&samples, Some(&[("format", "pt")]));
    assert_same_file(&samples[..1], Some(&[]));
    assert_same_file(&[], None);
    assert_same_file(&[], Some(&[("only", "metadata")]));
}

#[test]
fn names_and_metadata_of_any_text_are_those_of_safetensors() {
    let names = [
        "",
        " ",
        "a",
        "ä",
        "日本",
        "\u{1f600}",
        "\"",
        "\\",
        "/",
        "\n\t\r\u{8}\u{c}",
        "\0\u{1}\u{1f}",
        "\u{7f}\u{80}",
        "\u{2028}\u{feff}",
        "B",
        "a.b",
        "a/b",
        "__metadata",
        "</script>",
    ];
    let samples: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(number, name)| Sample::new(name, Dtype::U8, &[number as u64 + 1]))
        .collect();
    assert_same_file(&samples, None);
    for text in names {
        assert_same_file(&samples[..1], Some(&[(text, text)]));
    }
}

/// safetensors writes keys in random order, so this waits for the sorted one.
#[test]
fn metadata_is_in_one_of_the_orders_of_safetensors() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let samples = [Sample::new("a", Dtype::F32, &[2])];
    let keys = [("b", "1"), ("c", "2"), ("a", "3")];
    TensorSaver::new(&path).metadata(keys).save(given(&samples)).expect("saved");
    let ours = std::fs::read(&path).expect("read");
    assert!((0..10_000).any(|_| theirs(&samples, Some(&keys)) == ours));
    let again = [("a", "3"), ("b", "1"), ("c", "2")];
    TensorSaver::new(&path).metadata(again).save(given(&samples)).expect("saved");
    assert!(std::fs::read(&path).expect("read") == ours, "the same file, whatever the order");
}

#[test]
fn many_small_tensors_are_saved() {
    let samples: Vec<_> = (0..5000)
        .map(|number| {
            let (dtype, _) = SAFETENSORS[number as usize % 22];
            Sample::new(&format!("layer.{number}"), dtype, &[number % 7 * 4])
        })
        .collect();
    assert_same_file(&samples, Some(&[("format", "pt")]));
}

#[test]
fn large_tensors_at_odd_offsets_are_saved() {
    let samples = [
        Sample::new("first", Dtype::U8, &[3]),
        Sample::new("large", Dtype::U8, &[(17 << 20) + 5]),
        Sample::new("other", Dtype::U8, &[(16 << 20) + 1]),
        Sample::new("wide", Dtype::F32, &[1001, 1003]),
    ];
    assert_same_file(&samples, None);
}

/// Runs a save that fails with an old file in its place, which has to stay, alone. Returns the error.
#[track_caller]
fn failed(save: impl FnOnce(&Path) -> Result<(), Error>) -> Error {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, "before").expect("write");
    let error = save(&path).expect_err("it fails");
    assert_eq!(std::fs::read(&path).expect("read"), b"before", "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1, "{error}");
    assert!(!error.hint().to_string().is_empty());
    error
}

#[test]
fn tensors_that_cannot_be_read_again_are_not_saved() {
    let bytes = [0; 64];
    let refused = |tensors: &[(&str, Dtype, &[u64], usize)]| {
        let tensors: Vec<_> = tensors
            .iter()
            .map(|&(name, dtype, shape, len)| (Outline::new(name, dtype, shape), &bytes[..len]))
            .collect();
        let error = failed(|path| TensorSaver::new(path).save(tensors).map(drop));
        let Error::NotSaved { path, reason } = error else { panic!("{error}") };
        assert!(path.ends_with("model.safetensors"));
        reason
    };
    let twice = refused(&[
        ("a", Dtype::U8, &[1], 1),
        ("b", Dtype::U8, &[1], 1),
        ("a", Dtype::F32, &[1], 4),
    ]);
    assert!(matches!(twice, Malformed::Duplicate { what: "tensor", .. }), "{twice}");
    for (len, shape) in [(3, &[1][..]), (5, &[1]), (0, &[]), (4, &[0])] {
        let length = refused(&[("a", Dtype::F32, shape, len)]);
        assert!(
            matches!(length, Malformed::Length { found, .. } if found == len as u64),
            "{length}"
        );
    }
    let overflow = refused(&[("a", Dtype::U8, &[1 << 40, 1 << 40], 64)]);
    assert!(matches!(overflow, Malformed::Shape { .. }), "{overflow}");
    let packed = refused(&[("a", Dtype::F4, &[3], 2)]);
    assert!(matches!(packed, Malformed::Shape { .. }), "{packed}");
    let reserved = refused(&[("__metadata__", Dtype::U8, &[1], 1)]);
    assert!(matches!(reserved, Malformed::Reserved { .. }), "{reserved}");
    let twice = failed(|path| {
        let none: [(Outline, &[u8]); 0] = [];
        TensorSaver::new(path).metadata([("k", "1"), ("k", "2")]).save(none).map(drop)
    });
    let Error::NotSaved { reason: Malformed::Duplicate { what: "key", .. }, .. } = twice else {
        panic!("{twice}")
    };
}

#[test]
fn announced_length_beyond_any_file_is_an_error() {
    let error = failed(|path| {
        let huge = Outline::new("a", Dtype::U8, [u64::MAX >> 6]);
        let both = [huge.clone(), Outline { name: "b".into(), ..huge }];
        TensorSaver::new(path).save_with(&both, |_| Ok(io::empty())).map(drop)
    });
    assert!(matches!(error, Error::Save(_)), "{error}");
}

#[test]
fn cancelled_save_keeps_the_old_file() {
    let samples = [Sample::new("a", Dtype::U8, &[5 << 20])];
    let error = failed(|path| {
        let token = CancelToken::new();
        let stop = token.clone();
        let saver = TensorSaver::new(path).options(small()).cancel(token);
        let saver = saver.progress(move |progress| {
            if progress.done > 1 << 20 {
                stop.cancel();
            }
        });
        saver.save(given(&samples)).map(drop)
    });
    let Error::Save(dmabuf_dio::Error::Cancelled { done, .. }) = &error else { panic!("{error}") };
    assert!((1 << 19..5 << 20).contains(done), "{done}");
    assert!(error.to_string().ends_with("; the path is as it was before"), "{error}");
}

#[test]
fn progress_counts_bytes_of_the_file() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let samples = [Sample::new("a", Dtype::U8, &[5 << 20])];
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&seen);
    let saver = TensorSaver::new(&path).options(small()).progress(move |progress| {
        list.lock().expect("one thread").push((progress.done, progress.total));
    });
    saver.save(given(&samples)).expect("saved");
    let len = std::fs::metadata(&path).expect("a file").len();
    let seen = seen.lock().expect("it is over");
    assert!(seen.is_sorted() && seen.iter().all(|(_, total)| *total == len));
    assert_eq!((seen[0].0, seen[seen.len() - 1].0), (0, len));
}

#[test]
fn tensors_are_opened_in_the_order_of_the_file() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let samples = [
        Sample::new("b", Dtype::U8, &[70_001]),
        Sample::new("none", Dtype::F64, &[0]),
        Sample::new("a", Dtype::U8, &[300_000]),
        Sample::new("c", Dtype::F32, &[9]),
    ];
    let outlines: Vec<_> = given(&samples).map(|(outline, _)| outline).collect();
    let mut opened = Vec::new();
    let open = |index: usize| {
        opened.push(index);
        // What follows is not the tensor's.
        Ok(io::Cursor::new([&samples[index].bytes[..], b"more"].concat()))
    };
    TensorSaver::new(&path).options(small()).save_with(&outlines, open).expect("saved");
    assert_eq!(opened, [3, 2, 0]);
    assert!(std::fs::read(&path).expect("read") == theirs(&samples, None));
}

#[test]
fn failing_tensor_keeps_the_old_file() {
    let outlines = ["a", "b"].map(|name| Outline::new(name, Dtype::U8, [1 << 20]));
    let bytes = content(1 << 20, 1);
    let fails = failed(|path| {
        let open = |index| if index == 0 { Ok(&bytes[..]) } else { Err(io::Error::other("gone")) };
        TensorSaver::new(path).options(small()).save_with(&outlines, open).map(drop)
    });
    let ends = failed(|path| {
        let open = |index| Ok(&bytes[..if index == 0 { 1 << 20 } else { 1000 }]);
        TensorSaver::new(path).options(small()).save_with(&outlines, open).map(drop)
    });
    for (error, text, after) in [(fails, "gone", 0), (ends, "1047576 bytes early", 1000)] {
        let Error::Save(dmabuf_dio::Error::Source { offset, .. }) = &error else {
            panic!("{error}")
        };
        let header = theirs(&["a", "b"].map(|name| Sample::new(name, Dtype::U8, &[1 << 20])), None);
        assert_eq!(*offset, header.len() as u64 - (1 << 20) + after);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn missing_folder_is_named() {
    let folder = folder();
    let path = folder.path().join("missing/model.safetensors");
    let none: [(Outline, &[u8]); 0] = [];
    let error = TensorSaver::new(&path).save(none).expect_err("no folder");
    assert!(error.to_string().starts_with(path.to_str().expect("text")), "{error}");
    assert!(error.hint().to_string().contains("folder must exist"), "{}", error.hint());
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0);
}
