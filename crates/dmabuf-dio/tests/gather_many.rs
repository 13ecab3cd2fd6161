// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ten million pieces at once. The memory use is measured for the process, so this test is alone in
//! it.

mod common;

use common::{buffers, file_of, folder, huge};
use dmabuf_dio::gather::{Gatherer, Piece};

#[test]
fn ten_million_pieces_are_gathered() {
    const COUNT: u64 = 10_000_000;
    let folder = folder();
    let (path, content) = file_of(&folder, 1 << 20);
    for (buf, backends) in buffers(COUNT * 8) {
        // Any backend will do through the page cache, and one request covers many pieces.
        let Some(&backend) = backends.first() else { continue };
        let mut gathering =
            Gatherer::new(&path).backend(backend).direct(false).open(&buf).expect("open");
        let mut pieces: Vec<_> = (0..COUNT)
            .map(|at| Piece { offset: at % (1 << 17) * 8, buf_offset: at * 8, len: 8 })
            .collect();
        for sorted in [true, false] {
            let before = peak();
            let gathered = gathering.read(&pieces).expect("read");
            assert!(gathered.is_whole() && gathered.len() as u64 == COUNT);
            let grown = peak() - before;
            println!("{backend}: {grown} KiB more, {} requests", gathered.report().requests);
            // Sorted pieces need no memory; others need a key each, in whole huge pages.
            let keys = (COUNT * 8).next_multiple_of(huge() as u64) / 1024;
            let most = if sorted { 8 << 10 } else { keys + (8 << 10) };
            assert!(grown < most, "{grown} KiB more than before");
            let view = buf.map().expect("map");
            let mut found = vec![0; 1 << 20];
            view.read_at(9 << 20, &mut found).expect("read");
            common::assert_same(backend.name(), &found, &content);
            drop(view);
            pieces.swap(0, 1);
            pieces.swap(77, 9_999_999);
        }
    }
}

/// Peak memory use of this process, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
