// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading into private memory.

use std::path::Path;

use crate::common::{assert_same, file_of, folder, page};
use dmabuf_dio::{Backend, Buffer, CancelToken, Error, Kind, Loader, Mode, Options};

#[test]
fn private_loads_of_all_sizes_are_exact() {
    let folder = folder();
    for size in [1, 4095, 4096, 4097, (4 << 20) - 1, (4 << 20) + 1, (130 << 20) + 2712] {
        let (path, expected) = file_of(&folder, size);
        let mut loaded = Loader::new(&path).kind(Kind::Private).load().expect("load");
        assert_eq!(loaded.kind(), Kind::Private);
        assert_same(&format!("{size} bytes"), loaded.bytes().expect("its own"), &expected);
        assert_eq!(loaded.report().expect("loaded").backend, None);
        assert_eq!(loaded.report().expect("loaded").buffer, Some(Kind::Private));
        let mode = if in_inode(&path, size) { Mode::Buffered } else { Mode::Direct };
        assert_eq!(
            loaded.report().expect("loaded").mode,
            mode,
            "{size} bytes: {}",
            loaded.report().expect("loaded").evidence
        );
        loaded.bytes_mut().expect("its own")[0] ^= 1;
        assert_eq!(loaded.bytes().expect("its own")[0], expected[0] ^ 1);
    }
}

/// Whether the file system stores the content in the inode, where `O_DIRECT` reads through the page
/// cache: F2FS up to `MAX_INLINE_DATA`, slightly over 3 KiB (fs/f2fs/f2fs.h).
fn in_inode(path: &Path, size: usize) -> bool {
    const F2FS_SUPER_MAGIC: u32 = 0xF2F5_2010;
    let f_type = rustix::fs::statfs(path).expect("statfs").f_type;
    size < 3072 && f_type as u64 == u64::from(F2FS_SUPER_MAGIC)
}

#[test]
fn private_ranges_at_odd_offsets_load() {
    let folder = folder();
    let (path, expected) = file_of(&folder, 9_000_001);
    for (offset, length) in [(0, 1), (4095, 2), (511, 8193), (1, 9_000_000), (5_000_000, 4_000_001)]
    {
        let loader = Loader::new(&path).offset(offset as u64).length(length as u64);
        for direct in [true, false] {
            let loaded = loader.clone().direct(direct).kind(Kind::Private).load().expect("load");
            let bytes = loaded.bytes().expect("its own");
            assert_same("the range", bytes, &expected[offset..offset + length]);
            assert_eq!(bytes.as_ptr().addr() % page(), offset % page());
        }
    }
}

#[test]
fn small_private_memory_has_no_huge_page_note() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    for huge in [true, false] {
        let loaded = Loader::new(&path).huge_pages(huge).kind(Kind::Private).load().expect("load");
        assert_eq!(loaded.report().expect("loaded").notes, [""; 0]);
    }
}

#[test]
fn pages_are_reported_unless_declined() {
    let folder = folder();
    let (path, _) = file_of(&folder, 5_000_000);
    for kind in [Kind::Private, Kind::Memfd] {
        for reports_pages in [true, false] {
            let options = Options { kind, reports_pages, ..Options::default() };
            let loader = Loader::new(&path).options(options);
            let loaded = loader.load().expect("load");
            let report = loaded.report().expect("loaded");
            let found = (report.page_size.is_some(), report.huge_bytes.is_some());
            assert_eq!(found, (reports_pages, reports_pages), "{kind}");
            assert!(loaded.page_sizes().is_some(), "{kind}");
            if kind == Kind::Memfd {
                let report = loader.load_into(&loaded, 0).expect("load");
                assert_eq!(report.page_size.is_some(), reports_pages, "into {kind}");
            }
        }
    }
}

#[test]
fn private_load_errors_match_load() {
    let folder = folder();
    let (path, _) = file_of(&folder, 10_000_000);
    let loader = Loader::new(&path);
    let short = loader.clone().length(10_000_001).kind(Kind::Private).load().expect_err("short");
    assert!(matches!(short, Error::ShortFile { end: 10_000_000, .. }), "{short}");
    let empty = loader.clone().length(0).kind(Kind::Private).load().expect_err("empty");
    assert!(matches!(empty, Error::EmptyRange { .. }), "{empty}");
    let token = CancelToken::new();
    token.cancel();
    for chunk in [1 << 20, 64 << 20] {
        let error =
            loader.clone().block_size(chunk).cancel(token.clone()).kind(Kind::Private).load();
        assert!(matches!(error, Err(Error::Cancelled { done: 0, .. })), "{error:?}");
    }
}

#[test]
fn private_load_by_a_backend_is_refused() {
    let folder = folder();
    let (path, _) = file_of(&folder, 100);
    for backend in Backend::ALL {
        let loader = Loader::new(&path).kind(Kind::Private).backend(backend);
        let error = loader.load().expect_err("there is no backend");
        let Error::Unavailable { asked, refusals, .. } = &error else { panic!("{error}") };
        assert_eq!((*asked, refusals.len()), (Some(backend), 1));
        assert_eq!(refusals[0].remedy.as_deref(), Some("leave the backend out"), "{backend}");
        // Transfers that create no buffer ignore the kind.
        if backend == Backend::Memfd {
            let buf = dmabuf_dio::Buffer::memfd(100).expect("a memfd");
            loader.load_into(&buf, 0).expect("the backend is available everywhere");
        }
    }
}

#[test]
fn loads_over_private_memory_are_exact() {
    let folder = folder();
    let (path, expected) = file_of(&folder, (9 << 20) + 77);
    let page = page() as u64;
    let mut block = Buffer::zeroed(5 << 20).expect("memory");
    let address = block.bytes().expect("its own").as_ptr();
    for (offset, length) in [
        (0, 4 << 20),
        (3, 4 << 20),
        (page * 5 + 1, 1),
        ((4 << 20) + 77, (5 << 20) - page),
        (9 << 20, 77),
        (page - 1, (5 << 20) - page + 1),
    ] {
        Loader::new(&path).offset(offset).length(length).load_over(&mut block).expect("load");
        let range = offset as usize..(offset + length) as usize;
        assert_same("over", block.bytes().expect("its own"), &expected[range]);
        let report = block.report().expect("a report");
        assert_eq!((report.bytes, report.buffer), (length, Some(Kind::Private)));
        // The memory is the same, and the place congruent to that in the file.
        let at = block.bytes().expect("its own").as_ptr() as usize - address as usize;
        assert_eq!(at as u64, offset % page);
    }
    let refused =
        |loader: &Loader<'_>, block: &mut Buffer| loader.load_over(block).expect_err("refused");
    let beyond = Loader::new(&path).offset(page - 1).length((5 << 20) - page + 2);
    assert!(matches!(refused(&beyond, &mut block), Error::RangeBeyondBuffer { .. }));
    let memfd = &mut Buffer::memfd(5 << 20).expect("memfd");
    assert!(matches!(refused(&Loader::new(&path).length(5), memfd), Error::NotPrivate));
    let part = &mut block.into_parts(&[0..100, 100..8192]).expect("parts")[1];
    assert!(matches!(refused(&Loader::new(&path).length(5), part), Error::NotPrivate));
}
