// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviour specific to the two backends that need the patch series, and how a kernel without it
//! refuses them.
//!
//! Descriptors and signals belong to the whole process, so these tests run one after the other.

mod common;

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{assert_same, available, bytes, file_of, fill, folder};
use dmabuf_dio::{Backend, CancelToken, Errno, Error, Kind, Loader, Mode, Saver, probe};

const BOTH: [Backend; 2] = [Backend::Heap, Backend::CopyFileRange];

fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn missing_feature_differs_from_missing_device() {
    let _alone = alone();
    let heap = std::fs::File::open("/dev/dma_heap/system");
    for backend in BOTH {
        let Some(refusal) = probe::backend(backend).refusal else { continue };
        println!("{refusal}: {:?}; {:?}", refusal.errno, refusal.remedy);
        let errno = refusal.errno.and_then(Errno::name).expect("a number that has a name");
        let remedy = refusal.remedy.expect("what to do");
        match &heap {
            Ok(_) => {
                assert!(["EINVAL", "EXDEV", "EOPNOTSUPP"].contains(&errno), "{errno}");
                assert!(remedy.contains("kernel/series"), "{remedy}");
                assert!(refusal.reason.contains("this kernel"), "{}", refusal.reason);
            }
            Err(error) => {
                assert_eq!(Errno::from(error).name(), Some(errno));
                assert!(!remedy.contains("kernel/series"), "{remedy}");
                assert!(refusal.reason.contains("/dev/dma_heap/system"), "{}", refusal.reason);
            }
        }
    }
}

#[test]
fn trying_a_backend_leaves_nothing_open() {
    let _alone = alone();
    let open = || std::fs::read_dir("/proc/self/fd").expect("list").count();
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    let before = open();
    for backend in BOTH {
        for _ in 0..20 {
            probe::backend(backend);
            // Whether refused or not.
            drop(Loader::new(&path).backend(backend).load());
        }
    }
    assert_eq!(open(), before);
}

#[test]
fn a_refusal_moves_on_to_the_next_backend() {
    let _alone = alone();
    let folder = folder();
    let (path, expected) = file_of(&folder, 100_001);
    let loaded = Loader::new(&path).load().expect("some backend");
    let refused: Vec<_> =
        loaded.report().expect("loaded").refusals.iter().map(|one| one.backend).collect();
    for backend in BOTH {
        let before = Backend::ALL
            .iter()
            .take_while(|one| Some(**one) != loaded.report().expect("loaded").backend);
        let is_before = before.copied().any(|one| one == backend);
        assert_eq!(refused.contains(&backend), is_before, "{refused:?}");
    }
    assert_same("content", &bytes(&loaded)[..100_001], &expected);
}

#[test]
fn single_heap_call_reports_progress_and_cancels() {
    let _alone = alone();
    if !available(Backend::Heap) {
        return;
    }
    let folder = folder();
    let (path, expected) = file_of(&folder, 256 << 20);
    let total = expected.len() as u64;
    let token = CancelToken::new();
    let (stop, before_the_end) = (token.clone(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&before_the_end);
    let loader =
        Loader::new(&path).backend(Backend::Heap).cancel(token).progress(move |progress| {
            if progress.done > 0 && progress.done < total {
                count.fetch_add(1, Ordering::Relaxed);
                stop.cancel();
            }
        });
    let start = Instant::now();
    let result = loader.load();
    let seen = before_the_end.load(Ordering::Relaxed);
    println!("looked at {seen} times in {:?}", start.elapsed());
    match result {
        Err(Error::Cancelled { length, .. }) => assert!(seen > 0 && length == total),
        Err(error) => panic!("{error}"),
        // Storage may not be counted per thread, or may have been read at once.
        Ok(loaded) => {
            assert_eq!(seen, 0, "a cancelled load does not succeed");
            assert_same("content", &bytes(&loaded), &expected);
        }
    }
}

#[test]
fn many_calls_at_odd_offsets_stay_direct() {
    let _alone = alone();
    if !available(Backend::CopyFileRange) {
        return;
    }
    let folder = folder();
    let (path, expected) = file_of(&folder, (4 << 20) + 4321);
    let size = 3 * common::page() as u64;
    let loader = Loader::new(&path).backend(Backend::CopyFileRange).block_size(size).offset(777);
    let loaded = loader.load().expect("load");
    assert_direct(loaded.report().expect("loaded"));
    let range = loaded.range();
    let all = bytes(&loaded);
    assert_same("loaded", &all[range.start as usize..range.end as usize], &expected[777..]);
    assert!(all[..range.start as usize].iter().all(|byte| *byte == 0), "what lies before is zero");

    // In place, at the same distance from the start of a block.
    let target = folder.path().join("target");
    common::write_cold(&target, &vec![0x77; expected.len()]);
    let file = std::fs::File::options().read(true).write(true).open(&target).expect("open");
    let saver = Saver::to_fd(file.as_fd()).backend(Backend::CopyFileRange).block_size(size);
    let report = saver.offset(777).save(&loaded, range).expect("save");
    assert_direct(&report);
    let mut wanted = expected.clone();
    wanted[..777].fill(0x77);
    assert_same("saved", &std::fs::read(&target).expect("read"), &wanted);
}

fn assert_direct(report: &dmabuf_dio::Report) {
    let wanted = if report.storage_bytes.is_some() { Mode::Direct } else { Mode::Unknown };
    // Partial blocks at the ends of a write go through the page cache.
    assert!([wanted, Mode::Mixed].contains(&report.mode), "{report:?}");
    assert!(report.notes.is_empty(), "{report:?}");
}

#[test]
fn copy_file_range_takes_a_udmabuf() {
    let _alone = alone();
    if !available(Backend::CopyFileRange) || !available(Backend::Udmabuf) {
        return;
    }
    let folder = folder();
    let (path, expected) = file_of(&folder, 1_000_001);
    let mut buf = Loader::new(&path).backend(Backend::Udmabuf).load().expect("a udmabuf");
    assert_eq!(buf.kind(), Kind::DmaBuf);
    let copy = folder.path().join("copy");
    let saver = Saver::new(&copy).backend(Backend::CopyFileRange);
    saver.save(&buf, ..1_000_001).expect("save");
    assert_same("saved", &std::fs::read(&copy).expect("read"), &expected);
    fill(&mut buf, 0);
    let loader = Loader::new(&path).backend(Backend::CopyFileRange);
    loader.load_into(&buf, 0).expect("load");
    assert_same("loaded", &bytes(&buf)[..1_000_001], &expected);
}

#[test]
fn copy_file_range_takes_buffers_of_the_module() {
    let _alone = alone();
    if !available(Backend::CopyFileRange) || !available(Backend::Module) {
        return;
    }
    let folder = folder();
    let (path, expected) = file_of(&folder, 9_000_001);
    let mut buf = Loader::new(&path).backend(Backend::Module).load().expect("load");
    let copy = folder.path().join("copy");
    Saver::new(&copy).backend(Backend::CopyFileRange).save(&buf, ..9_000_001).expect("save");
    assert_same("saved", &std::fs::read(&copy).expect("read"), &expected);

    buf.map_mut().expect("map").fill_at(0, 9_000_001, 0).expect("fill");
    let loader = Loader::new(&path).backend(Backend::CopyFileRange);
    loader.load_into(&buf, 0).expect("load");
    assert_same("loaded", &bytes(&buf)[..9_000_001], &expected);
}

#[test]
fn signals_shorten_calls_without_wrong_bytes() {
    static CAUGHT: AtomicU32 = AtomicU32::new(0);
    extern "C" fn count(_: libc::c_int) {
        CAUGHT.fetch_add(1, Ordering::Relaxed);
    }
    let _alone = alone();
    // SAFETY: an all-zero sigaction is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // No SA_RESTART: calls must end early.
    action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler only adds to an atomic, which is async-signal-safe.
    unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };

    let folder = folder();
    let (path, expected) = file_of(&folder, (48 << 20) + 99);
    for backend in BOTH.into_iter().filter(|one| available(*one)) {
        let copy = folder.path().join("copy");
        let before = CAUGHT.load(Ordering::Relaxed);
        let back = Some(Backend::CopyFileRange).filter(|one| available(*one));
        let saver = Saver::new(&copy).backend(back);
        let loaded = under_signals(|| {
            let loaded = Loader::new(&path).backend(backend).load().expect("load");
            saver.save(&loaded, loaded.range()).expect("save");
            loaded
        });
        assert!(CAUGHT.load(Ordering::Relaxed) > before, "{backend}: no signal came");
        assert_same(backend.name(), &bytes(&loaded)[..expected.len()], &expected);
        assert_same(backend.name(), &std::fs::read(&copy).expect("read"), &expected);
    }
}

/// Sends this thread a signal every few milliseconds during `work`.
fn under_signals<T>(work: impl FnOnce() -> T) -> T {
    let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: sends a signal that has a handler to a thread that waits for this one.
                unsafe {
                    libc::syscall(
                        libc::SYS_tgkill,
                        process.as_raw_nonzero().get(),
                        thread.as_raw_nonzero().get(),
                        libc::SIGUSR1,
                    );
                }
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}
