// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pieces at the end of a file, and beyond it.

use std::fs::File;

use dmabuf_dio::gather::{Found, Gatherer, PieceError};

use crate::common::{file_of, folder};
use crate::model::{check, each, piece};

#[test]
fn pieces_across_and_beyond_the_end_fail() {
    let folder = folder();
    for len in [0, 1, 511, 512, 4096, 9000, 12_288, 262_144, 262_145, 300_001] {
        let (path, content) = file_of(&folder, len);
        let end = len as u64;
        let block = end / 4096 * 4096;
        each(2 << 20, |buf, backend| {
            let spare = 1 << 20..2 << 20;
            let gatherer = Gatherer::new(&path).backend(backend).spare(spare.clone());
            let mut gathering = gatherer.open(buf).expect("open");
            let pieces = [
                piece(block, 0, 4096),
                piece(block, 8192, 65_536),
                piece(0, 81_920, 524_288),
                piece(block + 4096, 614_400, 4096),
                piece(1 << 40, 622_592, 4096),
                piece(end, 630_784, 1),
                piece(end.saturating_sub(1), 634_880, 2),
                piece(end.saturating_sub(300), 638_976, 300.min(end)),
                piece(end + 5000, 643_072, 77),
                piece(0, 647_168, end),
            ];
            for some in [&pieces[..], &pieces[..1], &pieces[3..4], &pieces[6..7]] {
                check(&mut gathering, buf, &content, some, spare.clone());
            }
            let gathered = gathering.read(&pieces[3..5]).expect("read");
            for (result, one) in gathered.pieces().zip(&pieces[3..5]) {
                let Err(PieceError::EndOfFile { found, .. }) = result else { panic!("{result:?}") };
                assert_eq!(found, Found { start: one.buf_offset, len: 0 });
            }
        });
    }
}

#[test]
fn neighbours_across_the_end_fail_separately() {
    let folder = folder();
    let (path, content) = file_of(&folder, 20_000);
    each(65_536, |buf, backend| {
        let mut gathering = Gatherer::new(&path).backend(backend).open(buf).expect("open");
        let pieces: Vec<_> = (0..8).map(|at| piece(at * 4096, at * 4096, 4096)).collect();
        let report = check(&mut gathering, buf, &content, &pieces, 0..0);
        assert_eq!(report.failed, 4, "{backend}");
    });
}

#[test]
fn file_shrinking_during_gather_fails_pieces() {
    let folder = folder();
    let (path, content) = file_of(&folder, 1 << 20);
    each(1 << 20, |buf, backend| {
        std::fs::write(&path, &content).expect("write");
        let short = path.clone();
        let gatherer =
            Gatherer::new(&path).backend(backend).queue_depth(2).progress(move |progress| {
                if progress.done > 100_000 {
                    let file = File::options().write(true).open(&short).expect("open");
                    file.set_len(300_000).expect("truncate");
                }
            });
        let mut gathering = gatherer.open(buf).expect("open");
        let pieces: Vec<_> = (0..128)
            .map(|at| piece(at * 77 % 128 * 8192, at * 8192, 4096))
            .chain([piece(16_384, 4096, 4096)])
            .collect();
        let gathered = gathering.read(&pieces).expect("read");
        for (one, result) in pieces.iter().zip(gathered.pieces()) {
            match result {
                Ok(_) => assert!(one.offset + 4096 <= 300_000, "{backend}: {one:?}"),
                Err(PieceError::EndOfFile { found, end }) => {
                    assert!(end <= 300_000 && one.offset + 4096 > 300_000, "{one:?}");
                    assert!(found.len <= 300_000_u64.saturating_sub(one.offset));
                }
                Err(error) => panic!("{backend}: {error}"),
            }
        }
        // The file grows again: the same gathering continues.
        std::fs::write(&path, &content).expect("write");
        let gathered = gathering.read(&pieces[..1]).expect("read");
        assert!(gathered.is_whole());
    });
}
