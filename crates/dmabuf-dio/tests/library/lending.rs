// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers that the kernel module does not borrow: the refusal says why and what would work
//! instead, and another backend is used where that is correct.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use crate::common::{assert_same, available, buffers, bytes, file_of, folder, huge, page};
use dmabuf_dio::lend::NotLent;
use dmabuf_dio::{Backend, Buffer, Errno, Error, Loader, Refusal, Saver};
use dmabuf_dio_sys::udmabuf;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const LEN: u64 = 2 << 20;

/// Allocates the pages of a memfd: for a udmabuf, Linux 6.12 uses huge ones only if they exist.
fn touch(memfd: BorrowedFd<'_>, len: u64) -> rustix::io::Result<()> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
    // SAFETY: a new mapping that nothing reads.
    unsafe {
        let start = mmap(std::ptr::null_mut(), len as usize, prot, flags, memfd, 0)?;
        munmap(start, len as usize)
    }
}

/// A udmabuf over a memfd with pages of that kind.
fn udmabuf(flags: MemfdFlags) -> Option<Buffer> {
    let len = if flags.contains(MemfdFlags::HUGETLB) { LEN.max(huge() as u64) } else { LEN };
    let made = || -> std::io::Result<_> {
        let device = udmabuf::open()?;
        let flags = flags | MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let memfd = rustix::fs::memfd_create("test", flags)?;
        rustix::fs::ftruncate(&memfd, len)?;
        rustix::fs::fcntl_add_seals(&memfd, SealFlags::SHRINK)?;
        touch(memfd.as_fd(), len)?;
        Ok(udmabuf::create(device.as_fd(), memfd.as_fd(), 0, len)?)
    };
    match made() {
        Ok(fd) => Some(Buffer::from_fd(fd).expect("a dma-buf")),
        Err(errno) => {
            println!("skipped: no udmabuf in pages of {flags:?}: {errno}");
            None
        }
    }
}

/// Loads a file with the given backend, or any, and checks the content.
fn load(buf: &mut Buffer, asked: Option<Backend>) -> Result<dmabuf_dio::Report, Error> {
    let folder = folder();
    let (path, wanted) = file_of(&folder, 1_000_003);
    let report = Loader::new(&path).backend(asked).load_into(buf, 8192)?;
    assert_same("loaded", &bytes(buf)[8192..][..wanted.len()], &wanted);
    Ok(report)
}

/// Why the one selected backend is not available.
#[track_caller]
fn refused(error: Error) -> Refusal {
    match error {
        Error::Unavailable { mut refusals, .. } if refusals.len() == 1 => refusals.remove(0),
        other => panic!("{other:?}"),
    }
}

/// Checks the refusal, and that the next backend is used and reports it.
fn check_refusal(buf: &mut Buffer, refusal: &Refusal, not_lent: NotLent) {
    let exporter = buf.exporter().expect("an exporter");
    println!("{refusal}\n  {:?}", refusal.remedy);
    assert_eq!(refusal.not_lent, Some(not_lent));
    assert_eq!(refusal.errno.and_then(Errno::name), Some("EOPNOTSUPP"));
    assert!(refusal.reason.contains(&exporter), "{refusal}");
    assert!(refusal.remedy.is_some());
    let report = load(buf, None).expect("load by another backend");
    assert_ne!(report.backend, Some(refusal.backend));
    assert!(report.refusals.iter().any(|one| one.not_lent == Some(not_lent)), "{report:?}");
}

/// In Linux 6.12 the kernel mapping of a udmabuf over huge pages is wrong.
#[test]
fn udmabuf_over_huge_pages_is_lent_or_refused() {
    if !available(Backend::Module) {
        return;
    }
    // Allows a huge page on demand, for as long as it is needed.
    let pool = "/proc/sys/vm/nr_overcommit_hugepages";
    let before = std::fs::read_to_string(pool).unwrap_or_default();
    let _ = std::fs::write(pool, "16");
    // The size is part of the flags, as its logarithm (MFD_HUGE_SHIFT in memfd_create(2)).
    let size = MemfdFlags::from_bits_retain(huge().trailing_zeros() << 26);
    let made = udmabuf(MemfdFlags::HUGETLB | size);
    let _ = std::fs::write(pool, before);
    let Some(mut buf) = made else { return };
    match load(&mut buf, Some(Backend::Module)) {
        Ok(report) => assert_eq!(report.backend, Some(Backend::Module)),
        Err(error) => {
            let refusal = refused(error);
            assert!(refusal.remedy.as_deref().is_some_and(|text| text.contains("small pages")));
            check_refusal(&mut buf, &refusal, NotLent::Mapping);
            // Whether a device has it attached is unknown.
            let report = load(&mut buf, Some(Backend::Buffered)).expect("load");
            assert!(report.notes.iter().any(|note| note.contains("udmabuf")), "{report:?}");
        }
    }
}

/// Devices with a udmabuf attached may miss data that the page cache moves into it.
#[test]
fn only_udmabufs_have_the_device_note() {
    let notes = |buf: &mut Buffer| {
        let folder = folder();
        let report = load(buf, Some(Backend::Buffered)).expect("load");
        let saver = Saver::new(folder.path().join("copy")).backend(Backend::Buffered);
        [report.notes, saver.save(buf, ..).expect("save").notes]
    };
    for (mut buf, _) in buffers(LEN) {
        assert!(notes(&mut buf).iter().all(Vec::is_empty), "{:?}", buf.exporter());
    }
    let Some(mut buf) = udmabuf(MemfdFlags::empty()) else { return };
    let [loaded, saved] = notes(&mut buf);
    for (notes, stored) in [(loaded, true), (saved, false)] {
        assert!(notes.len() == 1 && notes[0].contains("kernel/series"), "{notes:?}");
        assert_eq!(notes[0].contains("MADV_POPULATE_WRITE"), stored, "{notes:?}");
    }
}

/// A slot is too long-lived for a check of the attached devices.
#[test]
fn slot_takes_only_synchronising_udmabufs() {
    if !available(Backend::UringSlot) {
        return;
    }
    let Some(mut buf) = udmabuf(MemfdFlags::empty()) else { return };
    match load(&mut buf, Some(Backend::UringSlot)) {
        Ok(report) => {
            assert!(available(Backend::CopyFileRange), "this udmabuf synchronises no device");
            assert_eq!(report.backend, Some(Backend::UringSlot));
        }
        Err(error) => {
            assert!(!available(Backend::CopyFileRange), "this udmabuf synchronises: {error}");
            let refusal = refused(error);
            assert_eq!(refusal.not_lent, Some(NotLent::Unsynced), "{refusal:?}");
            assert!(refusal.remedy.as_deref().is_some_and(|text| text.contains("backend module")));
            let report = load(&mut buf, None).expect("the module looks each time");
            assert_eq!(report.backend, Some(Backend::Module));
        }
    }
}

/// `struct odd_create` of `kernel/sim/odd_exporter`.
#[repr(C)]
struct OddCreate {
    pages: u32,
    oddities: u32,
}

/// `ODD_CREATE`
const ODD_CREATE: libc::Ioctl = (1 << 30 | 8 << 16 | 0x0d << 8) as libc::Ioctl;

#[test]
fn unknown_exporter_is_refused_with_a_remedy() {
    let path = "/dev/odd_exporter";
    let Ok(device) = std::fs::File::options().read(true).write(true).open(path) else {
        println!("skipped: there is no {path}");
        return;
    };
    let create = OddCreate { pages: (LEN as usize / page()) as u32, oddities: 0 };
    // SAFETY: the call reads the structure and returns a descriptor.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), ODD_CREATE, &raw const create) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor that nobody else owns.
    let mut buf = Buffer::from_fd(unsafe { OwnedFd::from_raw_fd(fd) }).expect("a dma-buf");
    for backend in [Backend::Module, Backend::UringSlot] {
        if available(backend) {
            let refusal = refused(load(&mut buf, Some(backend)).expect_err("not borrowed"));
            assert_eq!(refusal.backend, backend);
            let command = refusal.remedy.clone().unwrap_or_default();
            assert!(command.ends_with("exporters=odd_exporter"), "{command}");
            check_refusal(&mut buf, &refusal, NotLent::Exporter);
        }
    }
}
