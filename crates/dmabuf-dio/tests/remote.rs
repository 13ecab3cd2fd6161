// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files with short reads and writes: every byte of every range with every backend.
//! `DMABUF_DIO_TEST_DIR` selects the file system: `tests/remote/run` covers 9p, NFS and FUSE.

mod common;
#[path = "gather/model.rs"]
#[allow(dead_code)]
mod model;

use std::fs::File;
use std::os::fd::AsFd;

use common::{assert_same, backends, buffers, bytes, content, file_of, fill, folder, write_cold};
use dmabuf_dio::gather::Gatherer;
use dmabuf_dio::{Backend, Kind, Loader, Saver};
use model::{Random, check, each, piece};
use tempfile::TempDir;

const LEN: usize = 300_001;

/// Offset in the file, offset in the buffer, length.
const RANGES: [(u64, u64, u64); 7] = [
    (0, 0, LEN as u64),
    (0, 0, 1),
    (511, 511, 2),
    (4096, 8192, 131_072),
    (777, 4873, 70_001),
    (200_000, 200_000, 100_001),
    (0, 1, 50_000),
];

/// Whether a backend supports these files: `io_uring` is not used on FUSE.
fn takes(folder: &TempDir, backend: Backend, gathers: bool) -> bool {
    const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
    let on_fuse =
        rustix::fs::statfs(folder.path()).expect("statfs").f_type as u64 == FUSE_SUPER_MAGIC;
    let by_ring = backend == Backend::UringSlot || gathers && backend == Backend::Memfd;
    !(on_fuse && by_ring)
}

#[test]
fn fuse_is_not_read_by_io_uring() {
    let folder = folder();
    let (path, expected) = file_of(&folder, LEN);
    for (buf, backends) in buffers(524_288) {
        if let Some(first) = backends.iter().find(|one| takes(&folder, **one, false)) {
            let report = Loader::new(&path).load_into(&buf, 0).expect("load");
            assert_eq!(report.backend, Some(*first));
            assert_same("whichever", &bytes(&buf)[..LEN], &expected);
        }
        for backend in backends.into_iter().filter(|one| !takes(&folder, *one, false)) {
            let error = Loader::new(&path).backend(backend).load_into(&buf, 0).map(|_| ());
            assert!(error.expect_err("refused").to_string().contains("FUSE"));
        }
    }
}

#[test]
fn remote_files_load_into_new_buffers() {
    let folder = folder();
    let (path, expected) = file_of(&folder, LEN);
    for backend in backends().into_iter().filter(|one| takes(&folder, *one, false)) {
        for (offset, _, length) in RANGES {
            let what = format!("{backend}: {length} bytes from {offset}");
            let loader = Loader::new(&path).backend(backend).offset(offset).length(length);
            let loaded = loader.block_size(65_536).load().expect(&what);
            let range = loaded.range();
            let source = &expected[offset as usize..(offset + length) as usize];
            let found = bytes(&loaded);
            assert_same(&what, &found[range.start as usize..range.end as usize], source);
            assert!(found[range.end as usize..].iter().all(|byte| *byte == 0), "{what}");
        }
    }
    let private = Loader::new(&path).kind(Kind::Private).load().expect("private");
    assert_same("private", private.bytes().expect("its own"), &expected);
}

#[test]
fn existing_buffers_load_from_and_save_to_remote_files() {
    let folder = folder();
    let (path, expected) = file_of(&folder, LEN);
    let copy = folder.path().join("copy");
    for (mut buf, backends) in buffers(524_288) {
        for backend in backends.into_iter().filter(|one| takes(&folder, *one, false)) {
            for (offset, at, length) in RANGES {
                let what = format!("{backend}: {length} bytes from {offset} to {at}");
                let file = offset as usize..(offset + length) as usize;
                let place = at as usize..(at + length) as usize;
                fill(&mut buf, 0xa5);
                let loader = Loader::new(&path).backend(backend).offset(offset).length(length);
                loader.load_into(&buf, at).expect(&what);
                let mut wanted = vec![0xa5; buf.len() as usize];
                wanted[place.clone()].copy_from_slice(&expected[file.clone()]);
                assert_same(&what, &bytes(&buf), &wanted);

                let mut wanted = content(LEN, 7);
                write_cold(&copy, &wanted);
                let target = File::options().read(true).write(true).open(&copy).expect("open");
                let saver = Saver::to_fd(target.as_fd()).backend(backend).offset(offset);
                saver.save(&buf, at..at + length).expect(&what);
                wanted[file.clone()].copy_from_slice(&expected[file]);
                assert_same(&what, &std::fs::read(&copy).expect("read"), &wanted);
            }
        }
    }
}

#[test]
fn pieces_of_remote_files_are_gathered() {
    let folder = folder();
    let (path, content) = file_of(&folder, LEN);
    each(1 << 20, |buf, backend| {
        if !takes(&folder, backend, true) {
            return;
        }
        let spare = 768 << 10..1 << 20;
        for seed in 0..4 {
            let mut random = Random::new(seed);
            let gatherer = Gatherer::new(&path).backend(backend).spare(spare.clone());
            let depth = [1, 8, 2, 64][seed as usize];
            let mut gathering = gatherer.queue_depth(depth).open(buf).expect("open");
            let pieces = random.pieces(content.len() as u64, 768 << 10, 60);
            check(&mut gathering, buf, &content, &pieces, spare.clone());
            let whole = [piece(0, 0, LEN as u64 - 1), piece(299_008, 307_200, 4096)];
            check(&mut gathering, buf, &content, &whole, spare.clone());
        }
    });
}
