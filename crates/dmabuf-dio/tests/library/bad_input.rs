// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bad input gets the matching error from every backend, and no data is lost.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;

use crate::common::{backends, buffers, bytes, dmabuf, file_of, fill, folder};
use dmabuf_dio::{Backend, Buffer, CancelToken, Direction, Error, Loader, Saver};

/// Loads with every backend and passes each error to `check`.
fn every_error(
    path: &Path,
    set: impl Fn(Loader<'static>) -> Loader<'static>,
    check: impl Fn(&Error),
) {
    let asked = backends().into_iter().map(Some).chain([None]);
    for backend in asked {
        let loader = set(Loader::new(path).backend(backend));
        let error = loader.load().expect_err("bad input");
        println!("{backend:?}: {error}\n    {}", error.hint());
        assert!(!error.hint().to_string().is_empty() && !error.hint().to_string().contains('\n'));
        check(&error);
    }
}

#[test]
fn missing_file_is_an_error() {
    let folder = folder();
    let path = folder.path().join("nothing");
    every_error(
        &path,
        |loader| loader,
        |error| {
            assert!(matches!(error, Error::Open { direction: Direction::Load, .. }));
            assert_eq!(error.errno().and_then(dmabuf_dio::Errno::name), Some("ENOENT"));
            assert!(error.to_string().contains("nothing"));
        },
    );
}

#[test]
fn directory_and_character_device_are_refused() {
    let folder = folder();
    for (path, what) in
        [(folder.path(), "a directory"), (Path::new("/dev/null"), "a character device")]
    {
        every_error(
            path,
            |loader| loader,
            |error| {
                assert!(
                    matches!(error, Error::NotAFile { found, .. } if *found == what),
                    "{error}"
                );
            },
        );
    }
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .expect("make a pipe");
    every_error(
        &pipe,
        |loader| loader,
        |error| {
            assert!(matches!(error, Error::NotAFile { found: "a pipe", .. }), "{error}");
        },
    );
}

#[test]
fn empty_file_is_an_error() {
    let folder = folder();
    let (path, _) = file_of(&folder, 0);
    every_error(
        &path,
        |loader| loader,
        |error| {
            assert!(matches!(error, Error::EmptyFile { .. }), "{error}");
        },
    );
    // Files of /proc have no length.
    every_error(
        Path::new("/proc/cpuinfo"),
        |loader| loader,
        |error| {
            assert!(matches!(error, Error::EmptyFile { .. }), "{error}");
        },
    );
}

#[test]
fn length_zero_is_an_error_for_a_new_buffer() {
    let folder = folder();
    let (path, _) = file_of(&folder, 10);
    every_error(
        &path,
        |loader| loader.length(0),
        |error| {
            assert!(matches!(error, Error::EmptyRange { .. }), "{error}");
        },
    );
    let buf = Buffer::memfd(4096).expect("a memfd");
    let target = folder.path().join("target");
    std::fs::write(&target, "before").expect("write");
    let error = Saver::new(&target).save(&buf, 5..5).expect_err("empty");
    assert!(matches!(error, Error::EmptyRange { direction: Direction::Save, .. }), "{error}");
    assert_eq!(std::fs::read(&target).expect("read"), b"before");
}

#[test]
fn range_beyond_the_file_is_an_error() {
    let folder = folder();
    let (path, _) = file_of(&folder, 10_000);
    for (offset, length) in [(0, 10_001), (9_999, 2), (10_000, 1), (20_000, 1)] {
        every_error(
            &path,
            |loader| loader.offset(offset).length(length),
            |error| {
                assert!(matches!(error, Error::ShortFile { end: 10_000, done: 0, .. }), "{error}");
            },
        );
    }
    every_error(
        &path,
        |loader| loader.offset(10_000),
        |error| {
            assert!(matches!(error, Error::ShortFile { end: 10_000, .. }), "{error}");
        },
    );
}

#[test]
fn overflowing_range_is_an_error() {
    let folder = folder();
    let (path, _) = file_of(&folder, 10);
    for (offset, length) in
        [(u64::MAX, 1), (1, u64::MAX), (i64::MAX as u64, 1), (u64::MAX, u64::MAX)]
    {
        every_error(
            &path,
            |loader| loader.offset(offset).length(length),
            |error| {
                assert!(matches!(error, Error::RangeOverflow { .. }), "{error}");
            },
        );
    }
    for (buf, _) in buffers(4096) {
        for at in [u64::MAX, u64::MAX - 5] {
            let error = Loader::new(&path).load_into(&buf, at).expect_err("overflow");
            assert!(matches!(error, Error::RangeOverflow { .. } | Error::RangeBeyondBuffer { .. }));
        }
        let target = folder.path().join("target");
        let error = Saver::new(&target).save(&buf, 0..=u64::MAX).expect_err("overflow");
        assert!(matches!(error, Error::RangeOverflow { .. }), "{error}");
        assert!(!target.exists());
    }
}

#[test]
fn range_beyond_the_buffer_is_an_error() {
    let folder = folder();
    let (path, _) = file_of(&folder, 5000);
    for (mut buf, backends) in buffers(8192) {
        let len = buf.len();
        let beyond = |error: &Error| matches!(error, Error::RangeBeyondBuffer { buffer, .. } if *buffer == len);
        fill(&mut buf, 0x5a);
        for backend in backends {
            let loader = Loader::new(&path).backend(backend);
            let error = loader.load_into(&buf, len - 4999).expect_err("too long");
            assert!(beyond(&error), "{error}");
            let target = folder.path().join("target");
            let saver = Saver::new(&target).backend(backend);
            let error = saver.save(&buf, 1..=len).expect_err("too long");
            assert!(beyond(&error), "{error}");
            assert!(!target.exists());
        }
        assert!(bytes(&buf).iter().all(|byte| *byte == 0x5a));
    }
}

#[test]
fn file_truncated_during_load_is_an_error() {
    let folder = folder();
    for backend in backends() {
        let (path, _) = file_of(&folder, 1 << 20);
        let short = path.clone();
        let loader =
            Loader::new(&path).backend(backend).block_size(65_536).queue_depth(1).progress(
                move |_| {
                    let file = File::options().write(true).open(&short).expect("open");
                    if file.metadata().expect("stat").len() > 300_000 {
                        file.set_len(300_000).expect("truncate");
                    }
                },
            );
        let error = loader.load().expect_err("truncated");
        let Error::ShortFile { end, done, length, .. } = error else {
            panic!("{backend}: {error}")
        };
        assert!(end <= 300_000 && done <= 300_000, "{backend}: {end} {done}");
        assert_eq!(length, 1 << 20);
    }
}

#[test]
fn file_truncated_below_the_offset_is_an_error() {
    let folder = folder();
    for backend in backends() {
        let (path, _) = file_of(&folder, 1 << 20);
        let short = path.clone();
        let loader = Loader::new(&path).backend(backend).offset(1 << 19).progress(move |_| {
            let file = File::options().write(true).open(&short).expect("open");
            file.set_len(300_000).expect("truncate");
        });
        let error = loader.load().expect_err("truncated");
        let Error::ShortFile { end: 300_000, offset, length, .. } = error else {
            panic!("{backend}: {error}")
        };
        assert_eq!((offset, length), (1 << 19, 1 << 19));
    }
}

#[test]
fn file_truncated_after_the_last_read_is_an_error() {
    let folder = folder();
    for backend in backends() {
        let (path, _) = file_of(&folder, 100_000);
        let short = path.clone();
        let loader = Loader::new(&path).backend(backend).progress(move |progress| {
            if progress.done == progress.total {
                let file = File::options().write(true).open(&short).expect("open");
                file.set_len(99_999).expect("truncate");
            }
        });
        let error = loader.load().expect_err("truncated");
        assert!(matches!(error, Error::ShortFile { end: 99_999, .. }), "{backend}: {error}");
    }
}

#[test]
fn file_growing_during_load_gives_the_old_length() {
    use std::io::Write as _;
    let folder = folder();
    for backend in backends() {
        let (path, expected) = file_of(&folder, 100_001);
        let long = path.clone();
        let loader = Loader::new(&path).backend(backend).progress(move |progress| {
            if progress.done == 0 {
                let mut file = File::options().append(true).open(&long).expect("open");
                file.write_all(&[0xff; 10_000]).expect("append");
                file.sync_all().expect("sync");
            }
        });
        let loaded = loader.load().expect("load");
        assert_eq!(loaded.data_len(), 100_001, "{backend}: the length is that at the start");
        let content = bytes(&loaded);
        crate::common::assert_same(backend.name(), &content[..100_001], &expected);
        assert!(content[100_001..].iter().all(|byte| *byte == 0), "{backend}: what came later");
    }
}

#[test]
fn descriptors_without_access_are_refused() {
    let folder = folder();
    let (path, expected) = file_of(&folder, 4096);
    let write_only = File::options().write(true).open(&path).expect("open");
    let error = Loader::from_fd(write_only.as_fd()).load().expect_err("write-only");
    assert!(matches!(error, Error::Access { direction: Direction::Load, .. }), "{error}");
    let buf = Buffer::memfd(4096).expect("a memfd");
    let read_only = File::open(&path).expect("open");
    let append = File::options().append(true).open(&path).expect("open");
    for file in [&read_only, &append] {
        let error = Saver::to_fd(file.as_fd()).save(&buf, ..).expect_err("not writable in place");
        assert!(matches!(error, Error::Access { direction: Direction::Save, .. }), "{error}");
    }
    assert_eq!(std::fs::read(&path).expect("read"), expected);
}

#[test]
fn buffers_and_files_are_not_interchangeable() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    let file = File::open(&path).expect("open");
    let error = Buffer::from_fd(file.into()).expect_err("a file");
    assert!(matches!(error, Error::NotABuffer { .. }), "{error}");
    let Ok(buf) = dmabuf(4096) else {
        println!("skipped: no dma-bufs");
        return;
    };
    let error = Loader::from_fd(buf.fd().expect("a descriptor")).load().expect_err("a dma-buf");
    assert!(matches!(error, Error::NotAFile { found: "a dma-buf", .. }), "{error}");
    let error =
        Saver::to_fd(buf.fd().expect("a descriptor")).save(&buf, ..).expect_err("a dma-buf");
    assert!(matches!(error, Error::NotAFile { found: "a dma-buf", .. }), "{error}");
}

#[test]
fn read_only_buffer_is_refused() {
    use std::os::fd::AsRawFd as _;
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    let buf = Buffer::memfd(4096).expect("a memfd");
    let again =
        File::open(format!("/proc/self/fd/{}", buf.fd().expect("a descriptor").as_raw_fd()))
            .expect("open");
    let mut read_only = Buffer::from_fd(again.into()).expect("a buffer");
    assert!(!read_only.is_writable());
    let error = Loader::new(&path).load_into(&read_only, 0).expect_err("read-only");
    assert!(matches!(error, Error::ReadOnlyBuffer), "{error}");
    assert!(matches!(read_only.map_mut(), Err(Error::ReadOnlyBuffer)));
    let target = folder.path().join("target");
    Saver::new(&target).save(&read_only, ..).expect("saving only reads it");
}

#[test]
fn load_exceeding_memory_is_an_error() {
    let folder = folder();
    let path = folder.path().join("sparse");
    let file = File::create(&path).expect("create");
    // The file system's maximum, which exceeds memory.
    let Some(size) =
        [1 << 43, 1 << 42, 1 << 41, 1 << 38].into_iter().find(|size| file.set_len(*size).is_ok())
    else {
        println!("skipped: the file system has no large files");
        return;
    };
    for backend in backends() {
        let error = Loader::new(&path).backend(backend).load().expect_err("too large");
        println!("{backend}: {size} bytes: {error}");
        let too_large_for_udmabuf = matches!(&error, Error::Unavailable { refusals, .. }
            if refusals[0].reason.contains("udmabuf"));
        assert!(
            matches!(error, Error::NoMemory { .. }) || too_large_for_udmabuf,
            "{backend}: {error}"
        );
        if backend == Backend::Module {
            assert!(error.to_string().contains("dmabuf_dio leaves"), "{error}");
            assert!(error.hint().to_string().contains("reserve of dmabuf_dio"), "{}", error.hint());
        }
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    every_error(
        &path,
        |loader| loader.block_size(1000),
        |error| {
            assert!(
                matches!(error, Error::Setting { name: "block_size", value: 1000, .. }),
                "{error}"
            );
        },
    );
    every_error(
        &path,
        |loader| loader.queue_depth(0),
        |error| {
            assert!(matches!(error, Error::Setting { name: "queue_depth", .. }), "{error}");
        },
    );
    every_error(
        &path,
        |loader| loader.allocation_step(3),
        |error| {
            assert!(matches!(error, Error::Setting { name: "allocation_step", .. }), "{error}");
        },
    );
    let buf = Buffer::memfd(4096).expect("a memfd");
    let error =
        Saver::new(folder.path().join("x")).offset(4096).save(&buf, ..).expect_err("offset");
    assert!(matches!(error, Error::Setting { name: "offset", .. }), "{error}");
}

#[test]
fn missing_permission_is_an_error() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root may read everything");
        return;
    }
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    rustix::fs::chmod(&path, 0.into()).expect("chmod");
    every_error(
        &path,
        |loader| loader,
        |error| {
            assert_eq!(error.errno().and_then(dmabuf_dio::Errno::name), Some("EACCES"));
        },
    );
}

#[test]
fn uncreatable_target_is_an_error() {
    let folder = folder();
    let buf = Buffer::memfd(4096).expect("a memfd");
    // Not /dev/null, which broken code would replace for the whole system.
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a named pipe");
    for path in [folder.path().join("no/folder"), folder.path().to_owned(), pipe] {
        let error = Saver::new(&path).save(&buf, ..).expect_err("no target");
        println!("{error}\n    {}", error.hint());
        assert!(matches!(error, Error::Target { .. } | Error::NotAFile { .. }), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1, "the pipe");
}

#[test]
fn unreplaceable_target_is_an_error() {
    let folder = folder();
    let buf = Buffer::memfd(8192).expect("a memfd");
    let path = folder.path().join("target");
    let in_the_way = path.clone();
    let saver = Saver::new(&path).progress(move |progress| {
        if progress.done == 0 {
            std::fs::create_dir(&in_the_way).expect("make a folder");
        }
    });
    let error = saver.save(&buf, ..).expect_err("a folder");
    assert!(matches!(error, Error::Target { .. }), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1, "only the folder");
}

#[test]
fn full_disk_keeps_the_old_target() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no tmpfs at /dev/shm");
        return;
    };
    let target = folder.path().join("target");
    std::fs::write(&target, "before").expect("write");
    // The buffer has holes, the file would not: no tmpfs has that much room.
    let memfd =
        rustix::fs::memfd_create("holes", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&memfd, 1 << 44).expect("holes");
    let buf = Buffer::from_fd(memfd).expect("a buffer");
    let error = Saver::new(&target).save(&buf, ..).expect_err("full");
    assert!(matches!(error, Error::Target { .. } | Error::Transfer { .. }), "{error}");
    assert_eq!(std::fs::read(&target).expect("read"), b"before");
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1);
}

#[test]
fn cancelled_save_keeps_the_old_target() {
    let folder = folder();
    let target = folder.path().join("target");
    std::fs::write(&target, "before").expect("write");
    for (buf, backends) in buffers(1 << 20) {
        for backend in backends {
            let token = CancelToken::new();
            token.cancel();
            let saver = Saver::new(&target).backend(backend).cancel(token);
            let error = saver.save(&buf, ..).expect_err("cancelled");
            assert!(matches!(error, Error::Cancelled { .. }), "{backend}: {error}");
            assert_eq!(std::fs::read(&target).expect("read"), b"before");
            assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1);
        }
    }
}
