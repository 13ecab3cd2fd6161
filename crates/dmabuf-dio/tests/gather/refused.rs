// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads that fail in the kernel, and their results.

use dmabuf_dio::gather::{Gatherer, PieceError};
use dmabuf_dio::{Backend, Errno, Loader};

use crate::common::{bytes, file_of, fill, folder};
use crate::model::{each, piece};

/// The first bytes of this process's address space are not mapped.
#[test]
fn unreadable_file_fails_its_pieces() {
    each(65_536, |buf, backend| {
        let mut view = buf.try_clone().expect("a descriptor of our own");
        fill(&mut view, 0x5a);
        let gatherer = Gatherer::new("/proc/self/mem").backend(backend);
        let mut gathering = gatherer.open(buf).expect("open");
        // Behind its end, which is at byte 0, a piece would fail for that.
        let pieces = [piece(0, 8192, 4096)];
        let gathered = gathering.read(&pieces).expect("read");
        assert!(!gathered.is_whole() && !gathered.is_empty());
        for (result, one) in gathered.pieces().zip(&pieces) {
            let Err(error @ PieceError::Failed { offset, errno }) = result else {
                panic!("{backend}: {result:?}");
            };
            // A read to lent pages cannot read such a file.
            let hint = match errno.name() {
                Some("EIO") => "the storage device",
                Some("EINVAL" | "EFAULT") => "see dmesg",
                other => panic!("{backend}: {other:?}"),
            };
            assert!(offset == one.offset && error.hint().to_string().starts_with(hint), "{error}");
        }
        let report = gathered.report();
        assert_eq!((report.failed, report.transfer.bytes), (1, 0), "{backend}");
        assert!(bytes(buf).iter().all(|byte| *byte == 0x5a), "{backend}");
        assert!(gathering.read(&[]).expect("read").is_empty());
    });
}

#[test]
fn piece_errors_have_hints() {
    let end =
        PieceError::EndOfFile { found: dmabuf_dio::gather::Found { start: 0, len: 0 }, end: 1 };
    assert!(end.hint().to_string().starts_with("request less"));
    let errno = Errno::from_raw(libc::EINVAL);
    assert!(PieceError::Failed { offset: 0, errno }.hint().to_string().starts_with("see dmesg"));
    assert!(
        PieceError::NoRoom { needed: 1 }.hint().to_string().starts_with("set more spare bytes")
    );
}

/// The number of segments, as a load into the same buffer counts them.
#[test]
fn segments_of_lent_buffers_are_reported() {
    let folder = folder();
    let (path, _) = file_of(&folder, 65_536);
    each(4 << 20, |buf, backend| {
        let mut gathering = Gatherer::new(&path).backend(backend).open(buf).expect("open");
        let told = gathering.read(&[piece(0, 0, 4096)]).expect("read").report().transfer.segments;
        if backend == Backend::UringSlot {
            let load = Loader::new(&path).backend(backend).load_into(buf, 0).expect("load");
            assert!(told.is_some() && told == load.segments, "{told:?}, {:?}", load.segments);
        } else {
            assert_eq!(told, None, "{backend}");
        }
    });
}
