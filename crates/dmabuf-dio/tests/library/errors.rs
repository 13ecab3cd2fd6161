// SPDX-License-Identifier: MIT OR Apache-2.0
//! The texts and hints of errors.

use dmabuf_dio::{Backend, Buffer, Direction, Errno, Error, Kind, Loader};

fn open(number: i32) -> Error {
    let errno = Errno::from_raw(number);
    Error::Open { path: "a/file".into(), direction: Direction::Load, errno }
}

fn transfer(number: i32) -> Error {
    let (path, direction) = ("file".into(), Direction::Save);
    let errno = Errno::from_raw(number);
    Error::Transfer { path, direction, offset: 4096, done: 96, length: 8192, errno }
}

fn target(number: i32) -> Error {
    Error::Target { path: "file".into(), step: "rename it", errno: Errno::from_raw(number) }
}

fn buffer(number: i32) -> Error {
    Error::Buffer { call: "map", errno: Errno::from_raw(number) }
}

fn lock(limit: Option<u64>, number: i32) -> Error {
    Error::Lock { length: 1 << 20, limit, errno: Errno::from_raw(number) }
}

fn unavailable(kind: Option<Kind>) -> Error {
    Error::Unavailable { asked: None, kind, refusals: vec![] }
}

#[test]
fn each_errno_has_its_hint() {
    type Make = fn(i32) -> Error;
    let hints: &[(Make, &[(i32, &str)])] = &[
        (
            open,
            &[
                (libc::ENOENT, "check the path"),
                (libc::ENOTDIR, "check the path"),
                (libc::EACCES, "ls -l a/file"),
                (libc::EPERM, "ls -l a/file"),
                (libc::EISDIR, "a regular file"),
                (libc::EMFILE, "ulimit -n"),
                (libc::ENFILE, "ulimit -n"),
                (libc::EROFS, "writable"),
                (libc::ETXTBSY, "a running program"),
                (libc::EPERM, "seccomp"),
                (libc::ENOSYS, "allow the system call"),
                (libc::EILSEQ, "the file system it is on"),
            ],
        ),
        (
            transfer,
            &[
                (libc::EIO, "dmesg"),
                (libc::ENOSPC, "free space"),
                (libc::EDQUOT, "free space"),
                (libc::EFBIG, "a file of that size"),
                (libc::EINVAL, "multiples of the block size"),
                (libc::ENOMEM, "smaller block_size"),
                (libc::EACCES, "permissions"),
                (libc::EPERM, "permissions"),
                (libc::EPERM, "seccomp"),
                (libc::ENOSYS, "allow the system call"),
                (libc::EROFS, "writable"),
                (libc::EBUSY, "lsof"),
                (libc::EILSEQ, "dmesg"),
            ],
        ),
        (
            target,
            &[
                (libc::ENOSPC, "free space"),
                (libc::EACCES, "permissions"),
                (libc::ENOENT, "the folder must exist"),
                (libc::ENOTDIR, "the folder must exist"),
                (libc::EISDIR, "name a file"),
            ],
        ),
        (
            buffer,
            &[
                (libc::ENOMEM, "vm.max_map_count"),
                (libc::EACCES, "access mode"),
                (libc::EPERM, "access mode"),
                (libc::EMFILE, "ulimit -n"),
                (libc::ENFILE, "ulimit -n"),
                (libc::EINVAL, "/dev/dma_heap/system"),
                (libc::ENOTTY, "/dev/dma_heap/system"),
                (libc::ENODEV, "/dev/dma_heap/system"),
                (libc::EOPNOTSUPP, "/dev/dma_heap/system"),
                (libc::EILSEQ, "dmesg"),
            ],
        ),
    ];
    for (make, numbers) in hints {
        for (number, wanted) in *numbers {
            let error = make(*number);
            assert!(error.hint().to_string().contains(wanted), "{error}: {}", error.hint());
            assert_eq!(error.errno(), Some(Errno::from_raw(*number)), "{error}");
            assert!(error.to_string().contains(&Errno::from_raw(*number).to_string()), "{error}");
        }
    }
    assert!(
        transfer(libc::EIO).hint().to_string().contains("storage device"),
        "not any EIO: a disk's"
    );
}

#[test]
fn errors_display_in_one_line() {
    let path = || "file".into();
    let texts = [
        (open(2), "a/file: cannot open it for reading: ENOENT (No such file or directory)"),
        (
            transfer(5),
            "file: writing failed at byte 4096, after 96 of 8192 bytes: EIO (Input/output error)",
        ),
        (
            Error::NoMemory { wanted: 10, available: None, reserve: None },
            "not enough memory for a buffer of 10 bytes",
        ),
        (
            Error::NoMemory { wanted: 10, available: Some(9), reserve: None },
            "not enough memory for a buffer of 10 bytes: 9 bytes are available",
        ),
        (
            Error::NoMemory { wanted: 10, available: Some(9), reserve: Some(4) },
            "not enough memory for a buffer of 10 bytes: 9 bytes are available, less 4 that dmabuf_dio \
             leaves to others and what running and paused loads still need",
        ),
        (
            Error::NodeMemory { node: 1, wanted: 10, available: 9 },
            "not enough memory on node 1 for a buffer of 10 bytes: 9 bytes are available",
        ),
        (
            Error::ShortFile { path: path(), offset: 3, length: 10, end: 7, done: 4 },
            "file: the range 3..13 exceeds the file of 7 bytes (4 bytes read)",
        ),
        (
            Error::Cancelled { path: path(), direction: Direction::Save, done: 1, length: 2 },
            "file: writing was cancelled after 1 of 2 bytes",
        ),
        (
            Error::Unavailable { asked: Some(Backend::Heap), kind: None, refusals: vec![] },
            "backend heap is not available",
        ),
        (unavailable(None), "no backend is available"),
        (unavailable(Some(Kind::DmaBuf)), "no dma-buf can be created here"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn each_error_has_its_hint() {
    let (path, direction) = ("file".into(), Direction::Load);
    let setting = || Error::Setting { name: "queue_depth", value: 0, need: "from 1 to 1024" };
    let overlap = || Error::PiecesOverlap { first: 1, second: 2 };
    let hints = [
        (Error::Access { path: "f".into(), direction }, "O_RDONLY"),
        (Error::Access { path: "f".into(), direction: Direction::Save }, "without O_APPEND"),
        (Error::NotAFile { path: "f".into(), found: "a pipe" }, "a regular file"),
        (Error::DanglingLink { path: "a/l".into(), leads_to: "f".into() }, "rm a/l"),
        (
            Error::OldFileGone {
                path: "f".into(),
                kept: ".new".into(),
                errno: Errno::from_raw(libc::EACCES),
            },
            "mv .new f",
        ),
        (Error::EmptyFile { path: "f".into() }, "copy them first"),
        (Error::EmptyRange { path: "f".into(), direction }, "at least 1 byte"),
        (
            Error::ShortFile { path: "f".into(), offset: 3, length: 9, end: 7, done: 4 },
            "at most 4 bytes at 3",
        ),
        (
            Error::ShortFile { path: "f".into(), offset: 8, length: 1, end: 7, done: 0 },
            "start before byte 7,",
        ),
        (Error::RangeOverflow { offset: 1, length: 2 }, "smaller offset or length"),
        (Error::RangeBeyondBuffer { offset: 6, length: 9, buffer: 8 }, "at most 2 bytes fit at 6"),
        (Error::RangeBeyondBuffer { offset: 9, length: 9, buffer: 8 }, "at most 0 bytes fit at 9"),
        (overlap(), "only identical pieces"),
        (Error::Piece { number: 7, error: Box::new(setting()) }, "choose another queue_depth"),
        (Error::PieceInSpare { number: 7, spare: 0..4 }, "elsewhere"),
        (
            Error::InFlight { path, direction, errno: Errno::from_raw(libc::EIO) },
            "exit the process",
        ),
        (Error::NoMemory { wanted: 1, available: None, reserve: None }, "in ranges"),
        (Error::NoMemory { wanted: 1, available: None, reserve: Some(1) }, "the parameter reserve"),
        (Error::NodeMemory { node: 1, wanted: 2, available: 1 }, "another numa"),
        (lock(Some(65_536), libc::ENOMEM), "ulimit -l"),
        (lock(Some(65_536), libc::EAGAIN), "free memory"),
        (lock(Some(65_536), libc::EPERM), "seccomp"),
        (lock(Some(0), libc::EPERM), "ulimit -l"),
        (lock(None, libc::ENOMEM), "free memory"),
        (Error::Buffer { call: "place", errno: Errno::from_raw(libc::EINVAL) }, "load again"),
        (Error::NotABuffer { found: "a pipe".into() }, "memfd_create"),
        (setting(), "choose another queue_depth: from 1 to 1024"),
        (unavailable(None), "choose another backend"),
        (unavailable(Some(Kind::DmaBuf)), "allow any kind of buffer"),
        (Error::Cancelled { path: "f".into(), direction, done: 1, length: 2 }, "start again"),
    ];
    for (error, wanted) in hints {
        assert!(error.hint().to_string().contains(wanted), "{error}: {}", error.hint());
        assert!(!error.hint().to_string().contains('\n'), "{error}");
    }
    assert!(!Error::ReadOnlyBuffer.hint().to_string().is_empty());
}

#[test]
fn errno_comes_from_the_kernel_or_is_none() {
    let errno = |error: &Error| error.errno().map(Errno::raw);
    assert_eq!(
        errno(&Error::NoMemory { wanted: 1, available: None, reserve: None }),
        Some(libc::ENOMEM)
    );
    let inner = Box::new(transfer(libc::EIO));
    assert_eq!(errno(&Error::Piece { number: 1, error: inner }), Some(libc::EIO));
    assert_eq!(errno(&Error::ReadOnlyBuffer), None);
    assert_eq!(errno(&Error::RangeOverflow { offset: 1, length: 1 }), None);
    assert_eq!(errno(&unavailable(None)), None);
}

#[test]
fn refused_backend_gives_reason_and_alternatives() {
    let memfd = Buffer::memfd(4096).expect("a memfd");
    let loader = Loader::new("/proc/self/exe").length(1).backend(Backend::Heap);
    let error = loader.load_into(&memfd, 0).expect_err("a heap makes its buffers");
    let text = "backend heap is not available: it cannot load into an existing memfd";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.hint(), "use one of: memfd, buffered".into());
    assert_eq!(error.errno(), None, "nobody asked the kernel");
}

#[test]
fn io_error_keeps_kind_errno_and_source() {
    use std::error::Error as _;
    use std::io::ErrorKind;

    let source = open(libc::ENOENT).source().and_then(|source| source.downcast_ref().copied());
    assert_eq!(source, Some(Errno::from_raw(libc::ENOENT)));
    let piece = Error::Piece { number: 3, error: Box::new(Error::ReadOnlyBuffer) };
    assert_eq!(piece.source().expect("why").to_string(), Error::ReadOnlyBuffer.to_string());
    let short = Error::ShortFile { path: "f".into(), offset: 0, length: 2, end: 1, done: 1 };
    for (error, kind) in [
        (open(libc::ENOENT), ErrorKind::NotFound),
        (transfer(libc::ENOSPC), ErrorKind::StorageFull),
        (short, ErrorKind::UnexpectedEof),
        (unavailable(None), ErrorKind::Unsupported),
        (Error::ReadOnlyBuffer, ErrorKind::InvalidInput),
    ] {
        let text = error.to_string();
        let outer = std::io::Error::from(error);
        assert_eq!((outer.kind(), outer.to_string()), (kind, text));
        assert!(outer.downcast::<Error>().is_ok(), "it is inside");
    }
}

#[test]
fn hints_differ_by_errno_and_heap() {
    assert_eq!(open(libc::ENOENT).hint(), "check the path".into());
    let heap = |heap: &str, number| {
        Error::Heap { heap: heap.into(), errno: Errno::from_raw(number) }.hint().to_string()
    };
    assert!(heap("system", libc::EACCES).contains("as root"));
    assert!(heap("system", libc::ENOENT).contains("CONFIG_DMABUF_HEAPS_SYSTEM"));
    assert!(heap("reserved", libc::ENOENT).contains("ls /dev/dma_heap"));
    for (error, hint) in [
        (transfer(libc::EFAULT), "F_SEAL_SHRINK"),
        (buffer(libc::EFAULT), "F_SEAL_SHRINK"),
        (buffer(libc::EFBIG), "ulimit -f"),
        (buffer(libc::ENOSYS), "allow the system call"),
        (Error::Buffer { call: "create", errno: Errno::from_raw(libc::EPERM) }, "memfd_create"),
        (Error::NoProc, "mount -t proc"),
    ] {
        assert!(error.hint().to_string().contains(hint), "{error}: {}", error.hint());
    }
}

#[test]
fn unavailable_error_has_errno_of_its_refusal() {
    let missing = Loader::new("/proc/self/exe").backend(Backend::Module).load();
    let Err(error @ Error::Unavailable { .. }) = missing else { return };
    let Error::Unavailable { refusals, .. } = &error else { return };
    assert_eq!(error.errno(), refusals[0].errno);
    let text = refusals[0].to_string();
    assert_eq!(text, format!("module: {}", refusals[0].reason));
}

#[test]
fn cancelled_transfer_is_an_interrupted_io_error() {
    let (path, direction) = ("f".into(), Direction::Load);
    let error = Error::Cancelled { path, direction, done: 1, length: 2 };
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::Interrupted);
}

#[test]
fn every_backend_has_its_own_summary() {
    let mut all: Vec<_> = Backend::ALL.iter().map(|backend| backend.summary()).collect();
    assert!(all.iter().all(|text| text.len() > 10), "{all:?}");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), Backend::ALL.len());
}
