// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports match what happened.
//!
//! Storage is counted for the whole process, so these tests run one after the other.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{assert_same, backends, buffers, bytes, file_of, folder, huge};
use dmabuf_dio::{Backend, Buffer, Error, Loader, Mode, Report, Saver};

fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn direct_loads_bypass_the_page_cache() {
    let _alone = alone();
    let folder = folder();
    let (path, _) = file_of(&folder, 8 << 20);
    for backend in backends() {
        common::write_cold(&path, &common::content(8 << 20, 3));
        let loaded = Loader::new(&path).backend(backend).load().expect("load");
        let report = loaded.report().expect("loaded");
        println!("{backend}: {} ({})", report.mode, report.evidence);
        match (backend, report.storage_bytes) {
            (Backend::Buffered, _) => assert_eq!(report.mode, Mode::Buffered, "{report:?}"),
            (_, Some(_)) => assert_eq!(report.mode, Mode::Direct, "{report:?}"),
            (_, None) => assert_eq!(report.mode, Mode::Unknown, "{report:?}"),
        }
    }
}

#[test]
fn staged_bytes_are_reported_as_copied() {
    let _alone = alone();
    let folder = folder();
    for (len, is_much) in [(5000, false), (huge() + (1 << 20) + 5, true)] {
        let (path, _) = file_of(&folder, len);
        let loader = Loader::new(&path).kind(dmabuf_dio::Kind::Memfd).huge_pages(false);
        let loaded = loader.load().expect("load");
        let report = loaded.report().expect("loaded");
        if report.mode == Mode::Direct {
            assert_eq!(report.copied_bytes, len as u64, "{report:?}");
            let said = report.notes.iter().any(|note| note.contains("the CPU copied"));
            assert_eq!(said, is_much, "only where it could have been otherwise: {report:?}");
        }
    }
}

#[test]
fn load_without_o_direct_is_reported_as_buffered() {
    let _alone = alone();
    let folder = folder();
    let (path, expected) = file_of(&folder, (1 << 20) + 77);
    for backend in backends() {
        common::write_cold(&path, &expected);
        let loader = Loader::new(&path).backend(backend).direct(false).offset(5);
        let loaded = loader.load().expect("load");
        let range = loaded.range();
        let content = bytes(&loaded);
        let content = &content[range.start as usize..range.end as usize];
        assert_same(backend.name(), content, &expected[5..]);
        assert_eq!(
            loaded.report().expect("loaded").mode,
            Mode::Buffered,
            "{backend}: {}",
            loaded.report().expect("loaded").evidence
        );
        let again = loader.load().expect("load");
        assert_eq!(
            again.report().expect("loaded").mode,
            Mode::PageCache,
            "{backend}: {}",
            again.report().expect("loaded").evidence
        );
        if backend != Backend::Buffered {
            assert!(
                again.report().expect("loaded").notes.iter().any(|note| note.contains("buffered"))
            );
        }
    }
}

#[test]
fn tmpfs_load_is_reported_as_page_cache() {
    let _alone = alone();
    // tmpfs keeps files in memory: some kernels open them with O_DIRECT, none reads storage.
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no tmpfs at /dev/shm");
        return;
    };
    let (path, expected) = file_of(&folder, 100_001);
    for backend in backends() {
        let loaded = match Loader::new(&path).backend(backend).load() {
            // For some kernels a file in memory is a buffer, not a file to copy from.
            Err(Error::Unavailable { refusals, .. }) if backend == Backend::CopyFileRange => {
                let remedy = refusals[0].remedy.as_deref().unwrap_or_default();
                assert!(remedy.contains("file system on a disk"), "{refusals:?}");
                continue;
            }
            result => result.expect("load"),
        };
        assert_same(backend.name(), &bytes(&loaded)[..100_001], &expected);
        assert_ne!(
            loaded.report().expect("loaded").mode,
            Mode::Direct,
            "{backend}: {}",
            loaded.report().expect("loaded").evidence
        );
        assert_copied(loaded.report().expect("loaded"));
    }
    // This way to load needs no staging buffer, from which the CPU would copy anyway.
    let private = Loader::new(&path).kind(dmabuf_dio::Kind::Private).load().expect("load");
    assert_copied(private.report().expect("loaded"));
    let buf = Buffer::memfd(100_001).expect("a memfd");
    assert_copied(&Saver::new(folder.path().join("saved")).save(&buf, ..).expect("save"));
}

/// The CPU copied everything that storage does not account for. Part of the storage traffic may be
/// another process's.
#[track_caller]
fn assert_copied(report: &Report) {
    let Some(storage) = report.storage_bytes else { return };
    assert!(report.copied_bytes >= report.bytes.saturating_sub(storage), "{report:?}");
}

#[test]
fn file_system_without_o_direct_is_read() {
    let _alone = alone();
    // Linker notes of the kernel: a file of sysfs with a length.
    let path = std::path::Path::new("/sys/kernel/notes");
    let Ok(expected) = std::fs::read(path) else {
        println!("skipped: no {}", path.display());
        return;
    };
    for backend in backends() {
        let loaded = Loader::new(path).backend(backend).load().expect("load");
        assert_same(backend.name(), &bytes(&loaded)[..expected.len()], &expected);
        let report = loaded.report().expect("loaded");
        assert_ne!(report.mode, Mode::Direct, "{backend}: {}", report.evidence);
        if backend != Backend::Buffered {
            assert!(report.notes.iter().any(|note| note.contains("O_DIRECT")), "{report:?}");
        }
    }
}

#[test]
fn unaligned_offsets_are_reported_as_buffered() {
    let _alone = alone();
    let folder = folder();
    let (path, expected) = file_of(&folder, 1 << 20);
    for (buf, backends) in buffers(2 << 20) {
        for backend in backends.into_iter().filter(|one| *one != Backend::Buffered) {
            common::write_cold(&path, &expected);
            let report = Loader::new(&path).backend(backend).load_into(&buf, 1).expect("load");
            let all = bytes(&buf);
            assert_same(backend.name(), &all[1..=1 << 20], &expected);
            assert_eq!(report.mode, Mode::Buffered, "{backend}: {}", report.evidence);
            assert!(report.notes.iter().any(|note| note.contains("O_DIRECT needs")), "{report:?}");
        }
    }
}

#[test]
fn direct_saves_bypass_the_page_cache() {
    let _alone = alone();
    let folder = folder();
    let path = folder.path().join("saved");
    for (buf, backends) in buffers((4 << 20) + 4096) {
        for backend in backends {
            let range = 0..(4 << 20) + 100;
            let report = Saver::new(&path).backend(backend).save(&buf, range).expect("save");
            println!("{backend}: {} ({})", report.mode, report.evidence);
            match (backend, report.storage_bytes) {
                (Backend::Buffered, _) => assert_eq!(report.mode, Mode::Buffered, "{report:?}"),
                (_, Some(_)) => assert_eq!(report.mode, Mode::Direct, "{report:?}"),
                (_, None) => assert_eq!(report.mode, Mode::Unknown, "{report:?}"),
            }
        }
    }
}

#[test]
fn report_displays_in_one_line() {
    let _alone = alone();
    let folder = folder();
    let (path, _) = file_of(&folder, 5000);
    let loader = Loader::new(&path).backend(Backend::Buffered).direct(false);
    let mut buf = Buffer::memfd(8192).expect("a memfd");
    common::fill(&mut buf, 0);
    let line = loader.load_into(&buf, 0).expect("load").to_string();
    assert!(line.starts_with("5000 bytes by buffered, ") && line.ends_with(" GB/s"), "{line}");
}
