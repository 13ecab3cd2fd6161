// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seals of memfds that are loaded into: nobody can shrink them under a reader, and they still
//! can become a udmabuf.

mod common;

use std::os::fd::AsFd as _;

use common::{assert_same, backends, bytes, file_of, folder};
use dmabuf_dio::{DmaBuf, Kind, Loader};
use dmabuf_dio_sys::udmabuf;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

#[test]
fn what_is_loaded_cannot_be_shrunk() {
    let folder = folder();
    let (path, wanted) = file_of(&folder, (2 << 20) + 5000);
    let mut memfds = 0;
    for backend in backends() {
        for huge in [false, true] {
            let loader = Loader::new(&path).backend(backend).huge_pages(huge);
            let loaded = loader.load().expect("load");
            if loaded.buf.kind() != Kind::Memfd {
                continue;
            }
            let (what, len) = (format!("{backend}, huge pages: {huge}"), loaded.buf.len());
            let seals = match rustix::fs::fcntl_get_seals(&loaded.buf) {
                // A file on a tmpfs of its own, for huge pages: only memfds have seals.
                Err(Errno::INVAL) if huge => continue,
                seals => seals.expect("seals"),
            };
            memfds += 1;
            assert!(seals.contains(SealFlags::SHRINK), "{what}: {seals:?}");
            assert!(!seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE), "{what}");
            assert_eq!(rustix::fs::ftruncate(loaded.buf.as_fd(), 0), Err(Errno::PERM), "{what}");
            // Reserved huge pages refuse this in any case.
            let shrunk = rustix::fs::ftruncate(loaded.buf.as_fd(), len - 4096);
            assert!(shrunk.is_err(), "{what}");
            assert_same(&what, &bytes(&loaded.buf)[..wanted.len()], &wanted);
            // The seals that udmabuf asks for, and not the one that it refuses.
            if let (Ok(device), false) = (udmabuf::open(), huge) {
                udmabuf::create(device.as_fd(), loaded.buf.as_fd(), 0, len).expect("a udmabuf");
            }
        }
    }
    assert!(memfds > 0, "the backend memfd works everywhere");
}

#[test]
fn a_memfd_of_others_is_sealed_if_it_allows_that() {
    for (flags, sealed) in [(MemfdFlags::ALLOW_SEALING, true), (MemfdFlags::empty(), false)] {
        let fd = rustix::fs::memfd_create("theirs", flags | MemfdFlags::CLOEXEC).expect("memfd");
        rustix::fs::ftruncate(&fd, 8192).expect("its length");
        let buf = DmaBuf::from_fd(fd).expect("a buffer");
        let seals = rustix::fs::fcntl_get_seals(&buf).expect("seals");
        assert_eq!(seals.contains(SealFlags::SHRINK), sealed, "{seals:?}");
        let shrunk = rustix::fs::ftruncate(buf.as_fd(), 0);
        assert_eq!(shrunk.is_err(), sealed);
    }
}
