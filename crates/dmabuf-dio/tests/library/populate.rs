// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that cannot be allocated before they are read into.

use crate::common::{assert_same, available, bytes, file_of, folder};
use crate::filter::{Call, failing};
use dmabuf_dio::{Backend, Buffer, Error, Kind, Loader};
use rustix::fs::MemfdFlags;

/// Larger than a request, so that there is a ring, and a thread that allocates pages for it.
const LEN: usize = (6 << 20) + 100;

const POPULATE: &[Call] = &[
    Call::with(libc::SYS_madvise, libc::MADV_POPULATE_READ),
    Call::with(libc::SYS_madvise, libc::MADV_POPULATE_WRITE),
];

/// A memfd, and one that anyone may shrink.
fn memfds() -> [Buffer; 2] {
    let fd = rustix::fs::memfd_create("theirs", MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&fd, LEN as u64).expect("its length");
    [Buffer::memfd(LEN as u64).expect("a memfd"), Buffer::from_fd(fd).expect("a buffer")]
}

#[test]
fn load_works_where_populate_is_refused() {
    let folder = folder();
    let (path, expected) = file_of(&folder, LEN);
    // From kernels before 5.14, seccomp filters, and reimplementations of the kernel.
    for number in [libc::EINVAL, libc::EPERM, libc::ENOSYS] {
        failing(POPULATE, number, || {
            let what = format!("error {number}");
            let loader = Loader::new(&path).block_size(1 << 20);
            let loaded = loader.clone().kind(Kind::Private).load().expect("load");
            assert_same(&what, loaded.bytes().expect("its own"), &expected);
            let loaded = loader.clone().kind(Kind::Memfd).load().expect("load");
            assert_same(&what, &bytes(&loaded)[..LEN], &expected);
            for buf in memfds() {
                loader.load_into(&buf, 0).expect("load");
                assert_same(&what, &bytes(&buf)[..LEN], &expected);
            }
        });
    }
}

/// `EFAULT` means that touching the page would raise `SIGBUS`.
#[test]
fn populate_fault_of_sealed_memory_is_out_of_memory() {
    if !available(Backend::Memfd) {
        return;
    }
    let folder = folder();
    let (path, _) = file_of(&folder, LEN);
    for number in [libc::EFAULT, libc::ENOMEM] {
        failing(POPULATE, number, || {
            let loader = Loader::new(&path).block_size(1 << 20);
            let error = loader.clone().kind(Kind::Private).load().expect_err("no pages");
            assert!(matches!(error, Error::NoMemory { wanted, .. } if wanted > 6 << 20), "{error}");
            let [sealed, theirs] = memfds();
            let error = loader.load_into(&sealed, 0).expect_err("no pages");
            assert!(matches!(error, Error::NoMemory { .. }), "{error}");
            let error = loader.load_into(&theirs, 0).expect_err("no pages");
            if number == libc::ENOMEM {
                assert!(matches!(error, Error::NoMemory { .. }), "{error}");
            } else {
                assert_eq!(error.errno().map(dmabuf_dio::Errno::raw), Some(number), "{error}");
                assert!(error.hint().to_string().contains("shrunk"), "{}", error.hint());
            }
        });
    }
}

#[test]
fn poisoned_page_has_its_own_error() {
    if !available(Backend::Memfd) {
        return;
    }
    let folder = folder();
    let (path, _) = file_of(&folder, LEN);
    failing(POPULATE, libc::EHWPOISON, || {
        let error = Loader::new(&path)
            .block_size(1 << 20)
            .kind(Kind::Private)
            .load()
            .expect_err("a broken page");
        let Error::Buffer { call, errno } = &error else { panic!("{error}") };
        assert_eq!((*call, errno.raw()), ("allocate the pages of", libc::EHWPOISON));
        assert!(error.hint().to_string().contains("memory error"), "{}", error.hint());
    });
}
