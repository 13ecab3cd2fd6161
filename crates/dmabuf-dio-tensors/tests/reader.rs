// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tensors one by one: their bytes, and what is read for them.

mod common;

use std::sync::Arc;
use std::thread;

use common::{Sample, in_two_files};
use dmabuf_dio::{CancelToken, Kind, Options};
use dmabuf_dio_tensors::{Error, Reader};

const MIB: u64 = 1 << 20;

fn check(sample: &Sample, memory: Option<&dmabuf_dio::Buffer>) {
    let bytes = memory.map_or(&[][..], |memory| memory.bytes().expect("private memory"));
    assert!(bytes == sample.bytes, "{}", sample.name);
}

fn lens(count: u64) -> Vec<u64> {
    (0..count).map(|number| if number % 7 == 3 { number } else { MIB + number * 4099 }).collect()
}

#[test]
fn tensors_come_in_every_order_and_from_many_threads() {
    let mut lens = lens(40);
    lens[5] = 0;
    let (_folder, model, samples) = in_two_files(&lens);
    for window in [None, Some(0), Some(1), Some(8 * MIB), Some(1 << 40)] {
        let reader = Reader::with(Arc::clone(&model), window, &Options::default());
        for (number, item) in reader.iter().enumerate() {
            let (tensor, mut memory) = item.expect("read");
            assert_eq!(tensor.name, samples[number].name);
            assert!(memory.as_ref().is_none_or(|memory| memory.kind() == Kind::Private));
            check(&samples[number], memory.as_ref());
            // What is changed here is seen by nobody else.
            if let Some(bytes) = memory.as_mut().and_then(dmabuf_dio::Buffer::bytes_mut) {
                bytes.fill(0);
            }
        }
        let report = reader.report();
        assert_eq!(report.requested, lens.iter().sum::<u64>());
        assert!(report.read <= report.requested + 1000 && report.dropped == 0, "{report:?}");
        let numbers: Vec<_> = (0..40).rev().collect();
        for (item, number) in reader.iter_of(numbers.clone()).zip(numbers) {
            check(&samples[number], item.expect("read").1.as_ref());
        }
        let next = std::sync::atomic::AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(sample) = samples.get(number) else { break };
                        let memory = reader.get(number, &CancelToken::new()).expect("read");
                        check(sample, memory.as_ref());
                    }
                });
            }
        });
    }
}

#[test]
fn failed_read_is_an_error_for_its_tensors_alone() {
    let (_folder, model, samples) = in_two_files(&[MIB; 16]);
    let path = model.files()[1].path().to_owned();
    let whole = std::fs::read(&path).expect("the file");
    let cut = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
    cut.set_len(whole.len() as u64 - 2 * MIB).expect("truncated");
    let reader = Reader::new(Arc::clone(&model));
    let mut failed = Vec::new();
    for (number, item) in reader.iter().enumerate() {
        match item {
            Ok((_, memory)) => check(&samples[number], memory.as_ref()),
            Err(Error::Load { path: named, .. }) => {
                assert_eq!(named, path);
                failed.push(number);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(failed, [14, 15]);
    std::fs::write(&path, whole).expect("whole again");
    for number in failed {
        let memory = reader.get(number, &CancelToken::new()).expect("read");
        check(&samples[number], memory.as_ref());
    }
}

#[test]
fn cancelled_request_ends_and_the_next_reads() {
    let (_folder, model, samples) = in_two_files(&[MIB; 4]);
    let reader = Reader::new(model);
    let token = CancelToken::new();
    token.cancel();
    let error = reader.get(0, &token).expect_err("cancelled");
    assert!(matches!(error, Error::Load { source: dmabuf_dio::Error::Cancelled { .. }, .. }));
    check(&samples[0], reader.get(0, &CancelToken::new()).expect("read").as_ref());
    assert!(matches!(reader.get(4, &token), Err(Error::NoNumber { number: 4, count: 4 })));
}
