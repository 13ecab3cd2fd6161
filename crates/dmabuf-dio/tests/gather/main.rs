// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gathering pieces of a file, with every available backend: each byte of the buffer is compared
//! with the expected one.

#[path = "../common/mod.rs"]
mod common;

mod bad;
mod device;
mod end;
mod model;
mod polled;
mod refused;

use common::{buffers, bytes, file_of, fill, folder};
use dmabuf_dio::gather::{Found, Gatherer, Piece};
use dmabuf_dio::{Backend, Buffer, CancelToken, Error, Mode};

use crate::model::{Random, check, each, piece};

#[test]
fn pieces_arrive_at_their_offsets() {
    let folder = folder();
    let (path, content) = file_of(&folder, 1 << 20);
    each(1 << 20, |buf, backend| {
        let mut gathering = Gatherer::new(&path).backend(backend).open(buf).expect("open");
        assert_eq!(gathering.backend(), backend);
        let pieces = [piece(8192, 0, 4096), piece(0, 4096, 16_384), piece(1_044_480, 65_536, 4096)];
        let report = check(&mut gathering, buf, &content, &pieces, 0..0);
        assert_eq!((report.pieces, report.requests, report.failed), (3, 3, 0));
        assert_eq!(report.transfer.backend, Some(backend));
        assert_eq!(report.transfer.bytes, 24_576);
        if backend == Backend::Buffered {
            assert_ne!(report.transfer.mode, Mode::Direct, "{:?}", report.transfer);
        } else {
            assert_eq!(report.transfer.mode, Mode::Direct, "{:?}", report.transfer);
        }
        assert!(report.transfer.notes.is_empty(), "{:?}", report.transfer.notes);
        assert!(!report.polled);
    });
}

#[test]
fn empty_requests_and_pieces_read_nothing() {
    let folder = folder();
    let (path, content) = file_of(&folder, 8192);
    each(8192, |buf, backend| {
        let mut gathering = Gatherer::new(&path).backend(backend).open(buf).expect("open");
        let report = check(&mut gathering, buf, &content, &[], 0..0);
        assert_eq!((report.requests, report.transfer.bytes), (0, 0));
        // Anywhere, even beyond the file's end, or within another piece.
        let none = [piece(99_999, 8192, 0), piece(0, 0, 4096), piece(7, 3, 0), piece(0, 0, 0)];
        let report = check(&mut gathering, buf, &content, &none, 0..0);
        assert_eq!((report.requests, report.pieces), (1, 4));
        let gathered = gathering.read(&none[..1]).expect("read");
        assert_eq!(gathered.get(0), Some(Ok(Found { start: 8192, len: 0 })));
        assert_eq!(gathered.get(1), None);
    });
}

#[test]
fn random_pieces_arrive_exactly() {
    let folder = folder();
    let (path, content) = file_of(&folder, (2 << 20) + 777);
    each(1 << 20, |buf, backend| {
        let spare = 768 << 10..1 << 20;
        for seed in 0..8 {
            let mut random = Random::new(seed);
            let gatherer = Gatherer::new(&path).backend(backend).spare(spare.clone());
            let depth = [1, 2, 7, 128][random.below(4) as usize];
            let mut gathering =
                gatherer.queue_depth(depth).direct(seed % 4 != 3).open(buf).expect("open");
            for _ in 0..4 {
                let pieces = random.pieces(content.len() as u64, 768 << 10, 80);
                check(&mut gathering, buf, &content, &pieces, spare.clone());
            }
        }
    });
}

#[test]
fn neighbours_share_a_request() {
    let folder = folder();
    let (path, content) = file_of(&folder, 2 << 20);
    each(2 << 20, |buf, backend| {
        let mut gathering = Gatherer::new(&path).backend(backend).open(buf).expect("open");
        // Contiguous in the file and in the buffer: 256 KiB at a time.
        let all: Vec<_> = (0..512).map(|at| piece(at * 4096, at * 4096, 4096)).collect();
        let report = check(&mut gathering, buf, &content, &all, 0..0);
        assert_eq!((report.requests, report.shared), (8, 504));
        // The same holds in another order.
        let mut backwards = all.clone();
        backwards.reverse();
        let report = check(&mut gathering, buf, &content, &backwards, 0..0);
        assert_eq!((report.requests, report.shared), (8, 504));
        // Contiguous only in the buffer.
        let apart: Vec<_> = (0..64).map(|at| piece(at * 8192, at * 4096, 4096)).collect();
        let report = check(&mut gathering, buf, &content, &apart, 0..0);
        assert_eq!((report.requests, report.shared), (64, 0));
        // Contiguous only in the file.
        let apart: Vec<_> = (0..64).map(|at| piece(at * 4096, at * 8192, 4096)).collect();
        let report = check(&mut gathering, buf, &content, &apart, 0..0);
        assert_eq!((report.requests, report.shared), (64, 0));
        // A piece longer than a request needs several.
        let report = check(&mut gathering, buf, &content, &[piece(0, 4096, 1 << 20)], 0..0);
        assert_eq!((report.requests, report.shared), (4, 0));
    });
}

#[test]
fn repeats_are_read_once() {
    let folder = folder();
    let (path, content) = file_of(&folder, 65_536);
    each(65_536, |buf, backend| {
        let spare = 32_768..65_536;
        let gatherer = Gatherer::new(&path).backend(backend).spare(spare.clone());
        let mut gathering = gatherer.open(buf).expect("open");
        let (one, other) = (piece(4096, 8192, 4096), piece(4096, 0, 4096));
        let report = check(&mut gathering, buf, &content, &[one, one, other, one], spare.clone());
        assert_eq!((report.requests, report.shared), (2, 2));
        let (one, other) = (piece(4097, 8192, 10), piece(4097, 0, 10));
        let report = check(&mut gathering, buf, &content, &[one, one, other, one], spare.clone());
        let aside = gathering.alignment() != (1, 1);
        assert_eq!(report.requests, if aside { 1 } else { 2 });
        assert_eq!(report.aside, if aside { 4 } else { 0 });
    });
}

#[test]
fn spare_bytes_hold_unaligned_pieces() {
    let folder = folder();
    let (path, content) = file_of(&folder, 1 << 20);
    each(1 << 20, |buf, backend| {
        let gatherer = Gatherer::new(&path).backend(backend);
        let mut gathering = gatherer.open(buf).expect("open");
        let (block, memory) = gathering.alignment();
        // Unaligned file offset, length and buffer offset.
        let pieces = [piece(100, 0, 4096), piece(12_288, 8192, 100), piece(65_536, 20_001, 4096)];
        let room = gathering.room(&pieces).expect("fit");
        assert_eq!(room, gatherer.room(&pieces).expect("fit"));
        if block == 1 {
            assert_eq!((room, memory), (0, 1));
            check(&mut gathering, buf, &content, &pieces, 0..0);
            return;
        }
        assert!(room >= 3 * block && room % block == 0, "{room}");
        let report = check(&mut gathering, buf, &content, &pieces, 0..0);
        assert_eq!((report.failed, report.requests), (3, 0));
        gathering.set_spare(65_536..65_536 + room).expect("spare");
        let report = check(&mut gathering, buf, &content, &pieces, 65_536..65_536 + room);
        assert_eq!((report.failed, report.aside, report.requests), (0, 3, 3));
        // One block too few, and an unaligned start.
        gathering.set_spare(65_537..65_536 + room).expect("spare");
        let report = check(&mut gathering, buf, &content, &pieces, 65_537..65_536 + room);
        assert_eq!(report.failed, 1);
        // Ten of a block, and ten of the next: one request.
        let rows: Vec<_> = (0..20).map(|at| piece(at * block / 10, at * block, 8)).collect();
        gathering.set_spare(1 << 19..1 << 20).expect("spare");
        let report = check(&mut gathering, buf, &content, &rows, 1 << 19..1 << 20);
        assert_eq!((report.requests, report.transfer.bytes), (1, 2 * block));
    });
}

#[test]
fn one_gathering_serves_many_calls_and_threads() {
    let folder = folder();
    let (path, content) = file_of(&folder, 1 << 20);
    each(1 << 20, |buf, backend| {
        let mut gathering =
            Gatherer::new(&path).backend(backend).queue_depth(4).open(buf).expect("open");
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let pieces: Vec<_> =
                (0..50).map(|at| piece(random.below(256) * 4096, at * 8192, 4096)).collect();
            let mut read = || check(&mut gathering, buf, &content, &pieces, 0..0);
            let report = match seed % 3 {
                0 => std::thread::scope(|scope| scope.spawn(read).join().expect("a thread")),
                _ => read(),
            };
            assert_eq!((report.failed, report.transfer.backend), (0, Some(backend)));
        }
    });
}

#[test]
fn cancelled_gathering_can_be_used_again() {
    let folder = folder();
    let (path, content) = file_of(&folder, 1 << 20);
    each(1 << 20, |buf, backend| {
        let token = CancelToken::new();
        let on = token.clone();
        let gatherer = Gatherer::new(&path).backend(backend).queue_depth(1).cancel(token);
        let stop = gatherer.clone().progress(move |progress| {
            if progress.done >= 8192 {
                on.cancel();
            }
        });
        let pieces: Vec<_> = (0..100).map(|at| piece((99 - at) * 4096, at * 4096, 4096)).collect();
        let error = stop.open(buf).expect("open").read(&pieces).map(|_| ()).expect_err("cancelled");
        let Error::Cancelled { done, length: 409_600, .. } = error else { panic!("{error}") };
        assert!((8192..204_800).contains(&done), "{backend}: {done}");
        let error = gatherer.open(buf).expect("open").read(&pieces).map(|_| ()).expect_err("still");
        assert!(matches!(error, Error::Cancelled { done: 0, .. }), "{error}");
        let mut gathering = gatherer.cancel(CancelToken::new()).open(buf).expect("open");
        check(&mut gathering, buf, &content, &pieces, 0..0);
    });
}

#[test]
fn last_batch_can_be_cancelled_by_its_progress() {
    let folder = folder();
    let (path, _) = file_of(&folder, 65_536);
    each(65_536, |buf, backend| {
        let token = CancelToken::new();
        let on = token.clone();
        let gatherer = Gatherer::new(&path).backend(backend).queue_depth(8).cancel(token);
        let gatherer = gatherer.progress(move |progress| {
            if progress.done > 0 {
                on.cancel();
            }
        });
        let pieces: Vec<_> = (0..4).map(|at| piece(at * 8192, at * 4096, 4096)).collect();
        let result = gatherer.open(buf).expect("open").read(&pieces).map(|_| ());
        assert!(
            matches!(result, Err(Error::Cancelled { done: 4096.., .. })),
            "{backend}: {result:?}"
        );
    });
}

#[test]
fn progress_reaches_the_total() {
    use std::sync::{Arc, Mutex};
    let folder = folder();
    let (path, _) = file_of(&folder, 65_536);
    each(65_536, |buf, backend| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let gatherer = Gatherer::new(&path).backend(backend).queue_depth(1);
        let gatherer = gatherer.progress(move |progress| {
            told.lock().expect("no panic").push((progress.done, progress.total));
        });
        let same = piece(4096, 0, 4096);
        let mut gathering = gatherer.open(buf).expect("open");
        gathering.read(&[same, piece(0, 8192, 4096), same]).expect("read");
        let seen = seen.lock().expect("no panic");
        assert_eq!((seen.first(), seen.last()), (Some(&(0, 12_288)), Some(&(12_288, 12_288))));
        assert!(seen.is_sorted(), "{backend}: {seen:?}");
    });
}

#[test]
fn buffer_may_be_dropped_before_the_gathering() {
    let folder = folder();
    let (path, content) = file_of(&folder, 8192);
    for (buf, backends) in buffers(8192) {
        for backend in backends.into_iter().filter(|one| model::gathers(buf.kind(), *one)) {
            let other = buf.try_clone().expect("a second descriptor");
            let first = buf.try_clone().expect("a third");
            let mut gathering = Gatherer::new(&path).backend(backend).open(&first).expect("open");
            drop(first);
            check(&mut gathering, &other, &content, &[piece(0, 0, 4096)], 0..0);
        }
    }
}

#[test]
fn buffer_of_many_slots_is_gathered() {
    let folder = folder();
    let (path, content) = file_of(&folder, 4 << 20);
    each(24 << 20, |buf, backend| {
        let mut gathering = Gatherer::new(&path).backend(backend).open(buf).expect("open");
        // Across every possible border of 256 KiB.
        let pieces: Vec<_> =
            (1..96).map(|at| piece(at % 300 * 8192, (at << 18) - 4096, 8192)).collect();
        check(&mut gathering, buf, &content, &pieces, 0..0);
    });
}

#[test]
fn page_cache_is_checked_only_for_many_bytes() {
    let folder = folder();
    let (path, content) = file_of(&folder, 256 * common::page());
    each(1 << 20, |buf, backend| {
        std::fs::read(&path).expect("into the page cache");
        let mut gathering = Gatherer::new(&path).backend(backend).open(buf).expect("open");
        let pieces: Vec<_> = (0..64).map(|at| piece(at * 8192, at * 8192, 4096)).collect();
        let all = check(&mut gathering, buf, &content, &pieces, 0..0).transfer;
        let few = check(&mut gathering, buf, &content, &pieces[..3], 0..0).transfer;
        assert!(all.page_cache_grown.is_some() && few.page_cache_grown.is_none(), "{few:?}");
        common::write_cold(&path, &content);
        let mut gathering = Gatherer::new(&path).backend(backend).open(buf).expect("open");
        let few = check(&mut gathering, buf, &content, &pieces[..3], 0..0).transfer;
        assert!(few.page_cache_grown.is_some(), "{few:?}");
    });
}

#[test]
fn buffered_gather_arrives_exactly() {
    let folder = folder();
    let (path, content) = file_of(&folder, 100_000);
    let memory = std::path::Path::new("/dev/shm").is_dir().then(|| {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, &content).expect("write");
        (folder, path)
    });
    each(65_536, |buf, backend| {
        let pieces = [piece(1, 1, 1), piece(99_000, 7001, 1000), piece(5, 9000, 20_000)];
        let gatherer = Gatherer::new(&path).backend(backend).direct(false);
        let mut gathering = gatherer.open(buf).expect("open");
        assert_eq!(gathering.alignment(), (1, 1));
        let report = check(&mut gathering, buf, &content, &pieces, 0..0);
        assert_ne!(report.transfer.mode, Mode::Direct, "{report:?}");
        if let Some((_, path)) = &memory {
            let mut gathering = Gatherer::new(path).backend(backend).open(buf).expect("open");
            assert_eq!(gathering.alignment(), (1, 1));
            let report = check(&mut gathering, buf, &content, &pieces, 0..0);
            let said = backend == Backend::Buffered
                || report.transfer.notes.iter().any(|note| {
                    note.contains("tmpfs") || note.contains("does not support O_DIRECT")
                });
            assert!(said, "{:?}", report.transfer.notes);
        }
    });
}

#[test]
fn gather_reads_from_a_descriptor() {
    use std::os::fd::AsFd as _;
    let folder = folder();
    let (path, content) = file_of(&folder, 8192);
    let file = std::fs::File::open(&path).expect("open");
    let mut buf = Buffer::memfd(8192).expect("a memfd");
    fill(&mut buf, 0);
    let mut gathering = Gatherer::from_fd(file.as_fd()).open(&buf).expect("open");
    drop(file);
    gathering.read(&[piece(4096, 0, 4096)]).expect("read");
    assert_eq!(bytes(&buf)[..4096], content[4096..]);
    let _: Piece = Piece::default();
}
