// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saves of what a reader gives: every byte arrives, and a failed save leaves the old file alone.

use std::io::{BufReader, Error as IoError, Read};
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::common::{assert_same, content, folder, page};
use crate::filter::{Call, failing};
use dmabuf_dio::{Backend, CancelToken, Errno, Error, Saver};

/// Neither a whole page nor a whole block; longer than the window of a test.
const LEN: usize = (3 << 20) + 4097;

/// A saver with a small window: three requests of 64 KiB.
fn saver(path: &Path) -> Saver<'static> {
    Saver::new(path).block_size(65_536).queue_depth(1)
}

/// Runs a save that fails with an old file in its place, which has to stay, alone. Returns the error.
fn failed(save: impl FnOnce(&Path) -> Result<(), Error>) -> Error {
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::write(&path, "before").expect("write");
    let error = save(&path).expect_err("it fails");
    assert_eq!(std::fs::read(&path).expect("read"), b"before", "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1, "{error}");
    assert!(error.keeps_old_file());
    error
}

#[test]
fn every_byte_of_a_reader_is_saved() {
    let folder = folder();
    let path = folder.path().join("file");
    for len in [1, 511, 4096, page() * 2 + 1, 65_536, LEN] {
        let bytes = content(len, len as u64);
        for direct in [true, false] {
            // Chained slices whose ends are nowhere aligned.
            let (head, rest) = bytes.split_at(len / 3);
            let source = head.chain(BufReader::with_capacity(777, rest));
            let report = saver(&path).direct(direct).save_from(source, len as u64).expect("save");
            assert_same("saved", &std::fs::read(&path).expect("read"), &bytes);
            assert_eq!((report.bytes, report.copied_bytes), (len as u64, len as u64));
            assert_eq!((report.backend, report.buffer), (None, None));
        }
        // By the default sizes.
        Saver::new(&path).save_from(&bytes[..], len as u64).expect("save");
        assert_same("saved", &std::fs::read(&path).expect("read"), &bytes);
    }
}

#[test]
fn no_more_is_read_than_is_saved() {
    let folder = folder();
    let path = folder.path().join("file");
    let bytes = content(LEN, 1);
    let mut source = &bytes[..];
    saver(&path).save_from(&mut source, 1_000_001).expect("save");
    assert_same("left", source, &bytes[1_000_001..]);
    assert_same("saved", &std::fs::read(&path).expect("read"), &bytes[..1_000_001]);
}

#[test]
fn open_file_is_written_in_place_from_a_reader() {
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![1; LEN]).expect("write");
    let file = std::fs::File::options().read(true).write(true).open(&path).expect("open");
    let bytes = content(1_000_001, 2);
    let saver = Saver::from(&file).block_size(65_536).queue_depth(2).offset(5001);
    saver.save_from(&bytes[..], bytes.len() as u64).expect("save");
    let found = std::fs::read(&path).expect("read");
    assert_same("before", &found[..5001], &[1; 5001]);
    assert_same("saved", &found[5001..5001 + bytes.len()], &bytes);
    assert_same("behind", &found[5001 + bytes.len()..], &vec![1; LEN - 5001 - bytes.len()]);
}

#[test]
fn save_from_works_without_io_uring() {
    let folder = folder();
    let path = folder.path().join("file");
    let bytes = content(LEN, 3);
    failing(&[Call::any(libc::SYS_io_uring_setup)], libc::EPERM, || {
        let report = saver(&path).save_from(&bytes[..], LEN as u64).expect("save");
        assert_same("saved", &std::fs::read(&path).expect("read"), &bytes);
        assert!(report.notes.iter().any(|note| note.contains("one request")), "{report:?}");
    });
}

#[test]
fn progress_of_a_save_runs_from_zero_to_the_total() {
    let folder = folder();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&seen);
    let saver = saver(&folder.path().join("file"))
        .progress(move |progress| list.lock().expect("one thread").push(progress));
    saver.save_from(&content(LEN, 4)[..], LEN as u64).expect("save");
    let seen = seen.lock().expect("it is over");
    assert_eq!(seen.first().map(|first| (first.done, first.total)), Some((0, LEN as u64)));
    assert_eq!(seen.last().map(|last| last.done), Some(LEN as u64));
    assert!(seen.len() > 10 && seen.is_sorted_by_key(|progress| progress.done));
}

#[test]
fn cancelled_save_keeps_the_old_file() {
    for before in [0, 1_000_000] {
        let error = failed(|path| {
            let token = CancelToken::new();
            let stop = token.clone();
            let saver = saver(path).cancel(token).progress(move |progress| {
                if progress.done >= before {
                    stop.cancel();
                }
            });
            saver.save_from(&content(LEN, 5)[..], LEN as u64).map(drop)
        });
        let Error::Cancelled { done, length, .. } = error else { panic!("{error}") };
        assert!((before..LEN as u64).contains(&done) && length == LEN as u64, "{done}");
    }
}

#[test]
fn failing_reader_keeps_the_old_file() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(IoError::from_raw_os_error(libc::EREMOTEIO))
        }
    }
    let bytes = content(1_000_001, 6);
    let short = failed(|path| saver(path).save_from(&bytes[..], LEN as u64).map(drop));
    let broken = bytes.chain(BufReader::new(Broken));
    let broken = failed(|path| saver(path).save_from(broken, LEN as u64).map(drop));
    for (error, number) in [(short, libc::ENODATA), (broken, libc::EREMOTEIO)] {
        let Error::Source { offset, length, .. } = &error else { panic!("{error}") };
        assert_eq!((*offset, *length, error.number().raw()), (1_000_001, LEN as u64, number));
        assert!(error.to_string().contains("at byte 1000001"), "{error}");
    }
}

#[test]
fn full_disk_keeps_the_old_file() {
    // The space is reserved, and then, where that is impossible, missing when the end is written.
    for call in [libc::SYS_fallocate, libc::SYS_pwrite64] {
        failing(&[Call::any(call)], libc::ENOSPC, || {
            let bytes = content(LEN, 7);
            let error = failed(|path| saver(path).save_from(&bytes[..], LEN as u64).map(drop));
            assert_eq!(error.errno(), Some(Errno::NOSPC), "{error}");
            assert!(error.hint().to_string().contains("free space"), "{}", error.hint());
        });
    }
}

#[test]
fn reader_is_saved_without_a_backend() {
    let error =
        failed(|path| saver(path).backend(Backend::Memfd).save_from(&b"after"[..], 5).map(drop));
    let Error::Unavailable { asked: Some(Backend::Memfd), .. } = error else { panic!("{error}") };
    let error = failed(|path| saver(path).save_from(&b""[..], 0).map(drop));
    assert!(matches!(error, Error::EmptyRange { .. }), "{error}");
}

#[test]
fn error_says_whether_the_old_file_is_kept() {
    let folder = folder();
    let path = folder.path().join("file");
    failing(&[Call::any(libc::SYS_fsync)], libc::EREMOTEIO, || {
        let error = Saver::new(&path).save_from(&b"after"[..], 5).expect_err("not durable");
        assert_eq!(std::fs::read(&path).expect("read"), b"after");
        assert!(!error.keeps_old_file(), "{error}");
    });
}
