// SPDX-License-Identifier: MIT OR Apache-2.0
//! How tensors are loaded: which ranges, into how many buffers, watched, cancelled, failing.

mod common;

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};

use common::{Gguf, Sample, folder, safetensors, write};
use dmabuf_dio::{Backend, CancelToken, DmaBuf, Kind, Numa, Options};
use dmabuf_dio_tensors::{Dtype, Error, Loaded, Model, Progress};

/// `count` tensors of 20,000 bytes and something.
fn samples(prefix: &str, count: u64) -> Vec<Sample> {
    (0..count)
        .map(|number| Sample::new(&format!("{prefix}{number:03}"), Dtype::U8, &[20_000 + number]))
        .collect()
}

fn model(folder: &Path, samples: &[Sample]) -> Model {
    let path = folder.join("model.safetensors");
    write(&path, &safetensors(samples));
    Model::open(path).expect("a model")
}

/// A model in `count` files of 40 tensors each.
fn shards(folder: &Path, count: u64) -> (Model, Vec<Sample>) {
    let mut all = Vec::new();
    let mut map = serde_json::Map::new();
    for shard in 0..count {
        let samples = samples(&format!("shard{shard}."), 40);
        write(&folder.join(format!("{shard}.st")), &safetensors(&samples));
        map.extend(
            samples.iter().map(|sample| (sample.name.clone(), format!("{shard}.st").into())),
        );
        all.extend(samples);
    }
    let index = serde_json::json!({ "weight_map": map }).to_string();
    write(&folder.join("model.safetensors.index.json"), index.as_bytes());
    (Model::open(folder).expect("a model"), all)
}

fn names<'s>(samples: impl IntoIterator<Item = &'s Sample>) -> Vec<String> {
    samples.into_iter().map(|sample| sample.name.clone()).collect()
}

fn assert_bytes(loaded: &Loaded, samples: &[&Sample]) {
    assert_eq!(loaded.views.len(), samples.len());
    for sample in samples {
        assert!(loaded.to_vec(&sample.name).expect("loaded") == sample.bytes, "{}", sample.name);
    }
}

/// Whether there are dma-bufs here that a gather can fill.
fn has_heap() -> bool {
    let has = DmaBuf::alloc(4096).is_ok();
    assert!(has || !common::needs_dma_bufs(), "dma-bufs are required");
    has
}

#[test]
fn many_ranges_of_a_file_share_a_buffer() {
    let folder = folder();
    let samples = samples("t", 200);
    let model = model(folder.path(), &samples);
    for start in [0, 1] {
        let some: Vec<_> = samples.iter().skip(start).step_by(2).collect();
        let loader = model.loader().only(names(some.clone())).gap(0);
        let shared = loader.clone().kind(Kind::Memfd).load().expect("load");
        assert_bytes(&shared, &some);
        assert_eq!(shared.buffers.len(), 1);
        for view in &shared.views {
            let tensor = model.tensor(&view.name).expect("listed");
            assert_eq!(view.offset % 4096, tensor.range.start % 4096);
        }
        assert_eq!(shared.buffers[0].kind(), Kind::Memfd);

        let any = loader.clone().load().expect("load");
        assert_bytes(&any, &some);
        let private = loader.clone().kind(Kind::Private).load().expect("load");
        assert_bytes(&private, &some);
        assert_eq!(private.buffers.len(), 100);
        let chosen = loader.clone().backend(Backend::Memfd).load().expect("load");
        assert_bytes(&chosen, &some);
        assert_eq!(chosen.buffers.len(), 100);
        for (numa, lock) in [(Some(Numa::Local), false), (None, true)] {
            let options = Options { kind: Kind::Memfd, numa, lock, ..Options::default() };
            let placed = loader.clone().options(options).load().expect("load");
            assert_bytes(&placed, &some);
            for buffer in &placed.buffers {
                let report = buffer.report().expect("loaded");
                assert_eq!((report.numa, report.locked), (numa, lock));
            }
        }
        if has_heap() {
            let shared = loader.kind(Kind::DmaBuf).load().expect("load");
            assert_bytes(&shared, &some);
            assert_eq!(shared.buffers.len(), 1);
            assert_eq!(shared.buffers[0].kind(), Kind::DmaBuf);
        }
    }
}

#[test]
fn only_selected_tensors_are_read() {
    let folder = folder();
    let samples = samples("t", 100);
    let model = model(folder.path(), &samples);
    let two = [&samples[3], &samples[90]];
    let loader = model.loader().kind(Kind::Memfd).only(["t090", "t003", "t090"]);
    let apart = loader.clone().load().expect("load");
    assert_bytes(&apart, &two);
    assert_eq!(names(two), apart.views.iter().map(|view| view.name.clone()).collect::<Vec<_>>());
    assert_eq!((apart.buffers.len(), apart.bytes()), (2, 20_003 + 20_090));
    let (first, last) = (model.tensor("t003").expect("it"), model.tensor("t090").expect("it"));
    let between = last.range.start.abs_diff(first.range.start);
    let together = loader.clone().gap(between).load().expect("load");
    assert_bytes(&together, &two);
    assert_eq!(together.buffers.len(), 1);
    assert!(together.bytes() > between);

    let error = loader.only(["t003", "nothing"]).load().expect_err("no such tensor");
    assert!(matches!(&error, Error::NoTensor { name } if name == "nothing"), "{error}");
    let none = model.loader().only(Vec::<String>::new()).load().expect("nothing to load");
    assert!(none.views.is_empty() && none.buffers.is_empty());
}

#[test]
fn files_share_one_progress() {
    let folder = folder();
    let (model, samples) = shards(folder.path(), 5);
    let all: Vec<_> = samples.iter().collect();
    let wanted: Vec<_> = samples.iter().step_by(2).collect();
    for (some, gap) in [(&all, 0), (&wanted, 0), (&wanted, 1 << 20)] {
        for concurrency in [0, 1, 3, 100] {
            let told = Arc::new(Mutex::new(Vec::<Progress>::new()));
            let seen = Arc::clone(&told);
            let loader =
                model.loader().kind(Kind::Memfd).only(names(some.iter().copied())).gap(gap);
            let loader = loader.concurrency(concurrency);
            let loader = loader.progress(move |progress| seen.lock().expect("lock").push(progress));
            assert_bytes(&loader.load().expect("load"), some);
            let told = told.lock().expect("lock");
            let last = told.last().expect("told");
            assert_eq!(last.done, last.total);
            assert!(told.windows(2).all(|two| two[0].done <= two[1].done));
            assert!(told.iter().all(|one| one.total == last.total));
        }
    }
}

#[test]
fn a_cancelled_load_fails() {
    let folder = folder();
    let (model, _) = shards(folder.path(), 5);
    for concurrency in [1, 3] {
        let token = CancelToken::new();
        let loader = model.loader().kind(Kind::Memfd).concurrency(concurrency);
        let stop = token.clone();
        let loader = loader.cancel(token.clone()).progress(move |_| stop.cancel());
        let Err(error) = loader.load() else { panic!("cancelled at once") };
        let Error::Load { path, source } = &error else { panic!("{error}") };
        assert!(matches!(source, dmabuf_dio::Error::Cancelled { .. }), "{error}");
        assert!(model.files().iter().any(|file| file.path() == path));
    }
}

#[test]
fn a_truncated_file_is_named() {
    let folder = folder();
    let (model, _) = shards(folder.path(), 5);
    let path = folder.path().join("3.st");
    let file = std::fs::File::options().write(true).open(&path).expect("open");
    file.set_len(100_000).expect("truncate");
    let token = CancelToken::new();
    for concurrency in [1, 3] {
        let loader = model.loader().concurrency(concurrency).cancel(token.clone());
        let error = loader.load().expect_err("too short");
        let Error::Load { path: found, source } = &error else { panic!("{error}") };
        assert_eq!(*found, path);
        assert!(matches!(source, dmabuf_dio::Error::ShortFile { .. }), "{error}");
    }
    assert!(!token.is_cancelled(), "the caller's token is the caller's");

    // When ranges share a buffer
    let names: Vec<_> = model.tensors().iter().step_by(2).map(|one| one.name.clone()).collect();
    let loader = model.loader().kind(Kind::Memfd).only(names).gap(0);
    let error = loader.load().expect_err("too short");
    assert!(matches!(&error, Error::Load { path: found, .. } if *found == path), "{error}");
}

#[test]
fn model_keeps_reading_a_replaced_file() {
    let folder = folder();
    let samples = samples("t", 10);
    let model = model(folder.path(), &samples);
    let other = folder.path().join("other");
    write(&other, &Gguf::default().bytes());
    std::fs::rename(other, folder.path().join("model.safetensors")).expect("replace");
    let loaded = model.loader().kind(Kind::Memfd).load().expect("the file that was opened");
    assert_bytes(&loaded, &samples.iter().collect::<Vec<_>>());
}

#[test]
fn default_load_gives_dma_bufs_or_an_error() {
    let folder = folder();
    let model = model(folder.path(), &samples("t", 3));
    match model.loader().kind(Kind::DmaBuf).load() {
        Ok(loaded) => {
            assert!(loaded.buffers.iter().all(|buffer| buffer.dma_buf().is_ok()));
        }
        Err(Error::Load { source: dmabuf_dio::Error::Unavailable { kind, .. }, .. }) => {
            assert_eq!(kind, Some(Kind::DmaBuf));
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn loaded_file_opens_as_a_model() {
    let folder = folder();
    let samples = samples("t", 3);
    let path = folder.path().join("model.safetensors");
    write(&path, &safetensors(&samples));
    let memfd = dmabuf_dio::Loader::new(path).kind(Kind::Memfd).load().expect("load");
    let model = Model::open(memfd.path().expect("a path")).expect("a model in memory");
    let loaded = model.loader().kind(Kind::Memfd).load().expect("load");
    assert_bytes(&loaded, &samples.iter().collect::<Vec<_>>());
}

/// Many ranges of a file, together longer than any memory: where they share a buffer, too, the kernel
/// must not have to kill a process.
#[test]
fn model_exceeding_memory_is_an_error() {
    // 140 of them are below the largest file on f2fs, 3.94 TB.
    const TENSOR: u64 = 16 << 30;
    let folder = folder();
    let entries: Vec<_> = (0..140)
        .map(|at| {
            let (from, to) = (at * TENSOR, (at + 1) * TENSOR);
            format!(r#""t{at}":{{"dtype":"U8","shape":[{TENSOR}],"data_offsets":[{from},{to}]}}"#)
        })
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    let path = folder.path().join("model.safetensors");
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    std::fs::write(&path, &bytes).expect("write");
    let file = File::options().write(true).open(&path).expect("open");
    file.set_len(bytes.len() as u64 + 140 * TENSOR).expect("a sparse file");
    let model = Model::open(&path).expect("a model");
    let only: Vec<_> = (0..70).map(|at| format!("t{}", at * 2)).collect();
    for kind in [Kind::Memfd, Kind::DmaBuf] {
        let error = model.loader().only(only.clone()).kind(kind).load().expect_err("too much");
        let Error::Load { source, .. } = &error else { panic!("{error}") };
        let expected = matches!(source, dmabuf_dio::Error::NoMemory { .. })
            || kind == Kind::DmaBuf && matches!(source, dmabuf_dio::Error::Unavailable { .. });
        assert!(expected, "{kind}: {error}");
    }
}
