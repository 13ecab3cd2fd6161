// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress and cancellation.

use std::sync::{Arc, Mutex};

use crate::common::{backends, file_of, folder, page};
use dmabuf_dio::{Backend, CancelToken, Error, Loader, Progress};

#[test]
fn progress_runs_from_zero_to_the_total() {
    let folder = folder();
    let (path, _) = file_of(&folder, 2_000_001);
    for backend in backends() {
        let seen = Arc::new(Mutex::new(Vec::<Progress>::new()));
        let list = Arc::clone(&seen);
        let loader = Loader::new(&path).backend(backend).block_size(65_536).offset(1).progress(
            move |progress| {
                list.lock().expect("one thread at a time").push(progress);
            },
        );
        loader.load().expect("load");
        let seen = seen.lock().expect("all threads are done");
        assert_eq!(seen.first().map(|first| (first.done, first.total)), Some((0, 2_000_000)));
        assert_eq!(seen.last().map(|last| last.done), Some(2_000_000), "{backend}");
        assert!(seen.windows(2).all(|pair| pair[0].done <= pair[1].done), "{backend}: {seen:?}");
    }
}

#[test]
fn load_cancelled_before_it_begins_fails() {
    let folder = folder();
    let (path, _) = file_of(&folder, 1 << 20);
    for backend in backends() {
        let token = CancelToken::new();
        token.cancel();
        let error =
            Loader::new(&path).backend(backend).cancel(token).load().expect_err("cancelled");
        assert!(matches!(error, Error::Cancelled { .. }), "{backend}: {error}");
    }
}

#[test]
fn load_cancelled_halfway_fails() {
    let folder = folder();
    let (path, _) = file_of(&folder, 8 << 20);
    for backend in backends() {
        let token = CancelToken::new();
        let stop = token.clone();
        let loader = Loader::new(&path)
            .backend(backend)
            .block_size(page() as u64)
            .queue_depth(1)
            .cancel(token)
            .progress(move |progress| {
                if progress.done > 0 {
                    stop.cancel();
                }
            });
        match loader.load() {
            Err(Error::Cancelled { done, length, .. }) => {
                assert!(done <= length, "{backend}: {done} of {length}");
            }
            Err(error) => panic!("{backend}: {error}"),
            // A single call is checked every 100 ms, and may be done before.
            Ok(_) => assert!(matches!(backend, Backend::Module | Backend::Heap), "{backend}"),
        }
    }
}
