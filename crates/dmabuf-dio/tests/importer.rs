// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that has the buffer mapped for its own DMA, through bounce buffers at best: what it
//! wrote beside what is loaded survives, and it sees all that is.
//!
//! `DMABUF_DIO_IMPORTER` names the node of `kernel/sim/edu_importer`; without it these tests are
//! skipped.

mod common;

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{assert_same, available, content, file_of, folder};
use dmabuf_dio::gather::{Gatherer, Piece};
use dmabuf_dio::{Backend, DmaBuf, Kind, Loader, Saver};

/// `EDU_IMPORT` of `edu_importer.h`.
const IMPORT: libc::Ioctl = 0xed << 8;
/// It moves 20 KiB in a second.
const LEN: u64 = 8192;

/// A buffer, the device that has it mapped, and what it wrote there.
struct Imported {
    buf: DmaBuf,
    device: File,
    written: Vec<u8>,
    _lock: MutexGuard<'static, ()>,
}

impl Imported {
    fn new() -> Option<Self> {
        static LOCK: Mutex<()> = Mutex::new(());
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = std::env::var_os("DMABUF_DIO_IMPORTER") else {
            println!("skipped: DMABUF_DIO_IMPORTER is not set");
            return None;
        };
        let device = OpenOptions::new().read(true).write(true).open(path).expect("the device");
        let buf = DmaBuf::alloc(LEN).expect("a dma-buf");
        // SAFETY: the call takes a number and no memory.
        let result = unsafe { libc::ioctl(device.as_raw_fd(), IMPORT, buf.as_raw_fd()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        Some(Self { buf, device, written: Vec::new(), _lock: lock })
    }

    /// Lets the device write all of it anew.
    fn write(&mut self, seed: u64) {
        self.written = content(LEN as usize, seed);
        self.device.write_all_at(&self.written, 0).expect("the device writes");
    }

    /// Fails unless the device reads what it wrote, and in between what `loaded` says.
    #[track_caller]
    fn check(&self, what: &str, at: u64, loaded: &[u8]) {
        let mut wanted = self.written.clone();
        wanted[at as usize..at as usize + loaded.len()].copy_from_slice(loaded);
        let mut found = vec![0; LEN as usize];
        self.device.read_exact_at(&mut found, 0).expect("the device reads");
        assert_same(what, &found, &wanted);
    }
}

/// A range of the file, and where in the buffer it goes: whole blocks, with less than a block at
/// both ends, and through the page cache.
const RANGES: [(usize, u64, usize); 3] = [(4096, 4096, 1024), (1000, 1000, 5000), (7, 1000, 3000)];

#[test]
fn what_is_loaded_replaces_nothing_else() {
    let Some(mut imported) = Imported::new() else { return };
    let folder = folder();
    let (path, bytes) = file_of(&folder, 100_000);
    let backends = Backend::for_existing(Kind::DmaBuf).iter();
    for (seed, &backend) in (1..).zip(backends.filter(|backend| available(**backend))) {
        for (offset, at, len) in RANGES {
            imported.write(seed + at);
            let loader = Loader::new(&path).backend(backend).offset(offset as u64);
            let report = loader.length(len as u64).load_into(&mut imported.buf, at).expect("load");
            let what = format!("{backend}: {len} bytes at {at}, {}", report.mode);
            imported.check(&what, at, &bytes[offset..offset + len]);
            println!("{what}");
        }
    }
}

#[test]
fn what_is_gathered_replaces_nothing_else() {
    let Some(mut imported) = Imported::new() else { return };
    let folder = folder();
    let (path, bytes) = file_of(&folder, 100_000);
    let backends = Backend::for_gathering(Kind::DmaBuf).iter();
    for (seed, &backend) in (1..).zip(backends.filter(|backend| available(**backend))) {
        imported.write(seed);
        let mut gathering =
            Gatherer::new(&path).backend(backend).open(&imported.buf).expect("open");
        let piece = Piece { file_offset: 8192, buf_offset: 2048, len: 512 };
        assert!(gathering.read(&[piece]).expect("read").is_whole());
        imported.check(backend.name(), 2048, &bytes[8192..8704]);
    }
}

#[test]
fn what_the_device_wrote_is_saved() {
    let Some(mut imported) = Imported::new() else { return };
    let folder = folder();
    let path = folder.path().join("saved");
    let backends = Backend::for_existing(Kind::DmaBuf).iter();
    for (seed, &backend) in (1..).zip(backends.filter(|backend| available(**backend))) {
        imported.write(seed);
        Saver::new(&path).backend(backend).save(&imported.buf, 100..7000).expect("save");
        let saved = std::fs::read(&path).expect("read");
        assert_same(backend.name(), &saved, &imported.written[100..7000]);
    }
}
