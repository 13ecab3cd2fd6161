// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a save has said to be done is on the disk.

mod common;

use std::os::fd::AsFd as _;

use common::{assert_same, fill, folder};
use dmabuf_dio::{DmaBuf, Error, Saver};

const LEN: u64 = 10_000;

/// Lets all calls that make files durable fail in the calling thread, for as long as that lives.
fn without_sync() -> std::io::Result<()> {
    let statement = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number)];
    for call in [libc::SYS_fdatasync, libc::SYS_fsync, libc::SYS_syncfs, libc::SYS_sync] {
        let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        let fail = libc::SECCOMP_RET_ERRNO | libc::EREMOTEIO as u32;
        filter.push(libc::sock_filter { code: equal, jt: 0, jf: 1, k: call as u32 });
        filter.push(statement(libc::BPF_RET | libc::BPF_K, fail));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives until the call is over, which copies it.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program) != 0
    };
    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// In a thread that cannot make files durable, if there can be one here.
fn unsynced(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let test = || match without_sync() {
            Ok(()) => test(),
            Err(error) => println!("skipped: no filters for system calls: {error}"),
        };
        scope.spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[track_caller]
fn assert_not_durable(error: &Error) {
    let Error::Target { step, errno, .. } = error else { panic!("{error}") };
    assert_eq!((*step, errno.raw()), ("make it durable", libc::EREMOTEIO));
}

#[test]
fn what_is_not_durable_takes_nobody_s_place() {
    let folder = folder();
    let path = folder.path().join("file");
    let mut buf = DmaBuf::memfd(LEN).expect("a memfd");
    fill(&mut buf, 7);
    for direct in [true, false] {
        std::fs::write(&path, "before").expect("write");
        unsynced(|| {
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
fn what_is_written_in_place_is_durable_too() {
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![1; 20_000]).expect("write");
    let file = std::fs::File::options().read(true).write(true).open(&path).expect("open");
    let mut buf = DmaBuf::memfd(LEN).expect("a memfd");
    fill(&mut buf, 7);
    for direct in [true, false] {
        unsynced(|| {
            let saver = Saver::to_fd(file.as_fd()).direct(direct).offset(4096);
            assert_not_durable(&saver.save(&buf, ..LEN).expect_err("not durable"));
        });
        Saver::to_fd(file.as_fd()).direct(direct).offset(4096).save(&buf, ..LEN).expect("durable");
    }
}
