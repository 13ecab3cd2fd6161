// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared helpers of the tests.
//!
//! `DMABUF_DIO_TEST_DIR` is the folder for test files; it has to be on a file system with
//! `O_DIRECT`. `DMABUF_DIO_REQUIRE` lists backends that must be available, such as `slot,module`.
//! Other unavailable backends are skipped, with the reason printed.

#![allow(dead_code)]

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use dmabuf_dio::gather::Gatherer;
use dmabuf_dio::{Backend, Buffer, DmaBuf, Errno, Error, Kind, Loader, probe};
use tempfile::TempDir;

/// The size of a page, in bytes.
pub(crate) fn page() -> usize {
    rustix::param::page_size()
}

/// The size of a huge page, in bytes: 2 MiB with pages of 4 KiB, 32 MiB with 16 KiB.
pub(crate) fn huge() -> usize {
    let told = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    told.map_or(page() * page() / 8, |text| text.trim().parse().expect("a number"))
}

/// A folder for one test.
pub(crate) fn folder() -> TempDir {
    let parent = std::env::var_os("DMABUF_DIO_TEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    std::fs::create_dir_all(&parent).expect("the folder of all tests");
    tempfile::Builder::new().prefix("dio-").tempdir_in(parent).expect("a folder for the test")
}

/// Content in which no two pages are equal.
pub(crate) fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let block: Vec<u8> = (0..65_537)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect();
    let mut bytes = Vec::with_capacity(len + block.len());
    let mut count = seed;
    while bytes.len() < len {
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&block);
        count += 1;
    }
    bytes.truncate(len);
    bytes
}

/// Writes a file and ensures that it is on storage and not in the page cache.
pub(crate) fn write_cold(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).expect("create a test file");
    file.write_all(bytes).expect("write a test file");
    file.sync_all().expect("sync a test file");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("drop its cache");
}

/// A file of `len` bytes, and its content.
pub(crate) fn file_of(folder: &TempDir, len: usize) -> (PathBuf, Vec<u8>) {
    let path = folder.path().join(format!("source-{len}"));
    let bytes = content(len, len as u64);
    write_cold(&path, &bytes);
    (path, bytes)
}

fn is_required(backend: Backend) -> bool {
    std::env::var("DMABUF_DIO_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|name| name.trim() == backend.name()))
}

/// Whether a backend cannot create buffers because there is no system heap: Debian builds none for
/// arm64. On buffers of others it may work: see [`buffers`].
fn lacks_heap(reason: &str) -> bool {
    cfg!(target_arch = "aarch64") && reason.contains("there is no /dev/dma_heap/system")
}

/// Whether a backend is available. If not, prints why, or fails if it is required.
pub(crate) fn available(backend: Backend) -> bool {
    let status = probe::backend(backend);
    if status.available {
        return true;
    }
    let reason = status.refusal.map_or_else(String::new, |refusal| refusal.to_string());
    assert!(!is_required(backend) || lacks_heap(&reason), "required, but {reason}");
    println!("skipped {reason}");
    false
}

/// The backends that can load into a new buffer here.
pub(crate) fn backends() -> Vec<Backend> {
    Backend::ALL.into_iter().filter(|backend| available(*backend)).collect()
}

/// A zeroed dma-buf of at least `len` bytes: of the system heap, or of the module where there is none.
pub(crate) fn dmabuf(len: u64) -> Result<Buffer, Error> {
    match DmaBuf::alloc(len).map(Buffer::from) {
        Err(Error::Heap { errno: Errno::NOENT, .. }) if available(Backend::Module) => {
            let folder = folder();
            let path = folder.path().join("zeros");
            File::create(&path).and_then(|file| file.set_len(len)).expect("a file of zeros");
            Loader::new(&path).backend(Backend::Module).load()
        }
        result => result,
    }
}

/// Whether a backend takes this buffer. Slots are probed with a buffer of the system heap, which a
/// buffer of another exporter does not need.
pub(crate) fn takes(backend: Backend, buf: &Buffer) -> bool {
    if available(backend) {
        return true;
    }
    let can = backend == Backend::UringSlot && buf.kind() == Kind::DmaBuf;
    let takes = can && Gatherer::new("/proc/self/exe").backend(backend).open(buf).is_ok();
    assert!(takes || !is_required(backend), "{backend} is required");
    takes
}

/// A buffer of each kind available here, with the backends that can use it.
pub(crate) fn buffers(len: u64) -> Vec<(Buffer, Vec<Backend>)> {
    let mut all = vec![Buffer::memfd(len).expect("a memfd")];
    match dmabuf(len) {
        Ok(buf) => all.push(buf),
        Err(error) => {
            for &backend in Backend::for_existing(Kind::DmaBuf) {
                let needs_them = !Backend::for_existing(Kind::Memfd).contains(&backend);
                assert!(!(needs_them && is_required(backend)), "{backend} is required: {error}");
            }
            println!("skipped dma-bufs: {error}");
        }
    }
    all.into_iter()
        .map(|buf| {
            let backends = Backend::for_existing(buf.kind()).iter().copied();
            let backends = backends.filter(|one| takes(*one, &buf)).collect();
            (buf, backends)
        })
        .collect()
}

/// Fills a whole buffer.
pub(crate) fn fill(buf: &mut Buffer, byte: u8) {
    let len = buf.len();
    let mut view = buf.map_mut().expect("map");
    view.fill_at(0, len, byte).expect("fill");
    view.finish().expect("end the access");
}

/// All bytes of a buffer.
pub(crate) fn bytes(buf: &Buffer) -> Vec<u8> {
    buf.map().expect("map").to_vec().expect("all of it")
}

/// Fails at the first differing byte of two slices, without printing megabytes.
#[track_caller]
pub(crate) fn assert_same(what: &str, ours: &[u8], expected: &[u8]) {
    assert_eq!(ours.len(), expected.len(), "{what}: length");
    if ours != expected {
        let at = ours.iter().zip(expected).position(|(a, b)| a != b).expect("a difference");
        panic!("{what}: byte {at} is {:#04x}, not {:#04x}", ours[at], expected[at]);
    }
}
