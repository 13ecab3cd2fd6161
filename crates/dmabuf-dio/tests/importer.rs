// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that has the buffer mapped for its own DMA, through bounce buffers or not coherent if
//! possible. The bytes it wrote next to the loaded ones survive, and it sees everything that is
//! loaded. For buffers of every available exporter.
//!
//! `DMABUF_DIO_IMPORTER` names the node of `kernel/sim/edu_importer` or `shadow_importer`; without
//! it these tests are skipped. `DMABUF_DIO_IMPORTER_UNSYNCED`, if not empty, says that this kernel's
//! udmabuf does not synchronise that device: udmabuf is then left out where it would lose data.

mod common;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{assert_same, available, content, file_of, folder, takes};
use dmabuf_dio::gather::{Gatherer, Piece};
use dmabuf_dio::{Backend, Buffer, Direction, Errno, Error, Kind, Loader, Saver};
use dmabuf_dio_sys::{heap, udmabuf};

/// `EDU_IMPORT` of `edu_importer.h`.
const IMPORT: libc::Ioctl = 0xed << 8;
/// Bytes that the device reads and writes at the start of each buffer. It moves 20 KiB per second. A
/// buffer has whole pages, and may be longer.
const LEN: u64 = 8192;

/// A buffer, the device that has it mapped, and what the device wrote there.
struct Imported {
    buf: Buffer,
    device: File,
    written: Vec<u8>,
    _lock: MutexGuard<'static, ()>,
}

/// Whether udmabuf does not synchronise the device, which needs it.
fn unsynced() -> bool {
    std::env::var_os("DMABUF_DIO_IMPORTER_UNSYNCED").is_some_and(|value| !value.is_empty())
}

/// The names of exporters: the heaps, if the kernel has any, the module's own, and `udmabuf`.
fn exporters() -> Vec<String> {
    let heaps = std::fs::read_dir("/dev/dma_heap");
    assert!(heaps.is_ok() || cfg!(target_arch = "aarch64"), "the heaps: {heaps:?}");
    let mut all: Vec<String> = heaps
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("a heap").file_name().into_string().expect("its name"))
        .collect();
    if available(Backend::Module) {
        all.push("module".to_owned());
    }
    if !unsynced() {
        all.push("udmabuf".to_owned());
    }
    println!("exporters: {all:?}");
    all
}

/// The backends that accept a buffer of this exporter. Slots are long-lived, and are not
/// registered where udmabuf does not synchronise devices: `slot-refused` of `tests/guest` checks
/// that.
fn usable(exporter: &str, buf: &Buffer, backends: &[Backend]) -> Vec<Backend> {
    let lasts = |backend| backend != Backend::UringSlot || exporter != "udmabuf";
    let usable =
        |backend| (lasts(backend) || available(Backend::CopyFileRange)) && takes(backend, buf);
    backends.iter().copied().filter(|one| usable(*one)).collect()
}

/// A buffer of an exporter.
fn allocate(exporter: &str) -> Buffer {
    let fd = match exporter {
        "module" => {
            let folder = folder();
            let (path, _) = file_of(&folder, LEN as usize);
            let loaded = Loader::new(path).backend(Backend::Module).load().expect("load");
            loaded.into_fd().expect("a descriptor")
        }
        "udmabuf" => {
            let memfd = Buffer::memfd(LEN).expect("a memfd");
            let device = udmabuf::open().expect("the device of udmabuf");
            udmabuf::create(device.as_fd(), memfd.fd().expect("a descriptor"), 0, memfd.len())
                .expect("a udmabuf")
        }
        name => {
            let device = heap::open(&format!("/dev/dma_heap/{name}")).expect("the heap");
            heap::alloc(device.as_fd(), LEN).expect("a buffer of the heap")
        }
    };
    Buffer::from_fd(fd).expect("a dma-buf")
}

/// Calls `test` with a buffer of each exporter, mapped by the device.
fn with_each(test: impl Fn(&str, &mut Imported)) {
    if std::env::var_os("DMABUF_DIO_IMPORTER").is_none() {
        println!("skipped: DMABUF_DIO_IMPORTER is not set");
        return;
    }
    for exporter in exporters() {
        test(&exporter, &mut Imported::new(&exporter));
    }
}

impl Imported {
    fn new(exporter: &str) -> Self {
        static LOCK: Mutex<()> = Mutex::new(());
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::var_os("DMABUF_DIO_IMPORTER").expect("the device's node");
        let device = OpenOptions::new().read(true).write(true).open(path).expect("the device");
        let buf = allocate(exporter);
        // SAFETY: the call takes a number and no memory.
        let result = unsafe {
            libc::ioctl(device.as_raw_fd(), IMPORT, buf.fd().expect("a descriptor").as_raw_fd())
        };
        assert_eq!(result, 0, "{exporter}: {}", std::io::Error::last_os_error());
        Self { buf, device, written: Vec::new(), _lock: lock }
    }

    /// Makes the device overwrite the start of the buffer.
    fn write(&mut self, seed: u64) {
        self.written = content(LEN as usize, seed);
        self.device.write_all_at(&self.written, 0).expect("the device writes");
    }

    /// Fails unless the device reads what it wrote, with `loaded` at `at`.
    #[track_caller]
    fn check(&self, what: &str, at: u64, loaded: &[u8]) {
        let mut wanted = self.written.clone();
        wanted[at as usize..at as usize + loaded.len()].copy_from_slice(loaded);
        let mut found = vec![0; LEN as usize];
        self.device.read_exact_at(&mut found, 0).expect("the device reads");
        assert_same(what, &found, &wanted);
    }
}

/// A range of the file, and its offset in the buffer: whole blocks, with partial blocks at both
/// ends, and through the page cache.
const RANGES: [(usize, u64, usize); 3] = [(4096, 4096, 1024), (1000, 1000, 5000), (7, 1000, 3000)];

#[test]
fn load_keeps_other_bytes_of_an_imported_buffer() {
    with_each(|exporter, imported| {
        let folder = folder();
        let (path, bytes) = file_of(&folder, 100_000);
        let backends = usable(exporter, &imported.buf, Backend::for_existing(Kind::DmaBuf));
        for (seed, backend) in (1..).zip(backends) {
            for (offset, at, len) in RANGES {
                imported.write(seed + at);
                let loader = Loader::new(&path).backend(backend).offset(offset as u64);
                let loader = loader.length(len as u64);
                let report = loader.load_into(&imported.buf, at).expect("load");
                let what = format!("{exporter}, {backend}: {len} bytes at {at}, {}", report.mode);
                imported.check(&what, at, &bytes[offset..offset + len]);
                println!("{what}");
            }
        }
    });
}

#[test]
fn gather_keeps_other_bytes_of_an_imported_buffer() {
    with_each(|exporter, imported| {
        let folder = folder();
        let (path, bytes) = file_of(&folder, 100_000);
        let backends = usable(exporter, &imported.buf, Backend::for_gathering(Kind::DmaBuf));
        for (seed, backend) in (1..).zip(backends) {
            imported.write(seed);
            let mut gathering =
                Gatherer::new(&path).backend(backend).open(&imported.buf).expect("open");
            let piece = Piece { offset: 8192, buf_offset: 2048, len: 512 };
            assert!(gathering.read(&[piece]).expect("read").is_whole());
            imported.check(&format!("{exporter}, {backend}"), 2048, &bytes[8192..8704]);
        }
    });
}

#[test]
fn save_sees_bytes_written_by_the_device() {
    with_each(|exporter, imported| {
        let folder = folder();
        let path = folder.path().join("saved");
        let backends = usable(exporter, &imported.buf, Backend::for_existing(Kind::DmaBuf));
        for (seed, backend) in (1..).zip(backends) {
            imported.write(seed);
            Saver::new(&path).backend(backend).save(&imported.buf, 100..7000).expect("save");
            let saved = std::fs::read(&path).expect("read");
            assert_same(&format!("{exporter}, {backend}"), &saved, &imported.written[100..7000]);
        }
    });
}

/// Through bounce buffers, CPU access to a udmabuf over contiguous memory cannot begin without the fix:
/// then none is created. Without the device this is the same.
#[test]
fn loaded_udmabuf_can_be_mapped() {
    let folder = folder();
    let (path, bytes) = file_of(&folder, 6_000_000);
    match Loader::new(&path).backend(Backend::Udmabuf).load() {
        Ok(loaded) => {
            println!("{}", loaded.report().expect("loaded"));
            let found = loaded.map().expect("a view").to_vec().expect("bytes");
            assert_same("loaded", &found[..bytes.len()], &bytes);
        }
        Err(Error::Unavailable { refusals, .. }) => {
            println!("{refusals:?}");
            let bounced = std::env::var_os("DMABUF_DIO_IMPORTER").is_some() && unsynced();
            assert!(!bounced || refusals[0].errno.and_then(Errno::name) == Some("EIO"));
            assert!(bounced || !available(Backend::Udmabuf), "{refusals:?}");
        }
        Err(error) => panic!("{error}"),
    }
}

/// Fails unless a transfer was refused before it began.
#[track_caller]
fn check_error(error: Error, way: Direction) {
    assert_eq!(error.errno().and_then(Errno::name), Some("EBUSY"), "{error}");
    println!("{error}\n  {}", error.hint());
    match error {
        Error::Unsynced { direction, done, .. } => assert_eq!((direction, done), (way, 0)),
        other => panic!("{other:?}"),
    }
}

/// Only a kernel with the fix synchronises devices that have a udmabuf mapped. On others the module
/// refuses while such a device is attached, and no other backend loses the bytes instead.
#[test]
fn udmabuf_is_correct_or_refused() {
    if std::env::var_os("DMABUF_DIO_IMPORTER").is_none() {
        println!("skipped: DMABUF_DIO_IMPORTER is not set");
        return;
    }
    let mut imported = Imported::new("udmabuf");
    let folder = folder();
    let (path, bytes) = file_of(&folder, 100_000);
    let copy = folder.path().join("copy");
    let refused = unsynced();
    println!("refused: {refused}");

    for asked in [Some(Backend::Module), None] {
        imported.write(7);
        let loader = Loader::new(&path).backend(asked).offset(1000).length(3000);
        match loader.load_into(&imported.buf, 2024) {
            Ok(report) => {
                assert!(!refused, "{report:?}");
                imported.check("loaded", 2024, &bytes[1000..4000]);
            }
            Err(error) => {
                assert!(refused, "{error}");
                check_error(error, Direction::Load);
                imported.check("refused", 0, &[]);
            }
        }
        match Saver::new(&copy).backend(asked).save(&imported.buf, 100..7000) {
            Ok(report) => {
                assert!(!refused, "{report:?}");
                let mut wanted = imported.written.clone();
                wanted[2024..5024].copy_from_slice(&bytes[1000..4000]);
                let saved = std::fs::read(&copy).expect("read");
                assert_same("saved", &saved, &wanted[100..7000]);
            }
            Err(error) => {
                assert!(refused, "{error}");
                check_error(error, Direction::Save);
                assert!(!copy.exists());
            }
        }
    }
    imported.write(8);
    let mut gathering =
        Gatherer::new(&path).backend(Backend::Module).open(&imported.buf).expect("open");
    let pieces = [512, 4096].map(|at| Piece { offset: 8192, buf_offset: at, len: 512 });
    match gathering.read(&pieces) {
        Ok(gathered) => {
            assert!(!refused && gathered.is_whole());
            let mut wanted = imported.written[512..4608].to_vec();
            for at in [0, 3584] {
                wanted[at..at + 512].copy_from_slice(&bytes[8192..8704]);
            }
            imported.check("gathered", 512, &wanted);
        }
        Err(error) => {
            assert!(refused, "{error}");
            check_error(error, Direction::Load);
        }
    }
}
