// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locked memory, in a process of its own: the kernel counts what the whole process has locked.

#![cfg(target_os = "linux")]

mod common;

use common::{assert_same, available, file_of, folder, huge, page};
use dmabuf_dio::{Backend, Error, Kind, Loader};
use rustix::process::Resource;

/// Bytes that the process has locked.
fn locked() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line");
    let number = line.split_ascii_whitespace().next().expect("a number");
    number.parse::<u64>().expect("a number") * 1024
}

/// Sets how much this process may lock without the capability to lock more. Returns whether it lacks that.
fn limit_to(bytes: u64) -> bool {
    let mut limit = rustix::process::getrlimit(Resource::Memlock);
    limit.current = Some(bytes);
    rustix::process::setrlimit(Resource::Memlock, limit).expect("a lower limit");
    // SAFETY: the memory is new.
    unsafe {
        let (none, len) = (std::ptr::null_mut(), bytes as usize + page());
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let memory = libc::mmap(none, len, libc::PROT_READ, flags, -1, 0);
        let refused = libc::mlock(memory, len) != 0;
        libc::munmap(memory, len);
        refused
    }
}

#[test]
fn memory_is_locked_as_long_as_its_buffer() {
    let folder = folder();
    for size in [3 * page() + 100, 2 * huge() + page()] {
        let (path, expected) = file_of(&folder, size);
        for kind in [Kind::Private, Kind::Memfd, Kind::File] {
            for direct in [true, false] {
                let loader = Loader::new(&path).kind(kind).direct(direct);
                let before = locked();
                let loaded = match loader.clone().lock(true).load() {
                    Err(error @ Error::Lock { .. }) => return println!("skipped: {error}"),
                    loaded => loaded.expect("loaded"),
                };
                let what = format!("{kind:?}, {size} bytes, direct {direct}");
                let report = loaded.report().expect("loaded");
                assert!(report.locked, "{what}");
                // Reserved huge pages are in memory anyway.
                let nothing =
                    report.notes.iter().any(|note| note.contains("nothing had to be locked"));
                let gained = locked() - before;
                assert!(gained >= size as u64 || nothing && gained == 0, "{what}: {gained}");
                assert!(gained <= (size + huge()) as u64, "{what}: {gained}");
                let bytes = loaded.map().expect("mapped").to_vec().expect("bytes");
                let range = loaded.range();
                assert_same(&what, &bytes[range.start as usize..range.end as usize], &expected);
                if let Ok(again) = loaded.try_clone() {
                    drop(loaded);
                    assert_eq!(locked() - before, gained, "{what}: it has a clone");
                    drop(again);
                } else {
                    drop(loaded);
                }
                assert_eq!(locked(), before, "{what}");
                assert!(!loader.load().expect("loaded").report().expect("loaded").locked);
                assert_eq!(locked(), before, "{what}");
            }
        }
        // Locking a memfd must not prevent sealing it.
        let loader = Loader::new(&path).kind(Kind::Memfd).lock(true);
        let mut loaded = loader.load().expect("loaded");
        loaded.seal().expect("sealed");
        drop(loaded.into_fd().expect("a descriptor"));

        for backend in [Backend::Module, Backend::UringSlot, Backend::Udmabuf] {
            if !available(backend) {
                continue;
            }
            let before = locked();
            let loader = Loader::new(&path).backend(backend).kind(Kind::DmaBuf).lock(true);
            let loaded = loader.load().expect("loaded");
            let report = loaded.report().expect("loaded");
            assert!(report.locked && locked() == before, "{backend}");
            let note = report.notes.last().expect("a note");
            assert!(note.contains("the pages of a dma-buf are never swapped out"), "{note}");
        }
    }
    let (path, _) = file_of(&folder, 3 * page());
    if !limit_to(page() as u64) {
        return println!("limit not tested: this process has CAP_IPC_LOCK");
    }
    for kind in [Kind::Private, Kind::Memfd, Kind::File] {
        let error = Loader::new(&path).kind(kind).lock(true).load().expect_err("too much");
        let Error::Lock { limit, .. } = &error else { panic!("{error}") };
        assert_eq!(*limit, Some(page() as u64), "{error}");
        let hint = error.hint().to_string();
        assert!(hint.contains("ulimit -l") && hint.contains("LimitMEMLOCK="), "{hint}");
    }
}
