// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files in memory: opened by path they are the file, byte by byte, and the dma-buf over their pages
//! shows the same bytes.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::common::{assert_same, available, bytes, file_of, folder, huge, page};
use dmabuf_dio::{Backend, Buffer, Error, Kind, Loader, Refusal};
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

const SIZE_LIMIT: &str = "/sys/module/udmabuf/parameters/size_limit_mb";

/// The limit on the size of udmabufs, raised for as long as this lives; 64 MiB before Linux 7.3.
struct Limit(Option<String>);

static LIMIT: Mutex<()> = Mutex::new(());

impl Limit {
    fn raised() -> Self {
        let before = fs::read_to_string(SIZE_LIMIT).ok();
        let before = before.filter(|text| text.trim().parse::<u64>().is_ok_and(|mib| mib < 1024));
        Self(before.filter(|_| fs::write(SIZE_LIMIT, "1024").is_ok()))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            fs::write(SIZE_LIMIT, before.trim()).expect("the limit as before");
        }
    }
}

/// The dma-buf, which has to exist where the backend udmabuf works.
fn dmabuf(what: &str, loaded: &Buffer) -> Option<Buffer> {
    match loaded.dma_buf() {
        Ok(buf) => Some(buf.try_clone().expect("another descriptor").into()),
        Err(error) => {
            let refusal = refusal_of(&error);
            assert!(!available(Backend::Udmabuf), "{what}: {refusal}");
            assert!(refusal.remedy.is_some(), "{what}: {refusal}");
            None
        }
    }
}

/// Why a file in memory has no dma-buf.
fn refusal_of(error: &Error) -> &Refusal {
    let Error::NotADmaBuf { kind: Kind::File, why: Some(refusal) } = error else {
        panic!("{error}")
    };
    refusal
}

fn seals(buf: &Buffer) -> SealFlags {
    rustix::fs::fcntl_get_seals(buf.fd().expect("a descriptor")).expect("seals")
}

/// Maps all of a file, shared and read-only, as programs do, and copies it.
fn mapped(file: &File, len: usize) -> Vec<u8> {
    let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: a mapping of its own, gone before this returns; nobody writes or shrinks the file.
    unsafe {
        let start = rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, file, 0).expect("map");
        let bytes = std::slice::from_raw_parts(start.cast::<u8>(), len).to_vec();
        rustix::mm::munmap(start, len).expect("unmap");
        bytes
    }
}

/// Checks both faces of a loaded file.
fn check(what: &str, loaded: &Buffer, wanted: &[u8]) {
    let path = loaded.path().expect("a path");
    let file = File::open(&path).expect("open by path");
    let stat = file.metadata().expect("stat");
    assert!(stat.is_file() && !loaded.is_empty(), "{what}");
    assert_eq!((stat.len(), loaded.len()), (wanted.len() as u64, wanted.len() as u64), "{what}");
    assert_same(what, &fs::read(&path).expect("read"), wanted);
    assert_same(what, &mapped(&file, wanted.len()), wanted);
    assert!(seals(loaded).contains(SealFlags::SHRINK | SealFlags::GROW), "{what}");
    assert_eq!(loaded.kind(), Kind::File);
    for len in [0, stat.len() - 1, stat.len() + 1] {
        assert!(
            rustix::fs::ftruncate(loaded.fd().expect("a descriptor"), len).is_err(),
            "{what}: {len}"
        );
    }
    let Some(buf) = dmabuf(what, loaded) else {
        assert_eq!(loaded.shared_len(), 0, "{what}");
        return;
    };
    assert_eq!(buf.exporter().as_deref(), Some("udmabuf"), "{what}");
    assert_eq!(buf.len(), wanted.len().next_multiple_of(page()) as u64, "{what}");
    assert_eq!(loaded.shared_len(), (wanted.len() / page() * page()) as u64, "{what}");
    let theirs = bytes(&buf);
    assert_same(what, &theirs[..wanted.len()], wanted);
    assert!(theirs[wanted.len()..].iter().all(|byte| *byte == 0), "{what}: behind the content");
}

#[test]
fn file_and_dma_buf_agree_at_every_length() {
    let _alone = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let _limit = Limit::raised();
    let folder = folder();
    let (page, huge) = (page(), huge());
    for len in [1, page - 1, page, page + 1, huge, huge + 1, (9 << 20) + 5000, (64 << 20) + 123] {
        let (path, wanted) = file_of(&folder, len);
        for (backend, in_huge) in
            [(None, true), (Some(Backend::Memfd), false), (Some(Backend::Buffered), true)]
        {
            let what = format!("{len} bytes by {backend:?}, huge pages: {in_huge}");
            let loader = Loader::new(&path).backend(backend).huge_pages(in_huge);
            check(&what, &loader.kind(Kind::File).load().expect("load"), &wanted);
        }
        fs::remove_file(path).expect("remove");
    }
}

#[test]
fn loaded_file_has_huge_pages_if_possible() {
    let folder = folder();
    let whole = 3 * huge();
    let (path, _) = file_of(&folder, whole + 5);
    let can = dmabuf_dio::probe::system().huge_pages;
    let loaded = Loader::new(&path).kind(Kind::File).load().expect("load");
    if !(can.transparent || can.collapsed) {
        println!("skipped: {can:?}");
        return;
    }
    let pages = loaded.page_sizes().expect("page sizes");
    // The last huge page is mapped in part, and may count as small ones.
    assert!(
        pages.huge_bytes >= whole as u64,
        "{pages:?}, {:?}",
        loaded.report().expect("loaded").notes
    );
    let small = Loader::new(&path).huge_pages(false).kind(Kind::File).load().expect("load");
    if !can.transparent {
        assert_eq!(small.page_sizes().expect("page sizes").huge_bytes, 0);
    }
}

#[test]
fn file_and_dma_buf_share_writes() {
    let folder = folder();
    let (page, huge) = (page(), huge());
    let (path, mut wanted) = file_of(&folder, huge + page + 100);
    let loaded = Loader::new(&path).kind(Kind::File).load().expect("load");
    let shared = loaded.shared_len() as usize;
    let Some(mut buf) = dmabuf("written", &loaded) else { return };
    assert_eq!(shared, huge + page);
    for at in [0, page + 7, huge - 1, shared - 1] {
        let mut view = buf.map_mut().expect("map");
        view.write_at(at as u64, &[!wanted[at]]).expect("write");
        view.finish().expect("finish");
        wanted[at] = !wanted[at];
        assert_same("by the dma-buf", &fs::read(loaded_path(&loaded)).expect("read"), &wanted);
    }
    let file = OpenOptions::new().write(true).open(loaded_path(&loaded)).expect("open");
    for at in [1, page, huge, shared - 2] {
        wanted[at] = !wanted[at];
        file.write_all_at(&wanted[at..=at], at as u64).expect("write");
        assert_same("by the file", &bytes(&buf)[..wanted.len()], &wanted);
    }
    // The copy of the last partial page is no view of it.
    file.write_all_at(&[!wanted[shared]], shared as u64).expect("write");
    assert_same("the copy", &bytes(&buf)[..wanted.len()], &wanted);
}

fn loaded_path(file: &Buffer) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.fd().expect("a descriptor").as_raw_fd())
}

#[test]
fn sealed_file_refuses_writes() {
    let folder = folder();
    let (path, wanted) = file_of(&folder, huge() + 77);
    let mut loaded = Loader::new(&path).kind(Kind::File).load().expect("load");
    let seal = match dmabuf("sealed", &loaded) {
        Some(_) => SealFlags::FUTURE_WRITE,
        None => SealFlags::WRITE,
    };
    loaded.seal().expect("seal");
    assert!(seals(&loaded).contains(seal));
    assert!(!loaded.is_writable());
    assert!(matches!(loaded.map_mut(), Err(Error::ReadOnlyBuffer)));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(loaded.path().expect("a path"))
        .expect("open");
    let error = file.write_all_at(b"x", 0).expect_err("it is sealed");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: fails, or maps new address space.
    let map = unsafe { rustix::mm::mmap(std::ptr::null_mut(), page(), prot, flags, &file, 0) };
    assert_eq!(map.map(|_| ()), Err(rustix::io::Errno::PERM));
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&file, hole, 0, 4096), Err(rustix::io::Errno::PERM));
    check("sealed", &loaded, &wanted);
    assert_same("the source", &fs::read(&path).expect("read"), &wanted);
}

/// Why `Buffer::seal` uses another seal where there is a dma-buf, and why it comes last.
#[test]
fn kernel_refuses_write_seals_beside_a_dma_buf() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4 * page());
    let loaded = Loader::new(&path).kind(Kind::File).load().expect("load");
    if dmabuf("seals", &loaded).is_none() {
        return;
    }
    let write = rustix::fs::fcntl_add_seals(loaded.fd().expect("a descriptor"), SealFlags::WRITE);
    assert_eq!(write, Err(rustix::io::Errno::BUSY), "the pages are pinned");
    let device = dmabuf_dio_sys::udmabuf::open().expect("udmabuf");
    let create = |memfd: &Buffer, len| {
        dmabuf_dio_sys::udmabuf::create(device.as_fd(), memfd.fd().expect("a descriptor"), 0, len)
            .map(|_| ())
    };
    let inval = Err(dmabuf_dio::Errno::INVAL);
    let page = page();
    let memfd = Buffer::memfd(page as u64).expect("memfd");
    assert_eq!(create(&memfd, page as u64), Ok(()));
    rustix::fs::fcntl_add_seals(memfd.fd().expect("a descriptor"), SealFlags::FUTURE_WRITE)
        .expect("seal");
    assert_eq!(create(&memfd, page as u64), inval, "it was sealed before");
    let (odd, _) = file_of(&folder, page + 1);
    let odd = Loader::new(odd).kind(Kind::File).load().expect("load");
    assert_eq!(create(&odd, 2 * page as u64), inval, "a page that goes beyond the end");
}

#[test]
fn range_loads_at_the_start_of_the_memory_file() {
    let folder = folder();
    let (page, huge) = (page(), huge());
    let end = huge + (3 << 20) + 99;
    let (path, bytes) = file_of(&folder, end);
    for in_huge in [true, false] {
        for (offset, length) in [
            (0, 10),
            (page, huge + 3),
            (512, 6000),
            (100, page),
            (4, 3 << 20),
            (end - 99, 99),
            (7, end - 7),
        ] {
            let what = format!("{length} bytes from {offset}, huge pages: {in_huge}");
            let loader = Loader::new(&path).offset(offset as u64).length(length as u64);
            let loaded = loader.huge_pages(in_huge).kind(Kind::File).load().expect("load");
            check(&what, &loaded, &bytes[offset..offset + length]);
        }
    }
}

#[test]
fn backends_without_memfds_refuse_files() {
    let folder = folder();
    let (path, _) = file_of(&folder, 100);
    for backend in Backend::ALL {
        let result = Loader::new(&path).backend(backend).kind(Kind::File).load();
        if Backend::for_new(Kind::Memfd).contains(&backend) {
            assert_eq!(result.expect("load").report().expect("loaded").backend, Some(backend));
            continue;
        }
        let Err(Error::Unavailable { asked, refusals, .. }) = result else {
            panic!("{backend}: {result:?}")
        };
        assert_eq!(asked, Some(backend));
        let remedy = refusals[0].remedy.as_deref();
        assert_eq!(remedy, Some("use one of: memfd, buffered"), "{backend}");
    }
}

#[test]
fn file_beyond_the_udmabuf_limit_has_no_dma_buf() {
    let _alone = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = fs::read_to_string(SIZE_LIMIT).ok().and_then(|text| text.trim().parse().ok());
    let Some(64_u64) = limit else {
        println!("skipped: the limit is {limit:?} MiB");
        return;
    };
    let folder = folder();
    let (path, wanted) = file_of(&folder, (64 << 20) + 1);
    let loaded = Loader::new(&path).kind(Kind::File).load().expect("load");
    let error = loaded.dma_buf().expect_err("over the limit");
    let Refusal { reason, remedy, .. } = refusal_of(&error);
    assert!(reason.contains("64 MiB"), "{reason}");
    assert!(remedy.as_ref().is_some_and(|text| text.contains(SIZE_LIMIT)), "{remedy:?}");
    assert_same("the file", &fs::read(loaded.path().expect("a path")).expect("read"), &wanted);
}

#[test]
fn another_process_reads_the_file_by_path() {
    let folder = folder();
    let (path, _) = file_of(&folder, huge() + 12_345);
    let mut loaded = Loader::new(&path).kind(Kind::File).load().expect("load");
    loaded.seal().expect("seal");
    let link = folder.path().join("model.gguf");
    std::os::unix::fs::symlink(loaded.path().expect("a path"), &link).expect("link");
    let same = |link: &Path| Command::new("cmp").arg(&path).arg(link).status().expect("cmp");
    assert!(same(&link).success());
    assert_eq!(fs::metadata(&link).expect("stat").size(), loaded.len());
    drop(loaded);
    assert!(!same(&link).success(), "it is gone");
}
