// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tensors of contents: every byte, and how many bytes and requests that takes.

mod common;
#[path = "common/contents.rs"]
mod contents;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use common::{Sample, safetensors};
use contents::Memory;
use dmabuf_dio::{Buffer, CancelToken, DmaBuf, Kind, Mode, Options};
use dmabuf_dio_tensors::{Dtype, Error, Loaded, Model, Part, Reader, Shard, Split};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn never() -> CancelToken {
    CancelToken::new()
}

/// A model in a content, of tensors with so many bytes. Its header was asked for already.
fn model(lens: &[u64]) -> (Arc<Memory>, Arc<Model>, Vec<Sample>) {
    let number =
        |(number, len): (usize, &u64)| Sample::new(&format!("t{number:03}"), Dtype::U8, &[*len]);
    let samples: Vec<_> = lens.iter().enumerate().map(number).collect();
    of_samples(&samples)
}

fn of_samples(samples: &[Sample]) -> (Arc<Memory>, Arc<Model>, Vec<Sample>) {
    let memory = Memory::new("store://of/model.safetensors", safetensors(samples));
    let model = Arc::new(Model::open_content(memory.clone(), &never()).expect("a model"));
    memory.asked();
    let in_order = model.tensors().iter().map(|tensor| {
        samples.iter().find(|sample| sample.name == tensor.name).expect("a sample").clone()
    });
    let samples = in_order.collect();
    (memory, model, samples)
}

fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn assert_loaded<'s>(loaded: &Loaded, samples: impl IntoIterator<Item = &'s Sample>) {
    let samples: Vec<_> = samples.into_iter().collect();
    assert_eq!(loaded.views.len(), samples.len());
    for sample in samples {
        assert!(loaded.to_vec(&sample.name).expect("loaded") == sample.bytes, "{}", sample.name);
    }
}

fn assert_read(sample: &Sample, memory: Option<&Buffer>) {
    let bytes = memory.map_or(&[][..], |memory| memory.bytes().expect("private memory"));
    assert!(bytes == sample.bytes, "{}", sample.name);
}

#[test]
fn tensors_are_loaded_into_every_kind_of_buffer() {
    let (memory, model, samples) = model(&[3 * MIB + 1, 0, 5, 700 * KIB, 9]);
    for kind in [Kind::Any, Kind::DmaBuf, Kind::Memfd, Kind::Private] {
        let told = Arc::new(AtomicU64::new(0));
        let last = Arc::clone(&told);
        let loader = model.loader().kind(kind);
        let loader = loader.progress(move |now| last.store(now.done, Ordering::Relaxed));
        let loaded = match loader.load() {
            Err(Error::Load { source: dmabuf_dio::Error::Unavailable { .. }, .. }) => {
                assert!(kind == Kind::DmaBuf && DmaBuf::alloc(1).is_err(), "{kind:?}");
                continue;
            }
            loaded => loaded.expect("loaded"),
        };
        assert_loaded(&loaded, &samples);
        let report = loaded.buffers[0].report().expect("a report");
        assert_eq!((report.mode, report.buffer), (Mode::Fetched, Some(loaded.buffers[0].kind())));
        let all = model.tensors()[0].range.start..memory.bytes.len() as u64;
        assert_eq!(memory.asked(), std::slice::from_ref(&all));
        assert_eq!(told.load(Ordering::Relaxed), loaded.bytes());
    }
}

#[test]
fn tensors_that_are_wanted_are_fetched_alone() {
    let (memory, model, samples) = model(&[MIB + 1; 30]);
    let range = |number: usize| model.tensors()[number].range.clone();
    let wanted = [&samples[3], &samples[4], &samples[20], &samples[22]];
    let loader = model.loader().kind(Kind::Memfd).only(wanted.map(|sample| sample.name.clone()));
    assert_loaded(&loader.load().expect("loaded"), wanted);
    let apart = [range(3).start..range(4).end, range(20), range(22)];
    assert_eq!(memory.asked(), apart);
    // So much costs as little as a request.
    let (memory, model, samples) = self::model(&[MIB; 30]);
    let range = |number: usize| model.tensors()[number].range.clone();
    let wanted = [&samples[1], &samples[3], &samples[6]];
    let loader = model.loader().kind(Kind::Memfd).only(wanted.map(|sample| sample.name.clone()));
    assert_loaded(&loader.load().expect("loaded"), wanted);
    assert_eq!(memory.asked(), [range(1).start..range(3).end, range(6)]);
    assert_loaded(&loader.gap(0).load().expect("loaded"), wanted);
    assert_eq!(memory.asked(), [range(1), range(3), range(6)]);
}

#[test]
fn many_ranges_of_a_content_share_a_buffer() {
    let (memory, model, samples) = model(&[20 * KIB + 1; 200]);
    let odd: Vec<_> = samples.iter().skip(1).step_by(2).collect();
    let bytes = odd.iter().map(|sample| sample.bytes.len() as u64).sum::<u64>();
    let loader = model.loader().gap(0).only(odd.iter().map(|sample| sample.name.clone()));
    for kind in [Kind::Memfd, Kind::Any, Kind::Private] {
        let told = Arc::new(Mutex::new(0));
        let last = Arc::clone(&told);
        let loader = loader.clone().kind(kind).progress(move |now| {
            let mut before = last.lock().expect("told");
            assert!(now.done >= *before && now.total == bytes);
            *before = now.done;
        });
        let loaded = loader.load().expect("loaded");
        assert_loaded(&loaded, odd.iter().copied());
        assert_eq!(loaded.buffers.len(), if kind == Kind::Private { 100 } else { 1 });
        assert_eq!((loaded.bytes(), *told.lock().expect("told")), (bytes, bytes));
        let asked = memory.asked();
        assert_eq!((asked.len(), total(&asked)), (100, bytes));
        for view in &loaded.views {
            let tensor = model.tensor(&view.name).expect("listed");
            assert_eq!(view.offset % 4096, tensor.range.start % 4096, "{}", view.name);
        }
        if kind == Kind::Memfd {
            let fetched = loaded.buffers[0].report().and_then(|report| report.fetched);
            assert_eq!(fetched.map(|all| (all.requests, all.bytes)), Some((100, bytes)));
        }
    }
    memory.break_at(model.tensor("t101").expect("listed").range.end - 1, u32::MAX);
    for kind in [Kind::Memfd, Kind::Private] {
        let error = loader.clone().kind(kind).load().expect_err("broken");
        assert!(
            matches!(error, Error::Load { source: dmabuf_dio::Error::Content { .. }, .. }),
            "{error}"
        );
    }
}

#[test]
fn failed_range_is_an_error_with_its_place() {
    let (memory, model, samples) = model(&[2 * MIB; 12]);
    let broken = model.tensors()[7].range.start + 5;
    memory.break_at(broken, 1);
    let error = model.loader().kind(Kind::Memfd).load().expect_err("broken");
    let Error::Load { path, source } = &error else { panic!("{error}") };
    assert_eq!(path.to_str(), Some("store://of/model.safetensors"));
    let dmabuf_dio::Error::Content { offset, .. } = source else { panic!("{source}") };
    assert_eq!(*offset, broken);
    assert_eq!(error.to_string().matches("store://").count(), 1, "{error}");
    assert_loaded(&model.loader().kind(Kind::Memfd).load().expect("the next time"), &samples);

    // Its tensor alone, for a reader
    memory.break_at(broken, u32::MAX);
    let reader = Reader::new(Arc::clone(&model));
    for (number, item) in reader.iter().enumerate() {
        match item {
            Ok((_, memory)) => assert_read(&samples[number], memory.as_ref()),
            Err(Error::Load { source: dmabuf_dio::Error::Content { offset, .. }, .. }) => {
                assert_eq!((number, offset), (7, broken));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(reader.get(7, &never()).is_err());
    memory.break_at(broken, 0);
    assert_read(&samples[7], reader.get(7, &never()).expect("the next time").as_ref());
}

#[test]
fn reader_fetches_every_byte_once_and_ahead() {
    let lens: Vec<_> =
        (0..60).map(|number| if number % 7 == 3 { number } else { MIB + number * 4099 }).collect();
    let (memory, model, samples) = model(&lens);
    let bytes: u64 = lens.iter().sum();
    // A step is a quarter of the window, at least 4 MiB.
    for (window, most) in [(None, 3), (Some(32 * MIB), 16), (Some(MIB), 60)] {
        let reader = Reader::with(Arc::clone(&model), window, &Options::default());
        for (number, item) in reader.iter().enumerate() {
            let (tensor, memory) = item.expect("read");
            assert_eq!(tensor.name, samples[number].name);
            assert_read(&samples[number], memory.as_ref());
        }
        let (report, asked) = (reader.report(), memory.asked());
        assert_eq!(
            (report.requested, report.read, report.dropped),
            (bytes, bytes, 0),
            "{report:?}"
        );
        assert_eq!(total(&asked), bytes);
        assert!(asked.len() <= most, "{} requests with a window of {window:?}", asked.len());
        assert!(asked.windows(2).all(|two| two[0].end <= two[1].start), "{asked:?}");
    }
    let reader = Reader::new(Arc::clone(&model));
    thread::scope(|scope| {
        for start in 0..4 {
            let (reader, samples) = (&reader, &samples);
            scope.spawn(move || {
                for number in (start..60).step_by(4) {
                    let memory = reader.get(number, &never()).expect("read");
                    assert_read(&samples[number], memory.as_ref());
                }
            });
        }
    });
}

#[test]
fn small_tensors_in_order_take_few_requests() {
    let (memory, model, samples) = model(&[64 * KIB; 400]);
    let reader = Reader::new(Arc::clone(&model));
    for (number, sample) in samples.iter().enumerate() {
        assert_read(sample, reader.get(number, &never()).expect("read").as_ref());
    }
    let asked = memory.asked();
    assert!(asked.len() <= 32, "{} requests", asked.len());
    assert_eq!(total(&asked), 400 * 64 * KIB);
    // A program that uses few of them reads at most twice as much.
    let reader = Reader::new(Arc::clone(&model));
    for (number, sample) in samples.iter().enumerate().take(40) {
        assert_read(sample, reader.get(number, &never()).expect("read").as_ref());
    }
    drop(reader);
    assert!(total(&memory.asked()) <= 80 * 64 * KIB);
}

#[test]
fn reader_fetches_what_is_announced_with_small_gaps() {
    let (memory, model, samples) = model(&[300 * KIB; 100]);
    let reader = Reader::new(Arc::clone(&model));
    // Three of four are wanted at first, then one of ten.
    for (numbers, gaps) in [
        ((0..50).filter(|number| number % 4 != 2).collect::<Vec<_>>(), true),
        ((50..100).step_by(10).collect(), false),
    ] {
        for (item, &number) in reader.iter_of(numbers.clone()).zip(&numbers) {
            assert_read(&samples[number], item.expect("read").1.as_ref());
        }
        let asked = memory.asked();
        let wanted = numbers.len() as u64 * 300 * KIB;
        if gaps {
            assert!(asked.len() <= 3, "{asked:?}");
            assert!(total(&asked) <= wanted + 13 * 300 * KIB, "{asked:?}");
        } else {
            assert_eq!((asked.len(), total(&asked)), (5, wanted));
        }
    }
}

/// The bytes of columns of a matrix.
fn columns(sample: &Sample, range: Range<usize>) -> Vec<u8> {
    let row = sample.bytes.len() / sample.shape[0] as usize;
    sample.bytes.chunks(row).flat_map(|row| row[range.clone()].iter().copied()).collect()
}

#[test]
fn columns_are_fetched_together_where_that_is_cheaper() {
    let near = Sample::new("near", Dtype::U8, &[300, 100_000]);
    let wide = Sample::new("wide", Dtype::U8, &[12, 4_000_000]);
    let (memory, model, samples) = of_samples(&[near, wide]);
    let reader = Reader::new(Arc::clone(&model));
    for (sample, range, is_sparse) in [
        (&samples[0], 0..1, false),
        (&samples[0], 99_000..100_000, false),
        (&samples[0], 3..99_999, false),
        (&samples[1], 5..6, true),
        (&samples[1], 1_000_000..2_000_000, true),
        (&samples[1], 10..3_999_990, false),
    ] {
        let number = model.index_of(&sample.name).expect("listed");
        let part = Part::whole(number).take(1, range.start as u64..range.end as u64);
        let found = reader.part(&part, &never()).expect("read").expect("bytes");
        assert!(
            found.bytes().expect("private memory") == columns(sample, range.clone()),
            "{range:?}"
        );
        let (asked, tensor) = (memory.asked(), &model.tensors()[number]);
        let bytes = (range.end - range.start) as u64 * sample.shape[0];
        if is_sparse {
            assert_eq!((asked.len() as u64, total(&asked)), (sample.shape[0], bytes), "{range:?}");
        } else {
            assert!(total(&asked) <= tensor.len(), "{range:?}");
            assert!(asked.len() <= 8, "{range:?}: {} requests", asked.len());
        }
    }
    memory.break_at(model.tensors()[1].range.end - 3_000_000, 1);
    let part = Part::whole(1).take(1, 1_000_000..2_000_000);
    let error = reader.part(&part, &never()).expect_err("broken");
    assert!(
        matches!(error, Error::Load { source: dmabuf_dio::Error::Content { .. }, .. }),
        "{error}"
    );
    let found = reader.part(&part, &never()).expect("the next time").expect("bytes");
    assert!(found.bytes().expect("private memory") == columns(&samples[1], 1_000_000..2_000_000));
}

#[test]
fn ranks_fetch_their_parts() {
    let samples: Vec<_> = (0..6)
        .map(|number| Sample::new(&format!("{number}"), Dtype::U8, &[64, 40_000 + 8 * number]))
        .collect();
    let (memory, model, samples) = of_samples(&samples);
    for split in [Split::ROWS, Split::COLUMNS] {
        for rank in 0..4 {
            let shard = Shard::new(rank, 4).expect("a rank");
            let parts: Vec<_> =
                (0..6).map(|number| shard.part(&model, number, &split).expect("a part")).collect();
            let reader = Reader::of_parts(Arc::clone(&model), &parts, None, &Options::default());
            let reader = reader.expect("a reader");
            for (item, sample) in reader.iter().zip(&samples) {
                let found = item.expect("read").1.expect("bytes");
                let (row, rank) = (sample.shape[1] as usize, rank as usize);
                let expected = if split == Split::ROWS {
                    sample.bytes[16 * rank * row..16 * (rank + 1) * row].to_vec()
                } else {
                    columns(sample, rank * row / 4..(rank + 1) * row / 4)
                };
                assert!(found.bytes().expect("private memory") == expected, "{}", sample.name);
            }
            let asked = memory.asked();
            assert!(asked.len() <= 6, "{split:?}: {asked:?}");
            assert_eq!(reader.report().read, total(&asked));
        }
    }
}

#[test]
fn waiting_for_a_content_is_cancelled() {
    type Call = Box<dyn Fn(&CancelToken) -> Result<(), Error> + Send>;
    let (memory, model, _) = model(&[MIB; 4]);
    memory.stall();
    let reader = Arc::new(Reader::new(Arc::clone(&model)));
    let part = Part::whole(1).take(0, 5..9);
    let calls: [Call; 3] = [
        Box::new({
            let model = Arc::clone(&model);
            move |cancel| model.loader().cancel(cancel.clone()).load().map(drop)
        }),
        Box::new({
            let reader = Arc::clone(&reader);
            move |cancel| reader.get(2, cancel).map(drop)
        }),
        Box::new(move |cancel| reader.part(&part, cancel).map(drop)),
    ];
    for call in calls {
        memory.stall();
        let token = CancelToken::new();
        let calling = {
            let token = token.clone();
            thread::spawn(move || call(&token))
        };
        memory.wait_for_stall();
        token.cancel();
        let error = calling.join().expect("no panic").expect_err("cancelled");
        assert!(
            matches!(error, Error::Load { source: dmabuf_dio::Error::Cancelled { .. }, .. }),
            "{error}"
        );
    }
}

/// What a call in another thread returns; fails if it does not come back.
fn returned<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || sender.send(call()));
    receiver.recv_timeout(std::time::Duration::from_secs(120)).expect("it waits for ever")
}

#[test]
fn read_ahead_that_panics_leaves_nobody_waiting() {
    let (memory, model, samples) = model(&[MIB; 40]);
    let reader = Arc::new(Reader::with(Arc::clone(&model), Some(64 * MIB), &Options::default()));
    let last = model.tensors().len() - 1;
    let (sender, panics) = std::sync::mpsc::channel();
    memory.call_at(model.tensors()[last].range.start, move || {
        sender.send(()).expect("somebody waits");
        panic!("as a content may");
    });
    (0..=last).for_each(|number| reader.want(number));
    for (number, sample) in samples.iter().enumerate() {
        let ours = Arc::clone(&reader);
        let found = returned(move || ours.get(number, &never()));
        assert_read(sample, found.expect("read").as_ref());
    }
    panics.try_recv().expect("it was read ahead");
    // What a program reads in order is read ahead again.
    let before = reader.report().reads;
    for _ in 0..2 {
        let all: Vec<_> = reader.iter().map(|item| item.expect("read").1).collect();
        all.iter().zip(&samples).for_each(|(memory, sample)| assert_read(sample, memory.as_ref()));
    }
    assert!(reader.report().reads - before < 80, "{:?}", reader.report());
}

#[test]
fn request_that_panics_leaves_no_other_waiting() {
    let (memory, model, samples) = model(&[MIB; 2]);
    let reader = Arc::new(Reader::with(Arc::clone(&model), Some(0), &Options::default()));
    let (sender, begun) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel();
    memory.call_at(model.tensors()[0].range.start, move || {
        sender.send(()).expect("somebody waits");
        may_go.recv().expect("it may go on");
        panic!("as a content may");
    });
    let ours = Arc::clone(&reader);
    let panicking = thread::spawn(move || ours.get(0, &never()).map(drop));
    begun.recv().expect("it reads");
    let ours = Arc::clone(&reader);
    let waiting = thread::spawn(move || returned(move || ours.get(0, &never())));
    go.send(()).expect("it waits");
    assert!(panicking.join().is_err(), "its own panic is not hidden");
    let found = waiting.join().expect("it comes back").expect("read");
    assert_read(&samples[0], found.as_ref());
}
