// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading into existing buffers, and saving ranges of them.

use crate::common::{assert_same, buffers, bytes, content, file_of, fill, folder, huge, page};
use dmabuf_dio::{Backend, Buffer, Error, Kind, Loader, Saver};

/// Offset in the file, offset in the buffer, length.
const RANGES: [(u64, u64, u64); 10] = [
    (0, 0, 1),
    (0, 0, 65_536),
    (4096, 8192, 40_960),
    (1, 1, 100_000),
    (513, 4609, 70_000),
    (511, 511, 2),
    (100, 612, 1000),
    (8191, 4095, 12_290),
    (0, 1, 50_000),
    (12_345, 54_321, 54_321),
];

#[test]
fn load_into_changes_only_its_range() {
    let folder = folder();
    let (path, expected) = file_of(&folder, 200_001);
    for (mut buf, backends) in buffers(262_144) {
        for backend in backends {
            for (offset, at, length) in RANGES {
                let what = format!("{backend}: {length} bytes from {offset} to {at}");
                fill(&mut buf, 0xa5);
                let loader = Loader::new(&path).backend(backend).offset(offset).length(length);
                let report = loader.load_into(&buf, at).expect(&what);
                assert_eq!(report.backend, Some(backend));
                assert_eq!(report.bytes, length);
                let mut wanted = vec![0xa5; buf.len() as usize];
                let source = &expected[offset as usize..(offset + length) as usize];
                wanted[at as usize..(at + length) as usize].copy_from_slice(source);
                assert_same(&what, &bytes(&buf), &wanted);
            }
        }
    }
}

#[test]
fn load_into_reaches_the_last_byte() {
    let folder = folder();
    let (path, expected) = file_of(&folder, 69_632 + 777);
    for (mut buf, backends) in buffers(131_072) {
        for backend in backends {
            let at = buf.len() - expected.len() as u64;
            fill(&mut buf, 0x11);
            Loader::new(&path).backend(backend).load_into(&buf, at).expect("load");
            let all = bytes(&buf);
            assert_same(backend.name(), &all[at as usize..], &expected);
            assert!(all[..at as usize].iter().all(|byte| *byte == 0x11));
        }
    }
}

#[test]
fn load_into_works_in_small_blocks() {
    let folder = folder();
    let (path, expected) = file_of(&folder, (3 << 20) + 1234);
    for (mut buf, backends) in buffers(4 << 20) {
        for backend in backends {
            fill(&mut buf, 0);
            let loader = Loader::new(&path)
                .backend(backend)
                .block_size(page() as u64)
                .queue_depth(32)
                .allocation_step(2 * page() as u64);
            loader.load_into(&buf, 4096).expect("load");
            let all = bytes(&buf);
            assert_same(backend.name(), &all[4096..4096 + expected.len()], &expected);
        }
    }
}

#[test]
fn length_zero_moves_nothing() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    for (mut buf, backends) in buffers(4096) {
        for backend in backends {
            fill(&mut buf, 0x33);
            let loader = Loader::new(&path).backend(backend).length(0);
            let report = loader.load_into(&buf, 4096).expect("nothing to do");
            assert_eq!(report.bytes, 0);
            assert!(bytes(&buf).iter().all(|byte| *byte == 0x33));
        }
    }
}

#[test]
fn saved_ranges_have_their_bytes() {
    let folder = folder();
    let image = content(262_144, 9);
    for (mut buf, backends) in buffers(262_144) {
        buf.map_mut().expect("map").write_at(0, &image).expect("write");
        for backend in backends {
            for (_, at, length) in RANGES {
                let what = format!("{backend}: {length} bytes from {at}");
                let path = folder.path().join("saved");
                let range = at..at + length;
                let report = Saver::new(&path).backend(backend).save(&buf, range).expect(&what);
                assert_eq!((report.backend, report.bytes), (Some(backend), length));
                let saved = std::fs::read(&path).expect("read");
                assert_same(&what, &saved, &image[at as usize..(at + length) as usize]);
            }
        }
    }
}

#[test]
fn in_place_save_changes_only_its_range() {
    use std::os::fd::AsFd as _;
    let folder = folder();
    let image = content(131_072, 5);
    let path = folder.path().join("in-place");
    for (mut buf, backends) in buffers(131_072) {
        buf.map_mut().expect("map").write_at(0, &image).expect("write");
        for backend in backends {
            for (to, at, length) in RANGES.map(|(to, at, length)| (to, at, length.min(60_000))) {
                let what = format!("{backend}: {length} bytes from {at} to {to}");
                let mut wanted = vec![0x77; 200_000];
                crate::common::write_cold(&path, &wanted);
                let file =
                    std::fs::File::options().read(true).write(true).open(&path).expect("open");
                let saver = Saver::to_fd(file.as_fd()).backend(backend).offset(to);
                saver.save(&buf, at..at + length).expect(&what);
                wanted[to as usize..(to + length) as usize]
                    .copy_from_slice(&image[at as usize..(at + length) as usize]);
                assert_same(&what, &std::fs::read(&path).expect("read"), &wanted);
            }
        }
    }
}

#[test]
fn in_place_save_extends_the_file() {
    use std::os::fd::AsFd as _;
    let folder = folder();
    let image = content(131_072, 6);
    let path = folder.path().join("growing");
    for (mut buf, backends) in buffers(131_072) {
        buf.map_mut().expect("map").write_at(0, &image).expect("write");
        for backend in backends {
            // From the middle of the loaded data, from its end, and from beyond it.
            for (to, at, length) in [(500, 500, 70_001), (3000, 4096, 8192), (20_481, 1, 50_000)] {
                let what = format!("{backend}: {length} bytes from {at} to {to}");
                let mut wanted = vec![0x55; 3000];
                crate::common::write_cold(&path, &wanted);
                let file =
                    std::fs::File::options().read(true).write(true).open(&path).expect("open");
                let saver = Saver::to_fd(file.as_fd()).backend(backend).offset(to);
                saver.save(&buf, at..at + length).expect(&what);
                wanted.resize((to + length) as usize, 0);
                wanted[to as usize..].copy_from_slice(&image[at as usize..(at + length) as usize]);
                assert_same(&what, &std::fs::read(&path).expect("read"), &wanted);
            }
        }
    }
}

#[test]
fn backend_for_another_buffer_kind_is_refused() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    for (buf, _) in buffers(4096) {
        for backend in Backend::ALL {
            if Backend::for_existing(buf.kind()).contains(&backend) {
                continue;
            }
            let loader = Loader::new(&path).backend(backend);
            let error = loader.load_into(&buf, 0).expect_err("refused");
            assert!(matches!(error, Error::Unavailable { asked: Some(_), .. }), "{error}");
            assert!(error.hint().to_string().contains("use one of"), "{}", error.hint());
        }
    }
}

/// As a load into new memory does: nobody has touched the pages yet.
#[test]
fn first_load_into_a_memfd_uses_huge_pages() {
    let folder = folder();
    let len = 3 * huge();
    let (path, expected) = file_of(&folder, len + 777);
    let new = || {
        let loaded = Loader::new(&path).kind(Kind::Memfd).load().expect("load");
        loaded.report().and_then(|report| report.huge_bytes).unwrap_or(0)
    };
    // The kernel refuses to collapse pages that others hold for a moment.
    let most = (0..10).map(|_| new()).max().unwrap_or(0).min(len as u64);
    let into = |huge_pages| {
        let buf = Buffer::memfd(expected.len() as u64).expect("a memfd");
        let loader = Loader::new(&path).huge_pages(huge_pages);
        let report = loader.load_into(&buf, 0).expect("load");
        assert_same("into new memory", &bytes(&buf)[..expected.len()], &expected);
        report.huge_bytes.unwrap_or(0)
    };
    let found = (0..10).map(|_| into(true)).max().unwrap_or(0);
    assert!(found >= most, "{found} of {most} bytes in huge pages");
    if most == 0 {
        println!("skipped: no huge pages for memfds here");
    } else if std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
        .is_ok_and(|text| text.contains("[never]") || text.contains("[advise]"))
    {
        assert_eq!(into(false), 0, "small pages were asked for");
    }
}
