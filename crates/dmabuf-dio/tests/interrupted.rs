// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that are not meant for a transfer, such as an interval timer's: the transfer completes,
//! and its figures are consistent.

mod common;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{assert_same, backends, buffers, bytes, content, file_of, fill, folder, page};
use dmabuf_dio::gather::{Gatherer, Piece};
use dmabuf_dio::{Backend, Loader, Mode, Saver};

static CAUGHT: AtomicU64 = AtomicU64::new(0);

extern "C" fn caught(_: c_int) {
    CAUGHT.fetch_add(1, Ordering::Relaxed);
}

/// Repeatedly sends a signal to every other thread of this process until dropped. A timer's signals
/// would all go to the main thread, which waits for the tests.
struct Signals {
    stop: Arc<AtomicBool>,
    sender: Option<std::thread::JoinHandle<()>>,
}

impl Signals {
    fn start() -> Self {
        // SAFETY: the handler only counts. Calls are not restarted, so that they see the signal.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = caught as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sender = std::thread::spawn(move || {
            let this = rustix::thread::gettid().as_raw_nonzero().get();
            while !stopped.load(Ordering::Relaxed) {
                let threads = std::fs::read_dir("/proc/self/task").expect("threads");
                for thread in threads.flatten() {
                    let name = thread.file_name();
                    let id: i32 = name.to_str().expect("a number").parse().expect("a number");
                    if id != this {
                        // SAFETY: takes numbers; a thread that has exited is not found.
                        unsafe {
                            libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGUSR2);
                        }
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Self { stop, sender: Some(sender) }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.sender.take().map(std::thread::JoinHandle::join);
    }
}

/// Collects the progress that a transfer reports.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u64>>>);

impl Said {
    fn callback(&self) -> impl Fn(dmabuf_dio::Progress) + Send + Sync + 'static {
        let said = Arc::clone(&self.0);
        move |progress| said.lock().expect("one at a time").push(progress.done)
    }

    /// Checks that it only increases, from 0 to `total`.
    #[track_caller]
    fn check(&self, what: &str, total: u64) {
        let said = self.0.lock().expect("no one else");
        assert!(said.is_sorted(), "{what}: {said:?}");
        assert_eq!((said.first(), said.last()), (Some(&0), Some(&total)), "{what}: {said:?}");
    }
}

/// Enough for many requests of few pages, one at a time.
const LEN: usize = (1 << 20) + 777;

/// Bytes per request: at least a page.
fn chunk() -> u64 {
    page().max(16 << 10) as u64
}

#[test]
fn signals_do_not_stop_transfers() {
    let folder = folder();
    let (path, wanted) = file_of(&folder, LEN);
    let copy = folder.path().join("copy");
    let _signals = Signals::start();
    let before = CAUGHT.load(Ordering::Relaxed);
    for backend in backends() {
        // The system heap does not use such requests, and reports only at its end.
        let said = Said::default();
        let loader = Loader::new(&path).backend(backend).block_size(chunk()).queue_depth(1);
        let loaded = loader.progress(said.callback()).load().expect("load");
        let what = format!("load by {backend}");
        assert_same(&what, &bytes(&loaded)[..LEN], &wanted);
        assert_eq!(loaded.report().expect("loaded").bytes, LEN as u64);
        // All bytes were requested with O_DIRECT, in any number of calls; otherwise it is mixed.
        if backend != Backend::Buffered && loaded.report().expect("loaded").notes.is_empty() {
            assert_eq!(
                loaded.report().expect("loaded").mode,
                Mode::Direct,
                "{what}: {}",
                loaded.report().expect("loaded").evidence
            );
        }
        said.check(&what, LEN as u64);
    }
    for (mut buf, list) in buffers(LEN as u64 + 8192) {
        for backend in list {
            let what = format!("{} by {backend}", buf.kind());
            fill(&mut buf, 0xee);
            let said = Said::default();
            let loader = Loader::new(&path).backend(backend).block_size(chunk()).queue_depth(1);
            let loader = loader.progress(said.callback());
            let report = loader.load_into(&buf, 4096).expect("load into");
            said.check(&what, LEN as u64);
            assert_eq!(report.bytes, LEN as u64);
            let all = bytes(&buf);
            assert!(all[..4096].iter().chain(&all[4096 + LEN..]).all(|byte| *byte == 0xee));
            assert_same(&what, &all[4096..4096 + LEN], &wanted);

            let said = Said::default();
            let saver = Saver::new(&copy).backend(backend).block_size(chunk()).queue_depth(1);
            let saver = saver.progress(said.callback());
            let report = saver.save(&buf, 4096..4096 + LEN as u64).expect("save");
            said.check(&what, LEN as u64);
            assert_eq!(report.bytes, LEN as u64);
            assert_same(&what, &std::fs::read(&copy).expect("read"), &wanted);
        }
    }
    let caught = CAUGHT.load(Ordering::Relaxed) - before;
    println!("{caught} signals");
    assert!(caught > 10, "only {caught} signals came");
}

#[test]
fn signals_do_not_stop_gathering() {
    let folder = folder();
    let (path, wanted) = file_of(&folder, 1 << 20);
    let pieces: Vec<_> = (0..256)
        .map(|at| Piece { offset: (255 - at) * 4096, buf_offset: at * 4096, len: 4096 })
        .collect();
    let mut expected = content(0, 0);
    for piece in &pieces {
        let start = piece.offset as usize;
        expected.extend_from_slice(&wanted[start..start + 4096]);
    }
    let _signals = Signals::start();
    for (mut buf, backends) in buffers(1 << 20) {
        for backend in backends {
            if !Backend::for_gathering(buf.kind()).contains(&backend) {
                continue;
            }
            fill(&mut buf, 0);
            let mut gathering = Gatherer::new(&path).backend(backend).open(&buf).expect("open");
            for _ in 0..2 {
                let gathered = gathering.read(&pieces).expect("gather");
                assert!(gathered.is_whole(), "{backend}: {:?}", gathered.errors().next());
                assert_eq!(gathered.report().transfer.bytes, 1 << 20, "{backend}");
            }
            assert_same(backend.name(), &bytes(&buf), &expected);
        }
    }
}
