// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers whose memory is shared: others shrink it and write it concurrently.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{content, file_of, folder};
use dmabuf_dio::{Backend, Buffer, Error, Loader, Saver};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

const LEN: u64 = 8 << 20;

/// Memory that anyone with a descriptor can shrink: without seals, with huge pages, not a memfd.
fn shrinkable() -> Vec<(&'static str, OwnedFd)> {
    let memfd = |flags| rustix::fs::memfd_create("theirs", MemfdFlags::CLOEXEC | flags);
    let shm = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let all = [
        ("a memfd", memfd(MemfdFlags::empty())),
        ("a memfd of huge pages", memfd(MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)),
        ("a file on a tmpfs", rustix::fs::open("/dev/shm", shm, Mode::RWXU)),
    ];
    let mut got = Vec::new();
    for (name, fd) in all {
        match fd.and_then(|fd| rustix::fs::ftruncate(&fd, LEN).map(|()| fd)) {
            Ok(fd) => got.push((name, fd)),
            Err(errno) => println!("skipped {name}: {errno}"),
        }
    }
    got
}

/// The buffer, and a descriptor for someone else.
fn pair(fd: OwnedFd) -> (Buffer, OwnedFd) {
    let theirs = fd.try_clone().expect("another descriptor");
    (Buffer::from_fd(fd).expect("a buffer"), theirs)
}

fn is_gone(name: &str, error: &Error) {
    println!("{name}: {error}\n    {}", error.hint());
    let fault = error.errno().is_some_and(|errno| errno.raw() == libc::EFAULT);
    assert!(matches!(error, Error::Buffer { .. }) && fault, "{name}: {error}");
}

#[test]
fn view_of_a_shrunk_memfd_gives_an_error() {
    for (name, fd) in shrinkable() {
        let (mut buf, theirs) = pair(fd);
        let mut view = match buf.map_mut() {
            Ok(view) => view,
            // There are no huge pages for it.
            Err(error) => {
                println!("skipped {name}: {error}");
                continue;
            }
        };
        let bytes = content(10_000, 1);
        view.write_at(5, &bytes).expect("written");
        let mut out = vec![0; bytes.len()];
        view.read_at(5, &mut out).expect("read");
        assert_eq!(out, bytes, "{name}");
        rustix::fs::ftruncate(&theirs, 2 << 20).expect("shrunk");
        view.read_at(5, &mut out).expect("that is still there");
        assert_eq!(out, bytes, "{name}");
        let at = (2 << 20) - 5000;
        is_gone(name, &view.read_at(at, &mut out).expect_err("half of it is gone"));
        is_gone(name, &view.write_at(at, &bytes).expect_err("half of it is gone"));
        is_gone(name, &view.fill_at(at, 1 << 20, 7).expect_err("half of it is gone"));
        is_gone(name, &view.to_vec().expect_err("most of it is gone"));
        view.finish().expect("a memfd has nothing to end");
        let view = buf.map().expect("it has the length that it had");
        is_gone(name, &view.read_at(LEN - 1, &mut [0]).expect_err("the last byte is gone"));
        assert!(matches!(view.read_at(LEN, &mut [0]), Err(Error::RangeBeyondBuffer { .. })));
    }
}

/// Buffers created by the library, wherever their memory comes from.
#[test]
fn shrinking_a_loaded_buffer_is_refused_or_noticed() {
    let folder = folder();
    let (path, expected) = file_of(&folder, 6_000_001);
    for backend in [Backend::Memfd, Backend::Buffered] {
        for huge in [true, false] {
            let loaded =
                Loader::new(&path).backend(backend).huge_pages(huge).load().expect("loaded");
            let theirs = loaded
                .fd()
                .expect("a descriptor")
                .try_clone_to_owned()
                .expect("another descriptor");
            let view = loaded.map().expect("a view");
            assert_eq!(view.to_vec().expect("all")[..expected.len()], expected, "{backend}");
            match rustix::fs::ftruncate(&theirs, 0) {
                Ok(()) => is_gone(
                    backend.name(),
                    &view.read_at(0, &mut [0; 100]).expect_err("all of it is gone"),
                ),
                // It is sealed, or a dma-buf.
                Err(errno) => {
                    println!("{backend}: {errno}");
                    view.read_at(0, &mut [0; 100]).expect("it is still there");
                }
            }
        }
    }
}

#[test]
fn own_memfds_are_sealed_against_shrinking() {
    let buf = Buffer::memfd(LEN).expect("a memfd");
    let seals = rustix::fs::fcntl_get_seals(buf.fd().expect("a descriptor")).expect("seals");
    assert!(seals.contains(SealFlags::SHRINK), "{seals:?}");
    let allowed = rustix::fs::memfd_create("theirs", MemfdFlags::ALLOW_SEALING).expect("a memfd");
    rustix::fs::ftruncate(&allowed, LEN).expect("its length");
    let (buf, theirs) = pair(allowed);
    let view = buf.map().expect("a view");
    assert_eq!(rustix::fs::ftruncate(&theirs, 0), Err(rustix::io::Errno::PERM));
    view.read_at(LEN - 1, &mut [0]).expect("it is there");
}

/// Transfers fail with an error other than out of memory: there is enough memory.
#[test]
fn transfers_of_a_shrunk_memfd_fail() {
    let folder = folder();
    let (path, _) = file_of(&folder, LEN as usize);
    let target = folder.path().join("target");
    for (offset, length) in [(0, LEN), (0, 100_000), (100, 5000), (4096, LEN - 4096)] {
        for backend in [Backend::Memfd, Backend::Buffered] {
            for (name, fd) in shrinkable() {
                let (buf, theirs) = pair(fd);
                rustix::fs::ftruncate(&theirs, 0).expect("shrunk");
                let loader = Loader::new(&path).backend(backend).offset(offset).length(length);
                let what = format!("{name}, {backend}, {length} bytes at {offset}");
                let Err(error) = loader.load_into(&buf, offset) else {
                    // Mapping one with huge pages for writing extends it to the length of the
                    // mapping.
                    assert!(name.contains("huge"), "{what}: there is no memory");
                    continue;
                };
                println!("{what}: {error}");
                let fault = error.errno().is_some_and(|errno| errno.raw() == libc::EFAULT);
                let no_pool = name.contains("huge") && matches!(error, Error::Buffer { .. });
                assert!(fault || no_pool, "{what}: {error}");
                let saver = Saver::new(&target).backend(backend);
                let error = saver.save(&buf, offset..offset + length).expect_err("nothing there");
                println!("{what}: {error}");
                assert!(!matches!(error, Error::NoMemory { .. }), "{what}: {error}");
                assert!(!target.exists());
            }
        }
    }
}

/// Mapping a memfd of huge pages fails late if there are none, and leaves a gap in the address space
/// (`vms_abort_munmap_vmas()` in mm/vma.c). Another thread's memory may be there at once.
#[test]
fn failed_mapping_keeps_memory_of_other_threads() {
    const MARK: &str = "DMABUF_DIO_TEST_MAPPING_FAILS";
    if std::env::var_os(MARK).is_none() {
        let test = "shared::failed_mapping_keeps_memory_of_other_threads";
        let program = std::env::current_exe().expect("this program");
        let arguments = ["--exact", test, "--nocapture"];
        let output = Command::new(program).args(arguments).env(MARK, "1").output();
        let output = output.expect("run it again");
        let said = String::from_utf8_lossy(&output.stderr);
        return assert!(output.status.success(), "{}: {said}", output.status);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mapping = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // It is as long as the reservation, so that it gets the same address.
                let len = 10 << 20;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let prot = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: new memory at an address of the kernel's choice, unmapped by its owner.
                // `msync()` only looks: `ENOMEM` says that something is not mapped.
                unsafe {
                    let start = libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0);
                    assert_ne!(start, libc::MAP_FAILED);
                    for _ in 0..20 {
                        assert_eq!(libc::msync(start, len, libc::MS_ASYNC), 0, "it is gone");
                    }
                    libc::munmap(start, len);
                }
            }
        });
        let Some((_, fd)) = shrinkable().into_iter().find(|(name, _)| name.contains("huge")) else {
            return stop.store(true, Ordering::Relaxed);
        };
        let buf = Buffer::from_fd(fd).expect("a buffer");
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end && !mapping.is_finished() {
            if let Ok(view) = buf.map() {
                println!("skipped: there are huge pages: {}", view.len());
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// The owner of a clone may write while others read. Both threads read the written bytes.
#[test]
fn views_of_two_threads_see_written_bytes() {
    let mut buf = Buffer::memfd(1 << 16).expect("a memfd");
    let mut clone = buf.try_clone().expect("a clone");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut view = clone.map_mut().expect("a view");
            while !stop.load(Ordering::Relaxed) {
                view.fill_at(1, 60_000, 1).expect("filled");
                view.write_at(2, &vec![2; 60_000]).expect("written");
            }
        });
        let mut view = buf.map_mut().expect("a view");
        let mut most = 0;
        for round in 0..200 {
            view.write_at(round, &vec![3; 50_000]).expect("written");
            most = most.max(view.to_vec().expect("all").into_iter().max().unwrap_or(9));
        }
        stop.store(true, Ordering::Relaxed);
        assert!((2..=3).contains(&most), "{most}");
    });
}

/// A descriptor's position belongs to its owner, who may share it with others.
#[test]
fn transfers_keep_the_position_of_a_descriptor() {
    let fd = rustix::fs::memfd_create("theirs", MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&fd, LEN).expect("its length");
    rustix::fs::seek(&fd, rustix::fs::SeekFrom::Start(7)).expect("moved");
    let (buf, theirs) = pair(fd);
    assert_eq!(buf.len(), LEN);
    assert_eq!(rustix::fs::tell(&theirs), Ok(7));
    let folder = folder();
    Saver::new(folder.path().join("target")).save(&buf, ..).expect("saved");
    assert_eq!(rustix::fs::tell(&theirs), Ok(7));
    drop(File::from(theirs));
}
