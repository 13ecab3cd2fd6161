// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of both formats: every tensor is listed, and every byte of it is loaded, into every kind of
//! buffer that there is here.
//!
//! `DMABUF_DIO_REQUIRE`, which guests set, makes missing dma-bufs an error.

mod common;

use std::path::Path;

use common::{Gguf, SAFETENSORS, Sample, assert_lists, folder, safetensors, string, write};
use dmabuf_dio::{Kind, Options};
use dmabuf_dio_tensors::{
    Array, Dtype, Error, Format, GgmlType, Loaded, Malformed, Model, TensorLoader, Value,
};

/// One tensor of each type and some odd shapes, with more than a page in some.
fn safetensors_samples() -> Vec<Sample> {
    let mut samples: Vec<_> = SAFETENSORS
        .into_iter()
        .flat_map(|(dtype, _)| {
            [
                Sample::new(&format!("{dtype}.small"), dtype, &[1, 4]),
                Sample::new(&format!("{dtype}.large"), dtype, &[3, 1, 5000]),
            ]
        })
        .collect();
    samples.push(Sample::new("scalar", Dtype::F32, &[]));
    samples.push(Sample::new("empty", Dtype::F32, &[0, 7]));
    samples.push(Sample::new("name with spaces, ünïcode \" and \\", Dtype::U8, &[3]));
    samples
}

fn gguf_samples() -> Vec<Sample> {
    let plain = [
        Dtype::F32,
        Dtype::F16,
        Dtype::I8,
        Dtype::I16,
        Dtype::I32,
        Dtype::I64,
        Dtype::F64,
        Dtype::Bf16,
    ];
    let quantised = GgmlType::ALL.iter().copied().map(Dtype::Ggml);
    let mut samples: Vec<_> = plain
        .into_iter()
        .chain(quantised)
        .map(|dtype| {
            let columns = dtype.block().elements * 3;
            Sample::new(&format!("{dtype}.weight"), dtype, &[2, 1, 77, columns])
        })
        .collect();
    samples.push(Sample::new("scalar", Dtype::F32, &[]));
    samples.push(Sample::new("empty", Dtype::F32, &[0]));
    samples
}

fn gguf(samples: &[Sample]) -> Gguf {
    samples.iter().fold(Gguf::default(), Gguf::tensor)
}

/// A way to ask for a kind of memory.
type Ask = for<'m> fn(TensorLoader<'m>) -> TensorLoader<'m>;

/// Each kind of memory that this machine has.
fn kinds() -> Vec<(&'static str, Ask)> {
    let mut kinds: Vec<(&str, Ask)> = vec![
        ("memfd", |loader| loader.kind(Kind::Memfd)),
        ("private", |loader| loader.kind(Kind::Private)),
        ("any", |loader| loader),
        ("page cache", |loader| {
            loader.options(Options { kind: Kind::Memfd, direct: false, ..Options::default() })
        }),
        ("small pages", |loader| {
            loader.options(Options { kind: Kind::Memfd, huge_pages: false, ..Options::default() })
        }),
    ];
    match dmabuf_dio::DmaBuf::alloc(4096) {
        Ok(_) => kinds.push(("dma-buf", |loader| loader.kind(Kind::DmaBuf))),
        Err(error) => {
            assert!(!common::needs_dma_bufs(), "dma-bufs are required: {error}");
            println!("skipped dma-bufs: {error}");
        }
    }
    kinds
}

/// Fails unless exactly these tensors are loaded, in this order of names, with these bytes.
fn assert_loaded(what: &str, loaded: &Loaded, samples: &[&Sample]) {
    assert_eq!(loaded.views.len(), samples.len(), "{what}");
    let maps: Vec<Vec<u8>> = loaded
        .buffers
        .iter()
        .map(|buffer| buffer.map().expect("map").to_vec().expect("all of it"))
        .collect();
    for sample in samples {
        let view = loaded.view(&sample.name).expect(what);
        let what = format!("{what}: {}", sample.name);
        assert_eq!((view.dtype, &view.shape), (sample.dtype, &sample.shape), "{what}");
        assert_eq!(view.len, sample.bytes.len() as u64, "{what}");
        assert!(loaded.to_vec(&sample.name).expect(&what) == sample.bytes, "{what}: its bytes");
        let Some(buffer) = view.buffer else {
            assert_eq!(view.len, 0, "{what}");
            continue;
        };
        let range = view.offset as usize..(view.offset + view.len) as usize;
        assert!(maps[buffer][range] == sample.bytes, "{what}: mapped");
    }
}

fn load_in_all_ways(model: &Model, samples: &[Sample]) {
    assert_lists(model, samples);
    let all: Vec<&Sample> = samples.iter().collect();
    let some: Vec<&Sample> = samples.iter().step_by(5).collect();
    for (kind, ask) in kinds() {
        let loaded = ask(model.loader()).load().expect(kind);
        assert_loaded(kind, &loaded, &all);
        // A tensor is at the same offset in its page as in the file.
        for (view, tensor) in loaded.views.iter().zip(model.tensors()) {
            if view.len > 0 {
                assert_eq!(view.offset % 4096, tensor.range.start % 4096, "{kind}: {}", view.name);
            }
        }

        let names = some.iter().map(|sample| sample.name.clone());
        let loaded = ask(model.loader()).only(names).gap(0).load().expect(kind);
        assert_loaded(&format!("some, {kind}"), &loaded, &some);
    }
}

#[test]
fn safetensors_of_every_type_load() {
    let folder = folder();
    let path = folder.path().join("all.safetensors");
    let samples = safetensors_samples();
    write(&path, &safetensors(&samples));
    let model = Model::open(&path).expect("a model");
    assert_eq!((model.format(), model.files().len()), (Format::Safetensors, 1));
    assert_eq!(model.metadata().get("author").and_then(Value::as_str), Some("ü"));
    assert_eq!(model.metadata().len(), 2);
    load_in_all_ways(&model, &samples);
}

#[test]
fn gguf_of_every_type_loads() {
    let folder = folder();
    let path = folder.path().join("all.gguf");
    let samples = gguf_samples();
    for (version, alignment) in [(3, 32), (2, 32), (3, 4096), (3, 8), (3, 1)] {
        let mut file = Gguf { version, alignment, ..Gguf::default() };
        if alignment != 32 {
            file = file.key("general.alignment", 4, &(alignment as u32).to_le_bytes());
        }
        write(&path, &samples.iter().fold(file, Gguf::tensor).bytes());
        let model = Model::open(&path).expect("a model");
        assert_eq!(model.format(), Format::Gguf);
        load_in_all_ways(&model, &samples);
    }
}

#[test]
fn key_values_are_typed() {
    let folder = folder();
    let path = folder.path().join("keys.gguf");
    let strings =
        [&8u32.to_le_bytes()[..], &3u64.to_le_bytes(), &string("<s>"), &string(""), &string("ß")];
    let numbers = [&5u32.to_le_bytes()[..], &2u64.to_le_bytes(), &[255; 4], &[1, 0, 0, 0]];
    let flags = [&7u32.to_le_bytes()[..], &2u64.to_le_bytes(), &[1, 0]];
    let file = Gguf::default()
        .key("u8", 0, &[200])
        .key("i8", 1, &[200])
        .key("u16", 2, &[1, 2])
        .key("i16", 3, &[255, 255])
        .key("u32", 4, &[0, 0, 0, 128])
        .key("i32", 5, &[0, 0, 0, 128])
        .key("f32", 6, &1.5f32.to_le_bytes())
        .key("bool", 7, &[1])
        .key("string", 8, &string("größe"))
        .key("strings", 9, &strings.concat())
        .key("numbers", 9, &numbers.concat())
        .key("flags", 9, &flags.concat())
        .key("u64", 10, &u64::MAX.to_le_bytes())
        .key("i64", 11, &i64::MIN.to_le_bytes())
        .key("f64", 12, &2.5f64.to_le_bytes());
    write(&path, &file.bytes());
    let model = Model::open(&path).expect("a model without tensors");
    let found: Vec<_> = model.metadata().iter().collect();
    assert_eq!(found[0], ("u8", &Value::U8(200)));
    assert_eq!(found[1].1, &Value::I8(-56));
    assert_eq!(found[2].1, &Value::U16(513));
    assert_eq!(found[3].1, &Value::I16(-1));
    assert_eq!(found[4].1, &Value::U32(1 << 31));
    assert_eq!(found[5].1, &Value::I32(i32::MIN));
    assert_eq!(found[6].1, &Value::F32(1.5));
    assert_eq!(found[7].1, &Value::Bool(true));
    assert_eq!(found[8].1, &Value::String("größe".into()));
    let Value::Array(Array::String(strings)) = found[9].1 else { panic!("{:?}", found[9]) };
    assert_eq!(strings.iter().collect::<Vec<_>>(), [&b"<s>"[..], b"", "ß".as_bytes()]);
    assert_eq!(found[10].1, &Value::Array(Array::I32(vec![-1, 1])));
    assert_eq!(found[11].1, &Value::Array(Array::Bool(vec![true, false])));
    assert_eq!(found[12].1, &Value::U64(u64::MAX));
    assert_eq!(found[13].1, &Value::I64(i64::MIN));
    assert_eq!(found[14].1, &Value::F64(2.5));
    let loaded = model.loader().kind(Kind::Memfd).load().expect("nothing to load");
    assert!(loaded.views.is_empty() && loaded.buffers.is_empty());
}

/// Three shards, their index, and their content.
fn sharded(folder: &Path) -> Vec<Sample> {
    let samples = safetensors_samples();
    let mut map = serde_json::Map::new();
    for (number, part) in samples.chunks(samples.len() / 3 + 1).enumerate() {
        let name = format!("model-{:05}-of-00003.safetensors", number + 1);
        // A tensor that the index does not name, in each
        let mut part = part.to_vec();
        part.push(Sample::new("stale", Dtype::U8, &[9]));
        write(&folder.join(&name), &safetensors(&part));
        for sample in part.iter().filter(|sample| sample.name != "stale") {
            map.insert(sample.name.clone(), name.clone().into());
        }
    }
    let index = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    write(&folder.join("model.safetensors.index.json"), index.to_string().as_bytes());
    samples
}

#[test]
fn indexed_shards_load_as_one_model() {
    let folder = folder();
    let samples = sharded(folder.path());
    for path in [folder.path().to_owned(), folder.path().join("model.safetensors.index.json")] {
        let model = Model::open(path).expect("a model");
        assert_eq!(model.files().len(), 3);
        load_in_all_ways(&model, &samples);
    }
    // A single shard is a model, too.
    let part = Model::open(folder.path().join("model-00002-of-00003.safetensors")).expect("a file");
    assert!(part.tensor("stale").is_some());
}

/// The parts of a split GGUF model.
fn split(folder: &Path) -> Vec<Sample> {
    let samples = gguf_samples();
    let total = (samples.len() as u32).to_le_bytes();
    for (number, part) in samples.chunks(samples.len() / 3 + 1).enumerate() {
        let file = gguf(part)
            .key("split.no", 2, &(number as u16).to_le_bytes())
            .key("split.count", 2, &3u16.to_le_bytes())
            .key("split.tensors.count", 5, &total);
        write(&folder.join(format!("m-Q4-{:05}-of-00003.gguf", number + 1)), &file.bytes());
    }
    samples
}

#[test]
fn split_gguf_loads_as_one_model() {
    let folder = folder();
    let samples = split(folder.path());
    for path in [folder.path().to_owned(), folder.path().join("m-Q4-00001-of-00003.gguf")] {
        let model = Model::open(path).expect("a model");
        assert_eq!((model.files().len(), model.format()), (3, Format::Gguf));
        load_in_all_ways(&model, &samples);
    }
    let second = folder.path().join("m-Q4-00002-of-00003.gguf");
    let error = Model::open(&second).expect_err("the second part");
    assert!(matches!(error, Error::Malformed { reason: Malformed::Split(_), .. }), "{error}");
    std::fs::copy(folder.path().join("m-Q4-00003-of-00003.gguf"), &second).expect("copy");
    let error = Model::open(folder.path()).expect_err("the third twice");
    assert!(error.to_string().contains("00002-of-00003"), "{error}");
    std::fs::remove_file(second).expect("remove");
    for path in [folder.path().to_owned(), folder.path().join("m-Q4-00001-of-00003.gguf")] {
        let error = Model::open(path).expect_err("a part is missing");
        let Error::MissingParts { missing, count: 3, .. } = error else { panic!("{error}") };
        assert_eq!(missing, ["m-Q4-00002-of-00003.gguf"]);
    }
}

#[test]
fn folder_opens_only_with_one_model() {
    let folder = folder();
    let error = Model::open(folder.path()).expect_err("an empty folder");
    assert!(matches!(error, Error::NoModel { .. }), "{error}");
    let one = [Sample::new("a", Dtype::U8, &[5])];
    write(&folder.path().join("x.gguf"), &gguf(&[Sample::new("g", Dtype::F32, &[5])]).bytes());
    assert!(Model::open(folder.path()).expect("GGUF").tensor("g").is_some());
    write(&folder.path().join("b.safetensors"), &safetensors(&one));
    assert!(Model::open(folder.path()).expect("safetensors first").tensor("a").is_some());
    write(&folder.path().join("c.safetensors"), &safetensors(&one));
    let error = Model::open(folder.path()).expect_err("two of them");
    let Error::Ambiguous { found, .. } = error else { panic!("{error}") };
    assert_eq!(found, ["b.safetensors", "c.safetensors"]);
    let two = [Sample::new("usual", Dtype::U8, &[5])];
    write(&folder.path().join("model.safetensors"), &safetensors(&two));
    assert!(Model::open(folder.path()).expect("the usual name").tensor("usual").is_some());
    assert!(Model::open(folder.path().join("nothing")).is_err());
}
