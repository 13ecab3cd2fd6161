// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that are refused as a whole: nothing has been read.

use std::os::fd::AsRawFd as _;

use dmabuf_dio::gather::{Gatherer, Piece};
use dmabuf_dio::{Backend, Buffer, Error};

use crate::common::{buffers, bytes, file_of, fill, folder};
use crate::model::{each, piece};

/// Makes a call that has to fail, and checks that nothing was read.
#[track_caller]
fn refused(pieces: &[Piece], check: impl Fn(&Error) -> bool) {
    let folder = folder();
    let (path, _) = file_of(&folder, 65_536);
    each(65_536, |buf, backend| {
        let mut view = buf.try_clone().expect("a descriptor of our own");
        fill(&mut view, 0x5a);
        let gatherer = Gatherer::new(&path).backend(backend).spare(40_960..57_344);
        let mut gathering = gatherer.open(buf).expect("open");
        let error = gathering.read(pieces).map(|_| ()).expect_err("refused");
        assert!(check(&error), "{backend}: {error}");
        assert!(!error.hint().to_string().is_empty() && !error.hint().to_string().contains('\n'));
        assert!(bytes(buf).iter().all(|byte| *byte == 0x5a), "{backend}");
    });
}

#[test]
fn overlapping_pieces_are_refused() {
    let overlap = |first, second| move |error: &Error| matches!(error, Error::PiecesOverlap { first: a, second: b } if (*a, *b) == (first, second));
    refused(&[piece(0, 0, 4096), piece(4096, 4095, 4096)], overlap(0, 1));
    refused(&[piece(0, 8192, 1), piece(0, 0, 8193), piece(0, 16_384, 9)], overlap(0, 1));
    // The same place alone does not make pieces identical.
    refused(&[piece(0, 0, 4096), piece(4096, 0, 4096)], overlap(0, 1));
    refused(&[piece(0, 0, 4096), piece(0, 4096, 1), piece(0, 0, 2048)], overlap(0, 2));
    let many: Vec<_> = (0..500).map(|at| piece(at * 8, (at * 7919) % 500 * 16, 16)).collect();
    let broken: Vec<_> = many.iter().copied().chain([piece(0, 800, 17)]).collect();
    refused(&broken, |error| matches!(error, Error::PiecesOverlap { second: 500, .. }));
}

#[test]
fn pieces_beyond_the_buffer_are_refused() {
    for outside in [
        piece(0, 65_536, 1),
        piece(0, 65_535, 2),
        piece(0, 0, 65_537),
        piece(0, 70_000, 0),
        piece(0, u64::MAX, 1),
        piece(0, u64::MAX, u64::MAX),
        piece(0, 0, u64::MAX),
    ] {
        refused(&[piece(0, 0, 4096), outside], |error| match error {
            Error::Piece { number: 1, error } => {
                matches!(**error, Error::RangeBeyondBuffer { .. } | Error::RangeOverflow { .. })
            }
            _ => false,
        });
    }
}

#[test]
fn pieces_beyond_any_file_are_refused() {
    for outside in [piece(u64::MAX, 0, 1), piece(i64::MAX as u64, 0, 1), piece(u64::MAX, 0, 4096)] {
        refused(&[outside, piece(0, 4096, 4096)], |error| match error {
            Error::Piece { number: 0, error } => matches!(**error, Error::RangeOverflow { .. }),
            _ => false,
        });
    }
}

#[test]
fn pieces_in_spare_bytes_are_refused() {
    for inside in [piece(0, 36_864, 4097), piece(0, 45_056, 512), piece(0, 57_343, 1)] {
        refused(&[piece(0, 0, 4096), inside], |error| {
            matches!(error, Error::PieceInSpare { number: 1, .. })
        });
    }
}

#[test]
fn out_of_range_settings_are_refused() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    let mut buf = Buffer::memfd(4096).expect("a memfd");
    fill(&mut buf, 0);
    for depth in [0, 1025] {
        let error = Gatherer::new(&path).queue_depth(depth).open(&buf).expect_err("a bad depth");
        assert!(matches!(error, Error::Setting { name: "queue_depth", .. }), "{error}");
    }
    let beyond = buf.len() + 1;
    let error = Gatherer::new(&path).spare(0..beyond).open(&buf).expect_err("too long");
    assert!(matches!(error, Error::RangeBeyondBuffer { .. }), "{error}");
    let mut gathering = Gatherer::new(&path).spare(8..8).open(&buf).expect("none is any");
    assert!(gathering.set_spare(1..beyond + 1).is_err());
    assert!(gathering.read(&[piece(0, 0, 4096)]).expect("read").is_whole());
    let error = Gatherer::new(folder.path()).open(&buf).expect_err("a folder");
    assert!(matches!(error, Error::NotAFile { .. }), "{error}");
    let error = Gatherer::new(folder.path().join("none")).open(&buf).expect_err("no file");
    assert!(matches!(error, Error::Open { .. }), "{error}");
    let gathering = Gatherer::new(&path).open(&buf).expect("open");
    let error = gathering.room(&[piece(u64::MAX, 0, 1)]).expect_err("too far");
    assert!(matches!(error, Error::Piece { number: 0, .. }), "{error}");
}

#[test]
fn read_only_buffer_is_refused() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    let buf = Buffer::memfd(4096).expect("a memfd");
    let again = std::fs::File::open(format!(
        "/proc/self/fd/{}",
        buf.fd().expect("a descriptor").as_raw_fd()
    ))
    .expect("open");
    let read_only = Buffer::from_fd(again.into()).expect("a buffer");
    let error = Gatherer::new(&path).open(&read_only).expect_err("read-only");
    assert!(matches!(error, Error::ReadOnlyBuffer), "{error}");
}

#[test]
fn backends_without_gather_are_refused() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    for (buf, _) in buffers(4096) {
        for backend in Backend::ALL {
            if Backend::for_gathering(buf.kind()).contains(&backend) {
                continue;
            }
            let error = Gatherer::new(&path).backend(backend).open(&buf).expect_err("refused");
            assert!(matches!(error, Error::Unavailable { asked: Some(_), .. }), "{error}");
            assert!(error.hint().to_string().contains("use one of"), "{}", error.hint());
        }
    }
}
