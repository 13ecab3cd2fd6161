// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seals of loaded memfds: nobody can shrink them under a reader, and they can still become a
//! udmabuf.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use crate::common::{assert_same, backends, bytes, file_of, folder, huge, page};
use dmabuf_dio::{Backend, Buffer, Error, Kind, Loader, Saver};
use dmabuf_dio_sys::udmabuf;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

#[test]
fn loaded_memfd_cannot_be_shrunk() {
    let folder = folder();
    let (path, wanted) = file_of(&folder, (2 << 20) + 5000);
    let mut memfds = 0;
    for backend in backends() {
        for huge in [false, true] {
            let loader = Loader::new(&path).backend(backend).huge_pages(huge);
            let loaded = loader.load().expect("load");
            if loaded.kind() != Kind::Memfd {
                continue;
            }
            let (what, len) = (format!("{backend}, huge pages: {huge}"), loaded.len());
            let seals =
                rustix::fs::fcntl_get_seals(loaded.fd().expect("a descriptor")).expect("seals");
            memfds += 1;
            assert!(seals.contains(SealFlags::SHRINK), "{what}: {seals:?}");
            assert!(!seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE), "{what}");
            assert_eq!(
                rustix::fs::ftruncate(loaded.fd().expect("a descriptor"), 0),
                Err(Errno::PERM),
                "{what}"
            );
            // Reserved huge pages refuse this anyway.
            let shrunk =
                rustix::fs::ftruncate(loaded.fd().expect("a descriptor"), len - page() as u64);
            assert!(shrunk.is_err(), "{what}");
            assert_same(&what, &bytes(&loaded)[..wanted.len()], &wanted);
            // udmabuf requires one seal and refuses another. It has whole pages.
            if let (Ok(device), false) = (udmabuf::open(), huge) {
                let pages = len / page() as u64 * page() as u64;
                udmabuf::create(device.as_fd(), loaded.fd().expect("a descriptor"), 0, pages)
                    .expect("a udmabuf");
            }
        }
    }
    assert!(memfds > 0, "the backend memfd works everywhere");
}

#[test]
fn memfd_has_the_length_of_its_content() {
    let folder = folder();
    let reserved = huge() as u64;
    for len in [1, 4096, 5000, (2 << 20) - 1, (4 << 20) + 5000, (9 << 20) + 1] {
        let (path, wanted) = file_of(&folder, len);
        for (huge, direct) in [(true, true), (true, false), (false, true), (false, false)] {
            let what = format!("{len} bytes, huge pages: {huge}, direct: {direct}");
            let loader = Loader::new(&path).backend(Backend::Memfd).huge_pages(huge).direct(direct);
            let loaded = loader.load().expect("load");
            if loaded.report().expect("loaded").page_size == Some(reserved)
                && loaded.len() % reserved == 0
            {
                println!("skipped: reserved huge pages");
                continue;
            }
            assert_eq!((loaded.len(), loaded.data_offset()), (len as u64, 0), "{what}");
            let again = std::fs::read(format!(
                "/proc/self/fd/{}",
                loaded.fd().expect("a descriptor").as_raw_fd()
            ));
            assert_same(&what, &again.expect("read"), &wanted);
            for new in [0, len as u64 - 1, len as u64 + 1, len as u64 + 4096] {
                let changed = rustix::fs::ftruncate(loaded.fd().expect("a descriptor"), new);
                assert_eq!(changed, Err(Errno::PERM), "{what}");
            }
            let behind = behind(loaded.fd().expect("a descriptor"), len);
            assert!(
                behind.iter().all(|byte| *byte == 0),
                "{what}: the last page shows other bytes"
            );
        }
    }
}

/// The bytes behind the end of a memfd of `len` bytes, in the last page of a mapping.
fn behind(memfd: BorrowedFd<'_>, len: usize) -> Vec<u8> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let pages = len.next_multiple_of(rustix::param::page_size());
    let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: a mapping of its own, which is gone before this returns; nobody writes the memfd.
    unsafe {
        let start = mmap(std::ptr::null_mut(), pages, prot, flags, memfd, 0).expect("map");
        let bytes = std::slice::from_raw_parts(start.cast::<u8>(), pages)[len..].to_vec();
        munmap(start, pages).expect("unmap");
        bytes
    }
}

#[test]
fn foreign_memfd_is_sealed_if_allowed() {
    for (flags, sealed) in [(MemfdFlags::ALLOW_SEALING, true), (MemfdFlags::empty(), false)] {
        let fd = rustix::fs::memfd_create("theirs", flags | MemfdFlags::CLOEXEC).expect("memfd");
        rustix::fs::ftruncate(&fd, 8192).expect("its length");
        let buf = Buffer::from_fd(fd).expect("a buffer");
        let seals = rustix::fs::fcntl_get_seals(buf.fd().expect("a descriptor")).expect("seals");
        assert_eq!(seals.contains(SealFlags::SHRINK), sealed, "{seals:?}");
        let shrunk = rustix::fs::ftruncate(buf.fd().expect("a descriptor"), 0);
        assert_eq!(shrunk.is_err(), sealed);
    }
}

#[test]
fn write_sealed_memfd_can_be_saved() {
    let folder = folder();
    let (path, wanted) = file_of(&folder, 10_000);
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
        let loaded = Loader::new(&path).backend(Backend::Memfd).load().expect("load");
        rustix::fs::fcntl_add_seals(loaded.fd().expect("a descriptor"), seal).expect("seal");
        let copy = folder.path().join("copy");
        for backend in [Backend::Memfd, Backend::Buffered] {
            let saver = Saver::new(&copy).backend(backend);
            saver.save(&loaded, loaded.range()).expect("save");
            assert_same(backend.name(), &std::fs::read(&copy).expect("read"), &wanted);
        }
    }
}

#[test]
fn sealed_buffer_cannot_change() {
    let folder = folder();
    let (path, wanted) = file_of(&folder, (2 << 20) + 5000);
    for backend in [Backend::Memfd, Backend::Buffered] {
        let loader = Loader::new(&path).backend(backend).kind(Kind::Memfd);
        let mut loaded = loader.load().expect("load");
        let mut view = loaded.try_clone().expect("a descriptor");
        let mapped = view.map_mut().expect("a view");
        let busy = loaded.seal().expect_err("it is mapped for writing");
        assert_eq!(busy.errno(), Some(dmabuf_dio::Errno::BUSY), "{busy}");
        assert!(loaded.is_writable());
        mapped.finish().expect("finish");
        loaded.seal().expect("sealed");
        assert!(!loaded.is_writable());
        assert!(matches!(loaded.map_mut(), Err(Error::ReadOnlyBuffer)));
        assert_eq!(
            rustix::io::pwrite(loaded.fd().expect("a descriptor"), b"x", 0),
            Err(Errno::PERM)
        );
        assert_same(backend.name(), &bytes(&loaded)[..wanted.len()], &wanted);
        let again = Buffer::from_fd(loaded.into_fd().expect("its descriptor")).expect("a buffer");
        assert!(!again.is_writable(), "it says so to whoever gets it");
        assert!(matches!(loader.load_into(&again, 0), Err(Error::ReadOnlyBuffer)));
    }
}
