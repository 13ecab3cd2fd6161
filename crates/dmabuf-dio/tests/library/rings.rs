// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings that the kernel does not serve as it should, and their remains.

use std::os::fd::AsRawFd as _;
use std::process::Command;

use crate::common::{assert_same, available, bytes, file_of, folder, page};
use crate::filter::{Call, failing};
use dmabuf_dio::{Backend, Buffer, Error, Kind, Loader, Saver};

const LEN: usize = 2 << 20;

/// Four requests in flight, of 32.
fn loader(path: &std::path::Path) -> Loader<'static> {
    Loader::new(path).backend(Backend::Memfd).block_size(64 << 10).queue_depth(4)
}

#[test]
fn failed_ring_wait_counts_nothing_as_read() {
    if !available(Backend::Memfd) {
        return;
    }
    let folder = folder();
    let (path, _) = file_of(&folder, LEN);
    // The third argument says how many completions to wait for.
    failing(&[Call::with(libc::SYS_io_uring_enter, 1)], libc::EINVAL, || {
        for error in [
            loader(&path).load().expect_err("nobody waits"),
            loader(&path).huge_pages(false).load().expect_err("nobody waits"),
            loader(&path).backend(None).kind(Kind::Private).load().expect_err("nobody waits"),
        ] {
            let errno = error.errno().map(dmabuf_dio::Errno::raw);
            let is_right = matches!(error, Error::Transfer { .. } | Error::InFlight { .. });
            assert!(is_right && errno == Some(libc::EINVAL), "{error}");
        }
    });
}

#[test]
fn ring_without_tables_loads_the_same_bytes() {
    if !available(Backend::Memfd) {
        return;
    }
    let folder = folder();
    let (path, expected) = file_of(&folder, LEN);
    failing(&[Call::any(libc::SYS_io_uring_register)], libc::EPERM, || {
        let loaded = loader(&path).load().expect("loads");
        assert_same("without tables", &bytes(&loaded)[..expected.len()], &expected);
        let copy = folder.path().join("copy");
        Saver::new(&copy).block_size(64 << 10).save(&loaded, loaded.range()).expect("saves");
        assert!(std::fs::read(&copy).expect("read") == expected);
    });
}

/// A file that stays open for a moment can be neither unmounted nor executed.
#[test]
fn finished_load_leaves_no_file_open() {
    let folder = folder();
    let (path, _) = file_of(&folder, LEN);
    // The kernel gives a lease only if no other process has the file open.
    let lease = || {
        let file = std::fs::File::options().read(true).write(true).open(&path).expect("open");
        // SAFETY: the call takes numbers.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0 }
    };
    if !lease() {
        return println!("skipped: no leases here");
    }
    for kind in [Kind::DmaBuf, Kind::Memfd] {
        for &backend in Backend::for_new(kind) {
            let loader = Loader::new(&path).backend(backend).kind(kind).block_size(64 << 10);
            let loaded = loader.load();
            assert!(lease(), "{backend} has the file open: {loaded:?}");
        }
    }
    // A program that is open for writing cannot be run.
    let program = std::fs::read("/bin/true").expect("a program");
    let copy = folder.path().join("true");
    let mut buf = Buffer::memfd(LEN as u64).expect("a memfd");
    buf.map_mut().expect("a view").write_at(0, &program).expect("written");
    for _ in 0..5 {
        let saver = Saver::new(&copy).block_size(page() as u64);
        saver.save(&buf, ..program.len() as u64).expect("saved");
        let mut permissions = std::fs::metadata(&copy).expect("stat").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        std::fs::set_permissions(&copy, permissions).expect("chmod");
        let status = Command::new(&copy).status();
        match status {
            Ok(status) => assert!(status.success()),
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => return,
            Err(error) => panic!("{error}"),
        }
    }
}
