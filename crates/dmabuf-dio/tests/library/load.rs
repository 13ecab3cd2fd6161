// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading into a new buffer, with every available backend.

use std::os::fd::AsFd;

use crate::common::{assert_same, backends, bytes, file_of, folder, page};
use dmabuf_dio::{Backend, Buffer, Error, Kind, Loader, Saver};

const SIZES: [usize; 6] = [1, 4095, 4096, 4097, (1 << 20) + 1, (64 << 20) + 2712];

#[test]
fn files_of_all_sizes_round_trip() {
    let folder = folder();
    let backends = backends();
    for size in SIZES {
        let (path, expected) = file_of(&folder, size);
        for &backend in &backends {
            let what = format!("{backend}, {size} bytes");
            let loaded = match Loader::new(&path).backend(backend).load() {
                Err(error) if is_size_limit(&error) => {
                    println!("skipped {what}: {error}");
                    continue;
                }
                result => result.expect(&what),
            };
            assert_eq!((loaded.data_offset(), loaded.data_len()), (0, size as u64), "{what}");
            assert_eq!(loaded.report().expect("loaded").backend, Some(backend));
            assert_eq!(loaded.report().expect("loaded").bytes, size as u64);
            let content = bytes(&loaded);
            assert_same(&what, &content[..size], &expected);
            assert!(content[size..].iter().all(|byte| *byte == 0), "{what}: the rest is zero");

            let copy = folder.path().join("copy");
            Saver::new(&copy).save(&loaded, loaded.range()).expect(&what);
            assert_same(&what, &std::fs::read(&copy).expect("read the copy"), &expected);
        }
        std::fs::remove_file(path).expect("remove");
    }
}

/// Before Linux 7.3 a udmabuf has at most 64 MiB, unless its parameter says otherwise.
fn is_size_limit(error: &Error) -> bool {
    let Error::Unavailable { refusals, .. } = error else { return false };
    refusals[0].backend == Backend::Udmabuf
        && refusals[0].remedy.as_ref().is_some_and(|remedy| remedy.contains("size_limit_mb"))
}

#[test]
fn load_works_in_huge_and_small_pages() {
    let folder = folder();
    let (path, expected) = file_of(&folder, (66 << 20) + 5);
    let loader = Loader::new(&path).backend(Backend::Memfd);
    let huge = loader.load().expect("load");
    let small = loader.clone().huge_pages(false).load().expect("load");
    for (what, loaded) in [("huge", &huge), ("small", &small)] {
        assert_same(what, &bytes(loaded)[..expected.len()], &expected);
        // The receiver of the descriptor can use it as a buffer.
        let given =
            Buffer::from_fd(loaded.try_clone().expect("dup").into_fd().expect("its descriptor"))
                .expect(what);
        assert_eq!((given.kind(), given.len()), (Kind::Memfd, loaded.len()));
        assert_same(what, &bytes(&given)[..expected.len()], &expected);
    }
    assert_eq!(small.report().expect("loaded").huge_bytes, Some(0));
    let said = small.report().expect("loaded").notes.iter().any(|note| note.contains("copied"));
    assert_eq!(
        said,
        expected.len() >= crate::common::huge(),
        "only where it could have been otherwise"
    );
    let private = Loader::new(&path).huge_pages(false).kind(Kind::Private).load().expect("load");
    assert_eq!(private.report().expect("loaded").huge_bytes, Some(0));
    assert_same("private", private.bytes().expect("its own"), &expected);
}

#[test]
fn ranges_at_odd_offsets_load() {
    let folder = folder();
    let (path, expected) = file_of(&folder, 300_001);
    let ranges = [
        (0, 1),
        (1, 1),
        (4095, 2),
        (4096, 4096),
        (511, 8193),
        (100_000, 200_001),
        (300_000, 1),
        (12_288, 5),
        (8191, 291_810),
    ];
    for backend in backends() {
        for (offset, length) in ranges {
            let what = format!("{backend}, {length} bytes at {offset}");
            let loaded = Loader::new(&path)
                .backend(backend)
                .offset(offset)
                .length(length)
                .load()
                .expect(&what);
            let content = bytes(&loaded);
            let range = loaded.range();
            assert_eq!(range.end - range.start, length);
            let (start, end) = (range.start as usize, range.end as usize);
            let wanted = &expected[offset as usize..(offset + length) as usize];
            assert_same(&what, &content[start..end], wanted);
            let around = content[..start].iter().chain(&content[end..]);
            assert!(around.copied().all(|byte| byte == 0), "{what}: shows what nobody asked for");
        }
    }
}

#[test]
fn small_blocks_load_at_every_depth() {
    let folder = folder();
    let (path, expected) = file_of(&folder, 1_000_003);
    for backend in backends() {
        let page = page() as u64;
        for (chunk, depth, gather) in
            [(page, 1, page), (2 * page, 64, 65_536), (3 * page, 3, 65_536)]
        {
            let what = format!("{backend}, {chunk} x {depth}, {gather}");
            let loader = Loader::new(&path).backend(backend).block_size(chunk).queue_depth(depth);
            let loaded = loader.allocation_step(gather).offset(3).load().expect(&what);
            let range = loaded.range();
            let content = bytes(&loaded);
            let content = &content[range.start as usize..range.end as usize];
            assert_same(&what, content, &expected[3..]);
        }
    }
}

#[test]
fn load_from_a_descriptor_keeps_its_position() {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let folder = folder();
    let (path, expected) = file_of(&folder, 10_000);
    let mut file = std::fs::File::open(path).expect("open");
    file.seek(SeekFrom::Start(7)).expect("seek");
    let loaded = Loader::from_fd(file.as_fd()).load().expect("load");
    assert_same("all of it", &bytes(&loaded)[..10_000], &expected);
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).expect("read");
    assert_same("from where it was", &rest, &expected[7..]);
}

/// A block device over a file.
struct LoopDevice(String);

impl LoopDevice {
    fn over(path: &std::path::Path) -> Option<Self> {
        let made = std::process::Command::new("losetup")
            .args(["--find", "--show", "--read-only"])
            .arg(path)
            .output()
            .ok()
            .filter(|output| output.status.success());
        if made.is_none() {
            println!("skipped: no loop device");
        }
        Some(Self(String::from_utf8(made?.stdout).expect("text").trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// If the file may not be reopened, only a duplicate of the descriptor can be used, which shares
/// its position.
#[test]
fn load_works_with_an_unreopenable_descriptor() {
    use std::io::{Seek as _, SeekFrom};
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become somebody else");
        return;
    }
    let folder = folder();
    let (path, _) = file_of(&folder, 16 << 10);
    rustix::fs::chmod(&path, 0o600.into()).expect("nobody else's");
    let disk = LoopDevice::over(&path);
    let disk = disk.as_ref().map(|disk| std::path::PathBuf::from(&disk.0));
    for path in disk.into_iter().chain([path]) {
        let mut file = std::fs::File::open(&path).expect("open");
        let mut expected = vec![0; 10_000];
        rustix::io::pread(&file, &mut expected, 0).expect("read");
        file.seek(SeekFrom::Start(512)).expect("seek");
        let nobody = 65534;
        // SAFETY: changes whose files this thread may open.
        unsafe { libc::setfsuid(nobody) };
        let again = std::fs::File::open(&path);
        let results = Backend::ALL
            .map(|backend| Loader::from_fd(file.as_fd()).length(10_000).backend(backend).load());
        // SAFETY: as above.
        unsafe { libc::setfsuid(0) };
        assert!(again.is_err(), "{} may be opened again", path.display());
        for loaded in results {
            match loaded {
                Ok(loaded) => {
                    let what = format!("{}: {}", path.display(), loaded.report().expect("loaded"));
                    println!("{what}");
                    assert_same(&what, &bytes(&loaded)[..10_000], &expected);
                }
                Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error}"),
            }
        }
        assert_eq!(file.stream_position().expect("a position"), 512, "{}", path.display());
    }
}

#[test]
fn deleted_file_loads_from_its_descriptor() {
    let folder = folder();
    let (path, expected) = file_of(&folder, 5000);
    let file = std::fs::File::open(&path).expect("open");
    std::fs::remove_file(path).expect("remove");
    let loaded = Loader::from_fd(file.as_fd()).load().expect("load");
    assert_same("content", &bytes(&loaded)[..5000], &expected);
}

#[test]
fn file_with_holes_loads_zeroes() {
    use std::os::unix::fs::FileExt as _;
    let folder = folder();
    let path = folder.path().join("holes");
    let file = std::fs::File::create(&path).expect("create");
    file.write_all_at(b"middle", 1 << 20).expect("write");
    file.set_len(3 << 20).expect("set the length");
    file.sync_all().expect("sync");
    let expected = std::fs::read(&path).expect("read");
    for backend in backends() {
        let loaded = Loader::new(&path).backend(backend).load().expect("load");
        assert_same(backend.name(), &bytes(&loaded)[..3 << 20], &expected);
    }
}

/// Backends that are tried for any kind of buffer, in this order.
fn order() -> impl Iterator<Item = (Backend, Kind)> {
    [Kind::DmaBuf, Kind::Memfd]
        .into_iter()
        .flat_map(|kind| Backend::for_new(kind).iter().map(move |backend| (*backend, kind)))
}

#[test]
fn best_backend_is_chosen_and_refusals_are_listed() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    let loaded = Loader::new(&path).load().expect("load");
    let (report, kind) = (loaded.report().expect("loaded"), loaded.kind());
    let before = order().take_while(|(one, of)| (Some(*one), *of) != (report.backend, kind));
    let before: Vec<_> = before.map(|(backend, _)| backend).collect();
    let refused: Vec<_> = report.refusals.iter().map(|refusal| refusal.backend).collect();
    assert_eq!(refused, before);
    for refusal in &report.refusals {
        assert!(refusal.remedy.is_some(), "{refusal}");
    }
}

#[test]
fn buffer_has_the_requested_kind() {
    let folder = folder();
    let (path, wanted) = file_of(&folder, 5000);
    let any = Loader::new(&path).load().expect("load").kind();
    let asked = Loader::new(&path).kind(Kind::Any).load().expect("load").kind();
    assert_eq!(asked, any, "it is the default");
    for kind in [Kind::DmaBuf, Kind::Memfd, Kind::File, Kind::Private] {
        match Loader::new(&path).kind(kind).load() {
            Ok(loaded) => {
                assert_eq!(loaded.kind(), kind);
                assert_eq!(loaded.report().expect("loaded").buffer, Some(kind));
                assert_same("loaded", &bytes(&loaded)[..5000], &wanted);
            }
            // All backends that could create one say why they do not.
            Err(error) => {
                let hint = error.hint().to_string();
                // The message is one line. The reasons are available on request.
                assert_eq!(error.to_string(), "no dma-buf can be created here");
                assert!(hint.starts_with("allow any kind of buffer"), "{hint}");
                let reasons = error.refusals().iter().map(|refusal| refusal.backend);
                assert!(reasons.eq(Backend::for_new(kind).iter().copied()), "{error:?}");
                assert!(!hint.contains('\n'), "{hint}");
                let Error::Unavailable { asked: None, refusals, .. } = error else {
                    panic!("{error}")
                };
                assert_eq!((kind, any), (Kind::DmaBuf, Kind::Memfd));
                let refused: Vec<_> = refusals.iter().map(|refusal| refusal.backend).collect();
                assert_eq!(refused, Backend::for_new(kind));
            }
        }
    }
    for (backend, kind) in [(Backend::Memfd, Kind::DmaBuf), (Backend::Module, Kind::Memfd)] {
        let error = Loader::new(&path).backend(backend).kind(kind).load().expect_err("another");
        let Error::Unavailable { asked, refusals, .. } = &error else { panic!("{error}") };
        assert_eq!((*asked, refusals.len()), (Some(backend), 1));
        assert!(error.to_string().contains(&format!("it cannot create a {kind}")), "{error}");
        assert!(error.hint().to_string().contains("use one of: "), "{}", error.hint());
    }
    let loaded = Loader::new(&path).backend(Backend::Memfd).load().expect("its kind");
    assert_eq!(loaded.kind(), Kind::Memfd);
}

#[test]
fn requested_unavailable_backend_is_an_error() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    for backend in Backend::ALL {
        if dmabuf_dio::probe::backend(backend).available {
            continue;
        }
        let error = Loader::new(&path).backend(backend).load().expect_err("unavailable");
        let Error::Unavailable { asked, refusals, .. } = &error else { panic!("{error}") };
        assert_eq!((*asked, refusals.len()), (Some(backend), 1));
        assert!(error.to_string().contains(backend.name()));
        assert!(!error.hint().to_string().is_empty());
    }
}

#[test]
fn buffer_kind_matches_the_backend() {
    let folder = folder();
    let (path, _) = file_of(&folder, 6 << 20);
    for backend in backends() {
        let loaded = Loader::new(&path).backend(backend).load().expect("load");
        let kind = loaded.kind();
        match backend {
            Backend::Module
            | Backend::UringSlot
            | Backend::Heap
            | Backend::CopyFileRange
            | Backend::Udmabuf => {
                assert_eq!(kind, Kind::DmaBuf);
                assert!(loaded.exporter().is_some());
            }
            Backend::Memfd => {
                assert_eq!(kind, Kind::Memfd);
                assert!(loaded.report().expect("loaded").page_size.is_some());
                assert_eq!(
                    loaded.report().expect("loaded").page_size,
                    loaded.page_sizes().map(|p| p.page_size)
                );
            }
            _ => {}
        }
        assert!(loaded.len() >= loaded.data_len());
        assert!(loaded.is_writable());
    }
}
