// SPDX-License-Identifier: MIT OR Apache-2.0
//! Block devices. `DMABUF_DIO_RAW_DISK` names a disk with disposable content; without it these tests
//! are skipped.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::{assert_same, backends, buffers, bytes, content, fill, page};
use dmabuf_dio::{Error, Loader, Mode, Saver, probe};

/// The disk, for one test at a time.
fn disk() -> Option<(PathBuf, MutexGuard<'static, ()>)> {
    static LOCK: Mutex<()> = Mutex::new(());
    let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let path = std::env::var_os("DMABUF_DIO_RAW_DISK");
    if path.is_none() {
        println!("skipped: DMABUF_DIO_RAW_DISK is not set");
    }
    Some((path?.into(), lock))
}

#[test]
fn block_device_saves_and_loads_back() {
    let Some((path, _lock)) = disk() else { return };
    let len = (4 << 20) + 4096;
    for (mut buf, list) in buffers(len) {
        for (seed, backend) in list.into_iter().enumerate() {
            let image = content(len as usize, seed as u64);
            buf.map_mut().expect("map").write_at(0, &image).expect("write");
            let report = Saver::new(&path).backend(backend).save(&buf, ..).expect("save");
            println!("{backend}: saved {} ({})", report.mode, report.evidence);
            for backend in backends() {
                let loader = Loader::new(&path).backend(backend).length(len);
                let loaded = loader.load().expect("load");
                println!(
                    "{backend}: {} ({})",
                    loaded.report().expect("loaded").mode,
                    loaded.report().expect("loaded").evidence
                );
                assert_same(backend.name(), &bytes(&loaded)[..len as usize], &image);
            }
        }
    }
}

#[test]
fn odd_ranges_on_a_device_keep_other_bytes() {
    let Some((path, _lock)) = disk() else { return };
    let image = content(65_536, 77);
    for (mut buf, list) in buffers(65_536) {
        for backend in list {
            fill(&mut buf, 0x99);
            Saver::new(&path).backend(backend).save(&buf, ..).expect("save");
            buf.map_mut().expect("map").write_at(0, &image).expect("write");
            let saver = Saver::new(&path).backend(backend).offset(1000);
            saver.save(&buf, 1000..20_001).expect("save a part");
            fill(&mut buf, 0);
            let loader = Loader::new(&path).backend(backend).length(65_536);
            loader.load_into(&buf, 0).expect("load");
            let mut wanted = vec![0x99; 65_536];
            wanted[1000..20_001].copy_from_slice(&image[1000..20_001]);
            assert_same(backend.name(), &bytes(&buf), &wanted);
        }
    }
}

#[test]
fn ranges_beyond_the_device_are_errors() {
    let Some((path, _lock)) = disk() else { return };
    let facts = probe::file(&path).expect("facts");
    assert_eq!(facts.file_system.as_deref(), Some("block device"));
    for backend in backends() {
        let loader = Loader::new(&path).backend(backend).offset(facts.length - 100).length(101);
        let error = loader.load().expect_err("beyond the end");
        assert!(matches!(error, Error::ShortFile { .. }), "{backend}: {error}");
        let loader = Loader::new(&path).backend(backend).offset(facts.length - 100);
        let loaded = loader.load().expect("the last bytes");
        assert_eq!(loaded.data_len(), 100);
        assert_ne!(loaded.report().expect("loaded").mode, Mode::Unknown);
    }
    let len = page() as u64;
    for (buf, _) in buffers(len) {
        let late = facts.length - len + 1;
        let error = Saver::new(&path).offset(late).save(&buf, ..).expect_err("full");
        assert!(matches!(error, Error::Target { .. }), "{error}");
        Saver::new(&path).offset(facts.length - len).save(&buf, ..).expect("up to its end");
    }
}
