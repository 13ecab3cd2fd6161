// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files with names of models that are not models: the error names their kind and a remedy.

mod common;

use std::path::Path;

use common::{Gguf, Sample, folder, safetensors, write};
use dmabuf_dio_tensors::{Dtype, Error, Malformed, Mistaken, Model};

const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 4967421\n";

/// A zip archive that begins with this file.
fn zip(first: &str) -> Vec<u8> {
    let mut bytes = b"PK\x03\x04\0\0\x08\x08\0\0".to_vec();
    bytes.resize(26, 0);
    bytes.extend((first.len() as u16).to_le_bytes());
    bytes.extend([0, 0]);
    bytes.extend(first.bytes());
    bytes.resize(300, 0xff);
    bytes
}

/// The old formats: a magic number, a version, hyperparameters.
fn ggml(magic: u32, version: &[u8]) -> Vec<u8> {
    let mut bytes = [&magic.to_le_bytes()[..], version].concat();
    for number in [32_000u32, 4096, 256, 32, 32, 128, 2] {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

fn tar() -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    bytes[..5].copy_from_slice(b"model");
    bytes[257..262].copy_from_slice(b"ustar");
    bytes
}

/// The content of a file, its kind in the error, and a part of the remedy.
fn files() -> Vec<(Vec<u8>, &'static str, &'static str)> {
    let v1 = 1u32.to_le_bytes();
    let padded = |head: &[u8]| [head, &[0xff; 100]].concat();
    vec![
        (vec![], "an empty file", "download the file again"),
        (vec![0; 5000], "a file of zeros", "download the file again"),
        (POINTER.into(), "a git-lfs pointer to a file of 4967421 bytes", "git lfs pull"),
        ("version https://git-lfs.github.com/spec/v1".into(), "a git-lfs pointer", "git lfs pull"),
        ("../../.git/annex/objects/a/b".into(), "a git-annex pointer", "git annex get"),
        ("/annex/objects/MD5-s1--2\n".into(), "a git-annex pointer", "git annex get"),
        ("<!DOCTYPE html><html>401</html>".into(), "a web page (HTML)", "a login"),
        ("\u{feff}\r\n <HTML lang=\"en\">".into(), "a web page (HTML)", "a login"),
        ("<?xml version=\"1.0\"?><Error/>".into(), "an answer of a server (XML)", "a login"),
        (r#"{"error": "Repository not found"}"#.into(), "JSON text", "a login"),
        (r#"{"weight_map": {}}"#.into(), "the index of a sharded model", "*.json"),
        ("Entry not found".into(), "text that begins with \"Entry not found\"", "a login"),
        (zip("archive/data.pkl"), "a PyTorch checkpoint (zip)", "weights_only=True"),
        (zip("weight.npy"), "a file of NumPy", "numpy.load"),
        (zip("model.safetensors"), "a zip archive", "unzip"),
        (padded(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."), "pickle", "weights_only=True"),
        (padded(b"\x93NUMPY\x01\0"), "a file of NumPy", "numpy.load"),
        (ggml(0x6767_6d6c, &[]), "GGML, which GGUF replaced", "convert_llama_ggml_to_gguf.py"),
        (ggml(0x6767_6d66, &v1), "GGMF, which GGUF replaced", "convert_llama_ggml_to_gguf.py"),
        (ggml(0x6767_6a74, &v1), "GGJT, which GGUF replaced", "convert_llama_ggml_to_gguf.py"),
        (padded(b"\x89HDF\r\n\x1a\n"), "an HDF5 file", "download the model as"),
        (padded(b"\x08\x07\x12\x07pytorch"), "an ONNX model", "download the model as"),
        (padded(b"\x1c\0\0\0TFL3"), "a TensorFlow Lite model", "download the model as"),
        (padded(b"\x1f\x8b\x08\x08abcd"), "a compressed file", "gunzip"),
        // Compressed from a pipe, so without a name and a time: its first bytes could be a length.
        (padded(b"\x1f\x8b\x08\0\0\0\0\0\0\x03"), "a compressed file", "gunzip"),
        (padded(b"\x28\xb5\x2f\xfd"), "a compressed file", "unzstd"),
        (padded(b"\xfd7zXZ\0"), "a compressed file", "unxz"),
        (tar(), "a tar archive", "tar xf"),
        (padded(b"\x89PNG\r\n\x1a\n"), "a file of another format", "safetensors or GGUF"),
        (padded(b"\x7fELF\x02\x01\x01\0"), "a file of another format", "safetensors or GGUF"),
        (padded(b"\xff\xfem\0o\0d\0"), "a file of another format", "safetensors or GGUF"),
        ([&400u64.to_le_bytes()[..], &[0; 5000]].concat(), "then zeros", "download the file again"),
    ]
}

fn refused(path: &Path) -> (String, String) {
    let error = Model::open(path).expect_err("no model");
    (error.to_string(), error.hint().to_string())
}

#[test]
fn mistaken_formats_are_named() {
    let folder = folder();
    for name in ["model.safetensors", "model.gguf"] {
        let path = folder.path().join(name);
        for (bytes, what, remedy) in files() {
            write(&path, &bytes);
            // By its own name, and as the model of its folder
            for given in [&*path, folder.path()] {
                let (text, hint) = refused(given);
                assert!(text.starts_with(path.to_str().expect("UTF-8")), "{text}");
                assert!(
                    text.contains(": not a model but ") && text.contains(what),
                    "{what}: {text}"
                );
                assert!(hint.contains(remedy), "{what}: {hint}");
                assert!(!text.contains('\n') && !hint.contains('\n'), "{text}: {hint}");
            }
        }
        std::fs::remove_file(&path).expect("remove");
    }
}

#[test]
fn mistaken_index_and_shards_are_named() {
    let folder = folder();
    let index = folder.path().join("model.safetensors.index.json");
    let shard = folder.path().join("model-00001-of-00001.safetensors");
    write(&shard, POINTER.as_bytes());
    write(&index, POINTER.as_bytes());
    let (text, hint) = refused(folder.path());
    assert!(text.contains("index.json: not a model but a git-lfs pointer"), "{text}");
    assert!(hint.contains("git lfs pull"), "{hint}");
    write(&index, br#"{"weight_map": {"a": "model-00001-of-00001.safetensors"}}"#);
    let (text, hint) = refused(folder.path());
    assert!(text.contains("00001.safetensors: not a model but a git-lfs pointer"), "{text}");
    assert!(hint.contains("git lfs pull"), "{hint}");
}

#[test]
fn other_formats_in_a_folder_are_named() {
    let folder = folder();
    write(&folder.path().join("pytorch_model.bin"), &zip("archive/data.pkl"));
    let (text, hint) = refused(folder.path());
    assert!(text.contains("the folder has no .safetensors"), "{text}");
    assert!(hint.contains("the format of pytorch_model.bin is not read"), "{hint}");
}

#[test]
fn real_models_are_never_called_mistaken() {
    let folder = folder();
    let path = folder.path().join("model");
    let whole = safetensors(&[Sample::new("a", Dtype::F32, &[400])]);
    write(&path, &whole);
    Model::open(&path).expect("a model");
    // Damaged models are not called something else.
    for end in 8..whole.len() {
        write(&path, &whole[..end]);
        let error = Model::open(&path).expect_err("a part of it");
        let Error::Malformed { reason, .. } = &error else { panic!("{error}") };
        let told = matches!(reason, Malformed::Truncated { .. } | Malformed::OutOfFile { .. });
        assert!(told, "{end}: {error}");
    }
    let gguf = Gguf::default().tensor(&Sample::new("a", Dtype::F32, &[400])).bytes();
    write(&path, &gguf);
    Model::open(&path).expect("a model");
    write(&path, &[0xff; 5000]);
    let error = Model::open(&path).expect_err("nothing that is known");
    let Error::Malformed { reason, .. } = &error else { panic!("{error}") };
    assert!(matches!(reason, Malformed::NotAModel { found: Mistaken::Unknown }), "{error}");
    assert!(error.hint().to_string().contains("other formats are not read"), "{}", error.hint());
}
