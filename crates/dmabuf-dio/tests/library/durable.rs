// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data that a save reported as durable is on the disk.

use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;

use crate::common::{assert_same, buffers, fill, folder};
use crate::filter::{Call, failing};
use dmabuf_dio::{Buffer, Error, Saver};

const LEN: u64 = 10_000;

/// All calls that make files durable.
const SYNC: &[Call] = &[
    Call::any(libc::SYS_fdatasync),
    Call::any(libc::SYS_fsync),
    Call::any(libc::SYS_syncfs),
    Call::any(libc::SYS_sync),
];

#[track_caller]
fn assert_not_durable(error: &Error) {
    let Error::Target { step, errno, .. } = error else { panic!("{error}") };
    assert_eq!((*step, errno.raw()), ("make it durable", libc::EREMOTEIO));
}

#[test]
fn failed_sync_keeps_old_file() {
    let folder = folder();
    let path = folder.path().join("file");
    let mut buf = Buffer::memfd(LEN).expect("a memfd");
    fill(&mut buf, 7);
    for direct in [true, false] {
        std::fs::write(&path, "before").expect("write");
        failing(SYNC, libc::EREMOTEIO, || {
            let saver = Saver::new(&path).direct(direct);
            assert_not_durable(&saver.save(&buf, ..LEN).expect_err("not durable"));
            assert_eq!(std::fs::read(&path).expect("read"), b"before");
            assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1);
        });
        Saver::new(&path).direct(direct).save(&buf, ..LEN).expect("durable");
        assert_same("saved", &std::fs::read(&path).expect("read"), &[7; LEN as usize]);
    }
}

#[test]
fn failed_sync_of_an_in_place_save_is_an_error() {
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![1; 20_000]).expect("write");
    let file = std::fs::File::options().read(true).write(true).open(&path).expect("open");
    let mut buf = Buffer::memfd(LEN).expect("a memfd");
    fill(&mut buf, 7);
    for direct in [true, false] {
        failing(SYNC, libc::EREMOTEIO, || {
            let saver = Saver::to_fd(file.as_fd()).direct(direct).offset(4096);
            assert_not_durable(&saver.save(&buf, ..LEN).expect_err("not durable"));
        });
        Saver::to_fd(file.as_fd()).direct(direct).offset(4096).save(&buf, ..LEN).expect("durable");
    }
}

/// Flushes of the disk that has a file, as far as it counts them.
fn flushes(path: &std::path::Path) -> Option<u64> {
    let device = path.metadata().ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    text.split_whitespace().nth(15)?.parse().ok()
}

#[test]
fn in_place_save_flushes_the_disk() {
    if std::env::var_os("DMABUF_DIO_KERNEL").is_none() {
        eprintln!("skipped: others use this machine's disk");
        return;
    }
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![1; 4 << 20]).expect("write");
    let file = std::fs::File::options().read(true).write(true).open(&path).expect("open");
    let before = flushes(&path);
    file.sync_all().expect("fsync");
    if flushes(&path) == before {
        eprintln!("skipped: this disk has no cache");
        return;
    }
    for (buf, backends) in buffers(2 << 20) {
        for backend in backends {
            for direct in [true, false] {
                // What else has changed is on the disk before.
                rustix::fs::syncfs(&file).expect("syncfs");
                let before = flushes(&path);
                let saver = Saver::to_fd(file.as_fd()).backend(backend).direct(direct);
                saver.offset(1 << 20).save(&buf, ..).expect("durable");
                assert!(flushes(&path) > before, "{backend}, direct {direct}: no flush was sent");
            }
        }
    }
}

#[test]
fn failed_sync_of_the_folder_is_an_error() {
    let folder = folder();
    let path = folder.path().join("file");
    let mut buf = Buffer::memfd(LEN).expect("a memfd");
    fill(&mut buf, 7);
    failing(&[Call::any(libc::SYS_fsync)], libc::EREMOTEIO, || {
        let error = Saver::new(&path).save(&buf, ..LEN).expect_err("not durable");
        let Error::Target { step, errno, .. } = &error else { panic!("{error}") };
        assert_eq!((*step, errno.raw()), ("make its name durable", libc::EREMOTEIO));
        // The file is complete, and has replaced the old one.
        assert_same("saved", &std::fs::read(&path).expect("read"), &[7; LEN as usize]);
    });
}
