// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of tensors: every byte, and how much of the file is read for them.

mod common;

use std::sync::Arc;

use common::{Sample, folder, safetensors, write};
use dmabuf_dio::{Buffer, CancelToken, Options};
use dmabuf_dio_tensors::{Dtype, Error, Model, NoPart, Part, Reader, Shard, Split};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn model(samples: &[Sample]) -> (TempDir, Arc<Model>) {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    write(&path, &safetensors(samples));
    (folder, Arc::new(Model::open(path).expect("a model")))
}

/// The bytes of a matrix's rows and columns.
fn cut(sample: &Sample, rows: std::ops::Range<u64>, columns: std::ops::Range<u64>) -> Vec<u8> {
    let row = sample.bytes.len() as u64 / sample.shape[0];
    let element = row / sample.shape[1];
    let strip = |at: u64| {
        let first = at * row;
        &sample.bytes
            [(first + columns.start * element) as usize..(first + columns.end * element) as usize]
    };
    rows.map(strip).collect::<Vec<_>>().concat()
}

fn check(found: Option<&Buffer>, expected: &[u8], what: &str) {
    let found = found.map_or(&[][..], |memory| memory.bytes().expect("private memory"));
    assert!(found == expected, "{what}: {} bytes, {} expected", found.len(), expected.len());
}

#[test]
fn rows_and_columns_are_read_alone() {
    let narrow = Sample::new("narrow", Dtype::Bf16, &[700, 900]);
    // Strips that are longer than a piece of the gather, and a window
    let wide = Sample::new("wide", Dtype::F32, &[5, 1_500_001]);
    let (_folder, model) = model(&[narrow.clone(), wide.clone()]);
    let reader = Reader::new(Arc::clone(&model));
    let number = |name: &str| model.index_of(name).expect("a tensor");
    for sample in [&narrow, &wide] {
        let (rows, columns) = (sample.shape[0], sample.shape[1]);
        let boxes = [
            (0..rows, 0..1),
            (0..rows, columns - 1..columns),
            (1..rows - 1, columns / 3..columns / 2),
            (rows - 1..rows, 3..columns),
            (2..2, 0..columns),
            (2..3, 4..4),
            (0..rows, 0..columns),
            (0..rows, 1..columns),
        ];
        for (down, across) in boxes {
            let part =
                Part::whole(number(&sample.name)).take(0, down.clone()).take(1, across.clone());
            let read = reader.part(&part, &CancelToken::new()).expect("read");
            check(read.as_ref(), &cut(sample, down, across), &format!("{part:?}"));
        }
    }
    let beyond = Part::whole(0).take(1, 0..1 << 40);
    let error = reader.part(&beyond, &CancelToken::new()).expect_err("beyond the tensor");
    assert!(matches!(error, Error::NoPart { reason: NoPart::Range { dim: 1, .. }, .. }), "{error}");
    let error = reader.part(&Part::whole(2), &CancelToken::new()).expect_err("no tensor");
    assert!(matches!(error, Error::NoNumber { number: 2, count: 2 }));
}

/// Layers of a model, and what is divided of them how.
fn layers() -> (Vec<Sample>, Vec<(&'static str, Option<Split>)>) {
    let mut samples = Vec::new();
    for layer in 0..3 {
        for (name, shape) in [
            ("q.weight", &[512, 1024][..]),
            ("q.bias", &[512]),
            ("o.weight", &[256, 16384]),
            ("fused.weight", &[1024 + 512, 300]),
            ("experts", &[4, 64, 4096]),
            ("norm", &[1000]),
            ("empty", &[0, 16]),
        ] {
            samples.push(Sample::new(&format!("{layer}.{name}"), Dtype::Bf16, shape));
        }
    }
    let rules = vec![
        ("q.weight", Some(Split::ROWS)),
        ("q.bias", Some(Split::ROWS)),
        ("o.weight", Some(Split::COLUMNS)),
        ("fused.weight", Some(Split::ROWS.sections([1024, 512]))),
        ("experts", Some(Split::along(2))),
        ("norm", None),
        ("empty", Some(Split::ROWS)),
    ];
    (samples, rules)
}

/// The bytes of a rank, element by element.
fn expected(sample: &Sample, split: Option<&Split>, rank: u64, world: u64) -> (Vec<u64>, Vec<u8>) {
    let shape = sample.shape.clone();
    let Some(split) = split else { return (shape, sample.bytes.clone()) };
    let (dim, sections) = match split {
        split if *split == Split::ROWS => (0, vec![shape[0]]),
        split if *split == Split::COLUMNS => (1, vec![shape[1]]),
        split if *split == Split::along(2) => (2, vec![shape[2]]),
        _ => (0, vec![1024, 512]),
    };
    let inner: u64 = shape[dim + 1..].iter().product();
    let is_ours = |index: u64| {
        let mut start = 0;
        for section in &sections {
            if index < start + section {
                return (index - start) / (section / world) == rank;
            }
            start += section;
        }
        false
    };
    let elements = sample.bytes.chunks(2).enumerate();
    let ours = elements.filter(|(at, _)| is_ours(*at as u64 / inner % shape[dim]));
    let bytes = ours.flat_map(|(_, bytes)| bytes.iter().copied()).collect();
    let mut part = shape;
    part[dim] /= world;
    (part, bytes)
}

#[test]
fn ranks_read_their_parts() {
    let (samples, rules) = layers();
    let (_folder, model) = model(&samples);
    let rule = |name: &str| {
        let found = rules.iter().find(|(end, _)| name.ends_with(end)).expect("a rule");
        found.1.as_ref()
    };
    for (world, window) in [(1, None), (2, Some(0)), (4, Some(MIB)), (4, None)] {
        for rank in 0..world {
            let shard = Shard::new(rank, world).expect("a rank");
            let part =
                |(number, tensor): (usize, &dmabuf_dio_tensors::Tensor)| match rule(&tensor.name) {
                    Some(split) => shard.part(&model, number, split),
                    None => Ok(Part::whole(number)),
                };
            let parts: Vec<_> = model
                .tensors()
                .iter()
                .enumerate()
                .map(part)
                .collect::<Result<_, _>>()
                .expect("parts");
            let options = Options::default();
            let reader =
                Reader::of_parts(Arc::clone(&model), &parts, window, &options).expect("a reader");
            let mut bytes = 0;
            for (number, item) in reader.iter().enumerate() {
                let (tensor, memory) = item.expect("read");
                let sample = samples.iter().find(|sample| sample.name == tensor.name);
                let sample = sample.expect("a sample");
                let split = rule(&sample.name);
                let (shape, content) = expected(sample, split, rank.into(), world.into());
                assert_eq!((&tensor.shape, tensor.len()), (&shape, content.len() as u64));
                check(memory.as_ref(), &content, &format!("{} of rank {rank}", tensor.name));
                bytes += tensor.len();
                if number % 5 == 0 {
                    let again = reader.get(number, &CancelToken::new()).expect("again");
                    check(again.as_ref(), &content, "requested again");
                    bytes += tensor.len();
                }
            }
            let report = reader.report();
            assert_eq!(report.requested, bytes, "{report:?}");
            assert_eq!(report.dropped, 0, "{report:?}");
        }
    }
}

#[test]
fn parts_in_any_order_and_of_the_same_tensor_are_read() {
    let matrix = Sample::new("matrix", Dtype::U8, &[64, 40_000]);
    let other = Sample::new("other", Dtype::U8, &[3_000_000]);
    let (_folder, model) = model(&[matrix.clone(), other]);
    let number = model.index_of("matrix").expect("a tensor");
    let rows = |rows: std::ops::Range<u64>| Part::whole(number).take(0, rows);
    let parts = [
        rows(60..64),
        rows(0..33),
        rows(32..34),
        rows(34..64),
        Part::whole(number).take(1, 20_000..40_000),
        Part::whole(1 - number),
        Part::whole(number).take(1, 0..20_000),
        Part::whole(number),
    ];
    let reader = Reader::of_parts(Arc::clone(&model), &parts, Some(32 * MIB), &Options::default());
    let reader = reader.expect("a reader");
    let expected = [
        (60..64, 0..40_000),
        (0..33, 0..40_000),
        (32..34, 0..40_000),
        (34..64, 0..40_000),
        (0..64, 20_000..40_000),
        (0..0, 0..0),
        (0..64, 0..20_000),
        (0..64, 0..40_000),
    ];
    for ((item, (down, across)), part) in reader.iter().zip(expected).zip(&parts) {
        let (tensor, memory) = item.expect("read");
        if tensor.name == "matrix" {
            check(memory.as_ref(), &cut(&matrix, down, across), &format!("{part:?}"));
        }
    }
}

#[test]
fn part_of_a_truncated_file_is_an_error_and_others_are_read() {
    let matrix = Sample::new("matrix", Dtype::U8, &[64, 40_000]);
    let (_folder, model) = model(std::slice::from_ref(&matrix));
    let path = model.files()[0].path();
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("the file");
    let len = file.metadata().expect("its length").len();
    file.set_len(len - 10).expect("truncated");
    let columns = |columns: std::ops::Range<u64>| Part::whole(0).take(1, columns);
    let parts = [columns(0..20_000), columns(20_000..40_000)];
    let reader = Reader::of_parts(Arc::clone(&model), &parts, None, &Options::default());
    let reader = reader.expect("a reader");
    let first = reader.get(0, &CancelToken::new()).expect("read");
    check(first.as_ref(), &cut(&matrix, 0..64, 0..20_000), "the first columns");
    match reader.get(1, &CancelToken::new()) {
        Err(Error::Load { source: dmabuf_dio::Error::ShortFile { end, .. }, .. }) => {
            assert_eq!(end, len - 10);
        }
        other => panic!("{other:?}"),
    }
    let token = CancelToken::new();
    token.cancel();
    let error = reader.get(0, &token).expect_err("cancelled");
    assert!(
        matches!(error, Error::Load { source: dmabuf_dio::Error::Cancelled { .. }, .. }),
        "{error}"
    );
}

#[test]
fn ranks_together_read_the_file_once() {
    let tensor = |number: usize| match number % 3 {
        0 => Sample::new(&format!("{number}.rows"), Dtype::Bf16, &[1024, 100 + number as u64]),
        1 => Sample::new(&format!("{number}.bias"), Dtype::Bf16, &[1024]),
        // Strips of 512 KiB, of which at most two blocks are read in vain.
        _ => Sample::new(&format!("{number}.columns"), Dtype::Bf16, &[3, 1 << 20]),
    };
    let (_folder, model) = model(&(0..12).map(tensor).collect::<Vec<_>>());
    let len: u64 = model.tensors().iter().map(dmabuf_dio_tensors::Tensor::len).sum();
    let mut read = 0;
    for rank in 0..4 {
        let shard = Shard::new(rank, 4).expect("a rank");
        let part = |(number, tensor): (usize, &dmabuf_dio_tensors::Tensor)| {
            let is_wide = tensor.name.ends_with("columns");
            let split = if is_wide { Split::COLUMNS } else { Split::ROWS };
            shard.part(&model, number, &split)
        };
        let parts: Vec<_> =
            model.tensors().iter().enumerate().map(part).collect::<Result<_, _>>().expect("parts");
        let reader = Reader::of_parts(Arc::clone(&model), &parts, None, &Options::default());
        let reader = reader.expect("a reader");
        assert!(reader.iter().all(|item| item.is_ok()));
        read += reader.report().read;
    }
    assert!(read * 100 <= len * 102, "{read} bytes read of {len}");
    println!("{:.4} of the file", read as f64 / len as f64);
}

#[test]
fn bytes_between_strips_are_read_if_they_are_few_everywhere() {
    let matrix = Sample::new("matrix", Dtype::U8, &[6, 2 << 20]);
    let (_folder, model) = model(std::slice::from_ref(&matrix));
    // 3.5 KiB are between two strips on average: 1 byte, or nearly 2 MiB.
    let mut part = Part::whole(0);
    for column in 0..600 {
        part = part.take(1, 2 * column..2 * column + 1);
    }
    let reader = Reader::new(Arc::clone(&model));
    let found = reader.part(&part, &CancelToken::new()).expect("read");
    let expected: Vec<u8> = matrix
        .bytes
        .chunks(2 << 20)
        .flat_map(|row| row.iter().step_by(2).take(600))
        .copied()
        .collect();
    check(found.as_ref(), &expected, "every second column of the first 1200");
    let read = reader.report().read;
    assert!(read <= 6 * 3 * 4096, "{read} bytes were read for {}", expected.len());
}
