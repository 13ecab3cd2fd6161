// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data that is stored into a memfd stays when all other users of its pages are closed. DMA into a
//! page does not mark it dirty; a page that is clean is dropped when memory is needed, and is zero
//! then. Dropping the caches drops every such page at once.
//!
//! This is a program of its own, because other tests measure the caches. Only in guests, for the
//! same reason.

mod common;

use std::os::fd::AsFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{assert_same, available, bytes, content, file_of, folder, huge, page, takes};
use dmabuf_dio::gather::{Gatherer, Piece};
use dmabuf_dio::lend::NotLent;
use dmabuf_dio::{Backend, Buffer, Error, Kind, Loader};
use dmabuf_dio_sys::udmabuf;
use rustix::fs::{FallocateFlags, fallocate};

const LEN: usize = (1 << 20) + 1234;

/// One test at a time, as each drops the caches; `None` on machines that are not guests of tests.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    if std::env::var_os("DMABUF_DIO_KERNEL").is_none() {
        println!("skipped: the caches of this machine are not dropped");
        return None;
    }
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Takes away every page that is clean and not in use.
fn drop_caches() {
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("caches dropped");
}

/// An operation on the pages of a memfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// Nothing: there are none.
    Missing,
    /// Only `fallocate()`: dirty, but neither zeroed nor known to hold anything.
    Allocated,
    /// Only read: zeroed, clean.
    Read,
    /// Allocated and mapped for writing: zeroed, dirty.
    Populated,
    /// Written by the CPU.
    Written,
}

const ALL: [Pages; 5] =
    [Pages::Missing, Pages::Allocated, Pages::Read, Pages::Populated, Pages::Written];

fn memfd(pages: Pages, len: u64) -> Buffer {
    let mut buf = Buffer::memfd(len).expect("a memfd");
    match pages {
        Pages::Missing => {}
        Pages::Allocated => {
            fallocate(buf.fd().expect("a descriptor"), FallocateFlags::empty(), 0, buf.len())
                .expect("allocated");
        }
        Pages::Read => assert!(buf.page_sizes().is_some()),
        Pages::Populated => populate(&buf),
        Pages::Written => common::fill(&mut buf, 0x5a),
    }
    buf
}

fn populate(buf: &Buffer) {
    let mapping = buf.mapping(true).expect("mapped");
    let (start, len) = (mapping.as_ptr().cast(), mapping.len() as usize);
    // SAFETY: this advice keeps the content, and the range is that of a mapping.
    let result = unsafe { libc::madvise(start, len, libc::MADV_POPULATE_WRITE) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn udmabuf_over(memfd: &Buffer) -> Buffer {
    let device = udmabuf::open().expect("udmabuf");
    let fd = udmabuf::create(device.as_fd(), memfd.fd().expect("a descriptor"), 0, memfd.len())
        .expect("a udmabuf");
    Buffer::from_fd(fd).expect("a dma-buf")
}

/// That clean pages are dropped, or the other tests would prove nothing.
#[test]
fn reclaim_drops_clean_pages() {
    let Some(_alone) = alone() else { return };
    for (pages, kept) in [(Pages::Read, false), (Pages::Populated, true), (Pages::Written, true)] {
        let buf = memfd(pages, LEN as u64);
        drop_caches();
        let blocks = rustix::fs::fstat(buf.fd().expect("a descriptor")).expect("stat").st_blocks
            as u64
            * 512;
        assert_eq!(blocks, if kept { buf.len() } else { 0 }, "{pages:?}");
    }
}

#[test]
fn load_into_a_new_memfd_survives_reclaim() {
    let Some(_alone) = alone() else { return };
    let folder = folder();
    for len in [page() + 1, huge() + 5] {
        let (path, wanted) = file_of(&folder, len);
        for &backend in Backend::for_new(Kind::Memfd) {
            for in_huge in [true, false] {
                let what = format!("{len} bytes by {backend}, huge pages: {in_huge}");
                let loader = Loader::new(&path).backend(backend).huge_pages(in_huge);
                let loaded = loader.kind(Kind::Memfd).load().expect(&what);
                drop_caches();
                assert_same(&what, &bytes(&loaded)[..len], &wanted);
            }
        }
    }
}

#[test]
fn load_into_an_existing_memfd_survives_reclaim() {
    let Some(_alone) = alone() else { return };
    let folder = folder();
    let (path, wanted) = file_of(&folder, LEN);
    for pages in ALL {
        for &backend in Backend::for_existing(Kind::Memfd) {
            for piece in [64 << 10, 16 << 20] {
                let what = format!("{pages:?}, {backend}, {piece} at a time");
                let buf = memfd(pages, LEN as u64 + 8192);
                let loader = Loader::new(&path).backend(backend).block_size(piece);
                loader.load_into(&buf, 4096).expect(&what);
                drop_caches();
                assert_same(&what, &bytes(&buf)[4096..][..LEN], &wanted);
            }
        }
    }
}

#[test]
fn gather_into_a_memfd_survives_reclaim() {
    let Some(_alone) = alone() else { return };
    let folder = folder();
    let (path, content) = file_of(&folder, LEN);
    let pieces = [(40_960, 0), (0, 8192), (614_400, 61_440), (4096, 258_048)];
    let pieces = pieces.map(|(offset, buf_offset)| Piece { offset, buf_offset, len: 4096 });
    let check = |what: &str, buf: &Buffer| {
        drop_caches();
        let found = bytes(buf);
        for piece in &pieces {
            let there = &found[piece.buf_offset as usize..][..4096];
            assert_same(what, there, &content[piece.offset as usize..][..4096]);
        }
    };
    for pages in ALL {
        for &backend in Backend::for_gathering(Kind::Memfd) {
            let what = format!("{pages:?}, {backend}");
            let buf = memfd(pages, 262_144);
            let mut gathering = Gatherer::new(&path).backend(backend).open(&buf).expect(&what);
            gathering.read(&pieces).expect(&what);
            check(&format!("{what}, open"), &buf);
            // Its pages are registered no more.
            drop(gathering);
            check(&what, &buf);
        }
    }
}

#[test]
fn writes_of_a_view_survive_reclaim() {
    let Some(_alone) = alone() else { return };
    for pages in ALL {
        let mut buf = memfd(pages, LEN as u64);
        let wanted = content(buf.len() as usize, 3);
        let mut view = buf.map_mut().expect("map");
        // Pages that are read first are mapped for writing, and clean.
        view.to_vec().expect("read");
        view.write_at(0, &wanted).expect("written");
        view.finish().expect("finish");
        drop_caches();
        assert_same(&format!("{pages:?}"), &bytes(&buf), &wanted);
    }
}

/// The file in memory and the dma-buf over its pages, which is filled by every backend that can and
/// then closed.
#[test]
fn stores_into_the_dma_buf_of_a_file_survive_reclaim() {
    let Some(_alone) = alone() else { return };
    if !available(Backend::Udmabuf) {
        return;
    }
    let backends = Backend::for_existing(Kind::DmaBuf).iter().copied();
    let backends: Vec<_> = backends.filter(|backend| available(*backend)).collect();
    let folder = folder();
    for len in [page() + 1, huge() + 5] {
        let (path, before) = file_of(&folder, len);
        let other = folder.path().join("other");
        let wanted = content(len, 77);
        common::write_cold(&other, &wanted);
        for source in [Backend::Memfd, Backend::Buffered] {
            for in_huge in [true, false] {
                for &backend in &backends {
                    let what = format!("{len} bytes by {source}, {in_huge}, then {backend}");
                    let loader = Loader::new(&path).backend(source).huge_pages(in_huge);
                    let loaded = loader.kind(Kind::File).load().expect(&what);
                    drop_caches();
                    assert_same(&what, &bytes(&loaded), &before);
                    let shared = loaded.shared_len() as usize;
                    let over = loaded.dma_buf().expect(&what).try_clone().expect("a descriptor");
                    let over = Buffer::from(over);
                    match Loader::new(&other).backend(backend).load_into(&over, 0) {
                        Ok(_) => {}
                        Err(Error::Unavailable { .. }) => continue,
                        Err(error) => panic!("{what}: {error}"),
                    }
                    // Without the dma-buf, nothing pins the pages.
                    let fd = loaded.fd().expect("a descriptor").try_clone_to_owned();
                    let memfd = Buffer::from_fd(fd.expect("another")).expect("a memfd");
                    drop((over, loaded));
                    drop_caches();
                    assert_same(&what, &bytes(&memfd)[..shared], &wanted[..shared]);
                }
            }
        }
    }
}

/// A udmabuf of the library has no memfd any more: nothing is left to drop its pages from.
#[test]
fn udmabuf_keeps_its_pages() {
    let Some(_alone) = alone() else { return };
    if !available(Backend::Udmabuf) {
        return;
    }
    let folder = folder();
    let (path, wanted) = file_of(&folder, LEN);
    for in_huge in [true, false] {
        let loader = Loader::new(&path).backend(Backend::Udmabuf).huge_pages(in_huge);
        let loaded = loader.load().expect("load");
        drop_caches();
        assert_same("a udmabuf", &bytes(&loaded)[..LEN], &wanted);
    }
}

/// Whether this kernel's udmabuf has pages that were only allocated: with the series it fills them.
fn has_unfilled_pages() -> bool {
    if !available(Backend::Module) {
        return false;
    }
    let refusal = refusal_of(&udmabuf_over(&memfd(Pages::Allocated, 1 << 20)));
    let kernel = std::env::var("DMABUF_DIO_KERNEL").unwrap_or_default();
    let fixed = kernel.starts_with("7.3-")
        && ["series", "fixes", "mapped"].iter().any(|with| kernel.contains(with));
    assert_eq!(refusal, (!fixed).then_some(NotLent::Unfilled));
    !fixed
}

/// Why the module does not borrow a buffer; `None` if it does.
fn refusal_of(buf: &Buffer) -> Option<NotLent> {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    match Loader::new(path).backend(Backend::Module).load_into(buf, 0) {
        Err(Error::Unavailable { refusals, .. }) => refusals[0].not_lent,
        result => {
            result.expect("load");
            None
        }
    }
}

/// Udmabufs of others, over memfds that they keep.
#[test]
fn stores_into_a_foreign_udmabuf_survive_reclaim() {
    let Some(_alone) = alone() else { return };
    if !available(Backend::Udmabuf) {
        return;
    }
    let folder = folder();
    let (path, wanted) = file_of(&folder, LEN);
    for pages in ALL.into_iter().filter(|pages| *pages != Pages::Allocated) {
        for &backend in Backend::for_existing(Kind::DmaBuf) {
            let memfd = memfd(pages, LEN as u64);
            let buf = udmabuf_over(&memfd);
            if !takes(backend, &buf) {
                continue;
            }
            match Loader::new(&path).backend(backend).load_into(&buf, 0) {
                Ok(_) => {}
                Err(Error::Unavailable { .. }) => continue,
                Err(error) => panic!("{pages:?}, {backend}: {error}"),
            }
            drop(buf);
            drop_caches();
            let found = bytes(&memfd);
            let stays = found[..LEN] == wanted;
            println!("{pages:?}, by {backend}: {}", if stays { "stays" } else { "lost" });
            let dirty = matches!(pages, Pages::Populated | Pages::Written);
            // The module marks borrowed pages. Pages that the CPU changes through the udmabuf's
            // mapping are not marked (docs/design.md).
            if dirty || backend == Backend::Module {
                assert_same(&format!("{pages:?}, by {backend}"), &found[..LEN], &wanted);
            }
        }
    }
}

/// The first write to the memfd, or access by a mapping, zeroes such pages: no backend may store into them.
#[test]
fn unfilled_udmabuf_pages_are_not_stored_into() {
    let Some(_alone) = alone() else { return };
    if !available(Backend::Udmabuf) || !has_unfilled_pages() {
        return;
    }
    let folder = folder();
    let (path, wanted) = file_of(&folder, LEN);
    let memfd = memfd(Pages::Allocated, LEN as u64);
    let buf = udmabuf_over(&memfd);
    let gathered = Gatherer::new(&path).open(&buf).map(|gathering| gathering.backend());
    let loaded = Loader::new(&path).load_into(&buf, 0).map(|report| report.backend);
    let copy = folder.path().join("copy");
    let saved = dmabuf_dio::Saver::new(&copy).save(&buf, ..).map(|report| report.backend);
    for error in [
        gathered.expect_err("not gathered"),
        loaded.expect_err("not loaded"),
        saved.expect_err("not saved"),
    ] {
        assert!(error.to_string().contains("fallocate"), "{error}");
        assert!(error.hint().to_string().contains("MADV_POPULATE_WRITE"), "{}", error.hint());
        let Error::Unavailable { refusals, .. } = error else { panic!("{error}") };
        assert_eq!(refusals[0].not_lent, Some(NotLent::Unfilled));
    }
    // The remedy is to do this.
    drop(buf);
    populate(&memfd);
    let buf = udmabuf_over(&memfd);
    Loader::new(&path).load_into(&buf, 0).expect("load");
    drop(buf);
    drop_caches();
    assert_same("populated", &bytes(&memfd)[..LEN], &wanted);
}
