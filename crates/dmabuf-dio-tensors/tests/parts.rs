// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models in several files: shards without an index, parts that are missing, a stale index.

mod common;

use std::path::Path;

use common::{Gguf, Sample, assert_lists, folder, safetensors, write};
use dmabuf_dio::Kind;
use dmabuf_dio_tensors::{Dtype, Error, Malformed, Model};

/// Shards with these names, and their content.
fn shards(folder: &Path, names: &[&str]) -> Vec<Sample> {
    let samples: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(number, _)| Sample::new(&format!("layer.{number}"), Dtype::F32, &[3, 700]))
        .collect();
    for (name, sample) in names.iter().zip(&samples) {
        write(&folder.join(name), &safetensors(std::slice::from_ref(sample)));
    }
    samples
}

#[test]
fn shards_without_an_index_are_one_model() {
    for names in [
        [
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
        ],
        ["a-1-of-3.safetensors", "a-2-of-3.safetensors", "a-3-of-3.safetensors"],
        [
            "v-00001-of-00003.fp16.safetensors",
            "v-00002-of-00003.fp16.safetensors",
            "v-00003-of-00003.fp16.safetensors",
        ],
        [
            "m-00001-of-000003.safetensors",
            "m-00002-of-000003.safetensors",
            "m-00003-of-000003.safetensors",
        ],
    ] {
        let folder = folder();
        let samples = shards(folder.path(), &names);
        let model = Model::open(folder.path()).expect("a model");
        assert_lists(&model, &samples);
        let files: Vec<_> = model.files().iter().map(|file| file.path().to_owned()).collect();
        assert_eq!(files, names.map(|name| folder.path().join(name)), "in their order");
        let loaded = model.loader().kind(Kind::Memfd).load().expect("loaded");
        for sample in &samples {
            assert!(
                loaded.to_vec(&sample.name).expect("its bytes") == sample.bytes,
                "{}",
                sample.name
            );
        }
        // A shard by its name is a file.
        let one = Model::open(folder.path().join(names[1])).expect("a file");
        assert_lists(&one, &samples[1..2]);

        std::fs::remove_file(folder.path().join(names[1])).expect("remove");
        let error = Model::open(folder.path()).expect_err("a shard is missing");
        let Error::MissingParts { missing, count: 3, path } = &error else { panic!("{error}") };
        assert_eq!((&missing[..], &**path), (&[names[1].to_owned()][..], folder.path()));
        assert!(error.hint().to_string().contains("download"), "{}", error.hint());
    }
}

#[test]
fn several_shard_sets_are_several_models() {
    let folder = folder();
    shards(folder.path(), &["a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors"]);
    write(&folder.path().join("b.safetensors"), &safetensors(&[Sample::new("b", Dtype::U8, &[3])]));
    let error = Model::open(folder.path()).expect_err("two models");
    let Error::Ambiguous { found, .. } = error else { panic!("{error}") };
    assert_eq!(found, ["a-00001-of-00002.safetensors", "b.safetensors"]);
}

#[test]
fn a_tensor_in_two_shards_is_an_error() {
    let folder = folder();
    let same = safetensors(&[Sample::new("same", Dtype::U8, &[3])]);
    write(&folder.path().join("a-00001-of-00002.safetensors"), &same);
    write(&folder.path().join("a-00002-of-00002.safetensors"), &same);
    let error = Model::open(folder.path()).expect_err("twice");
    assert!(
        matches!(error, Error::Malformed { reason: Malformed::Duplicate { .. }, .. }),
        "{error}"
    );
}

#[test]
fn a_gguf_file_among_shards_is_an_error() {
    let folder = folder();
    shards(folder.path(), &["a-00001-of-00002.safetensors"]);
    let gguf = Gguf::default().tensor(&Sample::new("g", Dtype::F32, &[3])).bytes();
    write(&folder.path().join("a-00002-of-00002.safetensors"), &gguf);
    let error = Model::open(folder.path()).expect_err("another format");
    assert!(matches!(error, Error::Malformed { reason: Malformed::Split(_), .. }), "{error}");
    assert!(error.to_string().contains("a-00002-of-00002"), "{error}");
}

#[test]
fn stale_index_error_names_the_missing_files() {
    let folder = folder();
    let index = folder.path().join("model.safetensors.index.json");
    let map: Vec<_> =
        (1..=14).map(|n| format!(r#""{n}": "model-{n:05}-of-00014.safetensors""#)).collect();
    write(&index, format!(r#"{{"weight_map": {{{}}}}}"#, map.join(",")).as_bytes());
    for path in [folder.path(), &index] {
        let error = Model::open(path).expect_err("no file");
        let Error::MissingFiles { missing, beside: None, path } = &error else { panic!("{error}") };
        assert_eq!((missing.len(), &missing[0][..]), (11, "model-00001-of-00014.safetensors"));
        assert_eq!((&missing[10][..], path), ("and 4 more", &index));
        assert!(error.hint().to_string().contains("download"), "{}", error.hint());
    }
    // Beside a good file
    let good = Sample::new("good", Dtype::U8, &[3]);
    write(&folder.path().join("model.safetensors"), &safetensors(std::slice::from_ref(&good)));
    let error = Model::open(folder.path()).expect_err("a stale index");
    assert!(error.to_string().contains("model-00001-of-00014.safetensors"), "{error}");
    assert!(
        error.hint().to_string().contains("if model.safetensors beside it is the whole model"),
        "{}",
        error.hint()
    );
    std::fs::remove_file(index).expect("remove");
    assert_lists(&Model::open(folder.path()).expect("as the hint says"), &[good]);
}

#[test]
fn several_models_are_named_by_files_that_exist() {
    let folder = folder();
    shards(folder.path(), &["x-00001-of-00002.safetensors", "y-00001-of-00003.fp16.safetensors"]);
    shards(folder.path(), &["model-00000-of-00002.safetensors"]);
    let error = Model::open(folder.path()).expect_err("several");
    let Error::Ambiguous { found, .. } = &error else { panic!("{error}") };
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|name| folder.path().join(name).exists()), "{found:?}");
    assert!(error.hint().to_string().contains("a folder of its own"), "{}", error.hint());
}
