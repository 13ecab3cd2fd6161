// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading into private memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{assert_same, file_of, folder, page};
use dmabuf_dio::{CancelToken, Error, Loader, Mode};

#[test]
fn private_loads_of_all_sizes_are_exact() {
    let folder = folder();
    for size in [1, 4095, 4096, 4097, (4 << 20) - 1, (4 << 20) + 1, (130 << 20) + 2712] {
        let (path, expected) = file_of(&folder, size);
        let mut loaded = Loader::new(&path).load_private().expect("load");
        assert_same(&format!("{size} bytes"), &loaded, &expected);
        assert_eq!(loaded.report.backend, None);
        assert_eq!(loaded.report.buffer, None);
        let mode = if in_inode(&path, size) { Mode::Buffered } else { Mode::Direct };
        assert_eq!(loaded.report.mode, mode, "{size} bytes: {}", loaded.report.evidence);
        loaded[0] ^= 1;
        assert_eq!(loaded[0], expected[0] ^ 1);
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
            let loaded = loader.clone().direct(direct).load_private().expect("load");
            assert_same("the range", &loaded, &expected[offset..offset + length]);
            assert_eq!(loaded.as_ptr() as usize % page(), offset % page());
        }
    }
}

#[test]
fn private_memory_is_available_before_it_is_filled() {
    let folder = folder();
    for size in [5000, 9_000_001] {
        let (path, expected) = file_of(&folder, size);
        let moved = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&moved);
        let loader = Loader::new(&path)
            .offset(5)
            .progress(move |progress| told.store(progress.done, Ordering::Relaxed));
        let mut early = None;
        let loaded = loader.load_private_with(|memory| {
            assert_eq!(moved.load(Ordering::Relaxed), 0, "something was read");
            early = Some(memory);
        });
        let loaded = loaded.expect("load");
        let memory = early.expect("it was handed out");
        assert_eq!(moved.load(Ordering::Relaxed), size as u64 - 5);
        assert_eq!(memory.as_ptr().cast_const(), loaded.as_ptr());
        assert_same("the range", &loaded, &expected[5..]);
        drop(loaded.into_memory());
        // SAFETY: the load has ended, and nothing writes the memory, which has another owner.
        let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr(), memory.len() as usize) };
        assert_same("what the other owner has", bytes, &expected[5..]);
    }
}

#[test]
fn private_memory_outlives_a_failed_load() {
    let folder = folder();
    let (path, _) = file_of(&folder, 9_000_001);
    let token = CancelToken::new();
    let mut early = None;
    let failed = Loader::new(&path).cancel(token.clone()).load_private_with(|memory| {
        token.cancel();
        early = Some(memory);
    });
    assert!(matches!(failed, Err(Error::Cancelled { .. })), "{failed:?}");
    let memory = early.expect("it was handed out");
    assert_eq!(memory.len(), 9_000_001);
    // SAFETY: the load has ended: the memory has this owner alone.
    unsafe {
        let last = memory.as_ptr().add(9_000_000);
        last.write(7);
        assert_eq!(last.read(), 7);
    }
}

#[test]
fn small_private_memory_has_no_huge_page_note() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    for huge in [true, false] {
        let loaded = Loader::new(&path).huge_pages(huge).load_private().expect("load");
        assert_eq!(loaded.report.notes, [""; 0]);
    }
}

#[test]
fn private_load_errors_match_load() {
    let folder = folder();
    let (path, _) = file_of(&folder, 10_000_000);
    let loader = Loader::new(&path);
    let short = loader.clone().length(10_000_001).load_private().expect_err("short");
    assert!(matches!(short, Error::ShortFile { end: 10_000_000, .. }), "{short}");
    let empty = loader.clone().length(0).load_private().expect_err("empty");
    assert!(matches!(empty, Error::EmptyRange { .. }), "{empty}");
    let token = CancelToken::new();
    token.cancel();
    for chunk in [1 << 20, 64 << 20] {
        let error = loader.clone().block_size(chunk).cancel(token.clone()).load_private();
        assert!(matches!(error, Err(Error::Cancelled { done: 0, .. })), "{error:?}");
    }
}
