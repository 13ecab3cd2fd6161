// SPDX-License-Identifier: MIT OR Apache-2.0
//! The expected content of a buffer after a call.

use std::ops::Range;

use dmabuf_dio::gather::{Found, GatherReport, Gathering, Piece, PieceError};
use dmabuf_dio::{Backend, Buffer, Kind};

use crate::common::{assert_same, buffers, bytes, fill};

/// The initial content of the buffer.
const BEFORE: u8 = 0xa5;

pub(crate) fn piece(offset: u64, buf_offset: u64, len: u64) -> Piece {
    Piece { offset, buf_offset, len }
}

pub(crate) fn gathers(kind: Kind, backend: Backend) -> bool {
    Backend::for_gathering(kind).contains(&backend)
}

/// Runs a test for every kind of buffer and every available backend.
pub(crate) fn each(len: u64, mut test: impl FnMut(&Buffer, Backend)) {
    for (buf, backends) in buffers(len) {
        for backend in backends.into_iter().filter(|one| gathers(buf.kind(), *one)) {
            test(&buf, backend);
        }
    }
}

/// Reads the pieces of a file with this content and checks every byte of the buffer.
#[track_caller]
pub(crate) fn check(
    gathering: &mut Gathering,
    buf: &Buffer,
    content: &[u8],
    pieces: &[Piece],
    spare: Range<u64>,
) -> GatherReport {
    let what = format!("{} of {} pieces", gathering.backend(), pieces.len());
    let mut view = buf.try_clone().expect("a descriptor of our own");
    fill(&mut view, BEFORE);
    let (block, memory) = gathering.alignment();
    let room = gathering.room(pieces).expect("fit");
    let gathered = gathering.read(pieces).expect(&what);
    let found = bytes(buf);
    let mut wanted = vec![BEFORE; found.len()];
    let mut undefined: Vec<Range<u64>> = Vec::new();
    let end = content.len() as u64;
    assert_eq!(gathered.len(), pieces.len());
    assert_eq!(gathered.pieces().filter(Result::is_err).count(), gathered.errors().len());
    assert_eq!(gathered.is_whole(), gathered.errors().len() == 0);
    for (number, (one, result)) in pieces.iter().zip(gathered.pieces()).enumerate() {
        let what = format!("{what}: {number}, {one:?}: {result:?}");
        assert_eq!(gathered.get(number), Some(result));
        let aside =
            one.len > 0 && ((one.offset | one.len) % block != 0 || one.buf_offset % memory != 0);
        let Found { start, len } = match result {
            Ok(found) => {
                assert_eq!(found.len, one.len, "{what}");
                assert!(one.offset + one.len <= end || one.len == 0, "{what}");
                found
            }
            Err(PieceError::EndOfFile { found, end: at }) => {
                assert!(at <= end && one.offset + one.len > end, "{what}");
                assert!(at == end || one.offset >= end, "{what}");
                assert_eq!(found.len, end.saturating_sub(one.offset), "{what}");
                found
            }
            Err(PieceError::NoRoom { needed }) => {
                assert!(aside && needed > 0 && room > 0, "{what}");
                assert!(room + 2 * block > spare.end - spare.start, "{what}");
                continue;
            }
            Err(error) => panic!("{what}: {error}"),
        };
        if aside {
            let inside = spare.contains(&start) && start + len <= spare.end;
            assert!(inside && start % block == one.offset % block, "{what}");
        } else {
            assert_eq!(start, one.buf_offset, "{what}");
        }
        if len > 0 {
            let range = one.offset as usize..(one.offset + len) as usize;
            let ours = &found[start as usize..(start + len) as usize];
            assert_same(&what, ours, &content[range.clone()]);
            wanted[start as usize..(start + len) as usize].copy_from_slice(&content[range]);
        }
        if !aside && len > 0 {
            // Beyond the end of the file, the rest of its last block may appear.
            undefined.push(start + len..start + one.len);
        }
    }
    // Blocks around pieces; other spare bytes do not change.
    let used = spare.start.next_multiple_of(block.max(memory)) + room;
    undefined.push(spare.start..used.min(spare.end));
    let mut found = found;
    for range in undefined {
        let range = range.start as usize..range.end.max(range.start) as usize;
        wanted[range.clone()].fill(0);
        found[range].fill(0);
    }
    assert_same(&what, &found, &wanted);
    gathered.report()
}

/// Reproducible random numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }

    /// Pieces of all sorts, in any order, that do not overlap in the first `room` bytes.
    pub(crate) fn pieces(&mut self, file: u64, room: u64, most: u64) -> Vec<Piece> {
        let (mut pieces, mut at) = (Vec::<Piece>::new(), 0);
        // Mostly aligned, partly, or not at all.
        let kind = self.below(3);
        for _ in 0..self.below(most) {
            let unit = match (kind, self.below(10)) {
                (0, _) | (1, 1..) => 4096,
                (1, _) => 512,
                _ => 1,
            };
            let len = match self.below(12) {
                0 => 0,
                1 => self.below(150_000),
                _ => self.below(20_000),
            };
            let len = (len / unit * unit).max(unit * u64::from(len > 0));
            at = (at + self.below(3) * self.below(5000)).next_multiple_of(unit);
            let mut offset = self.below(file + 20_000) / unit * unit;
            match (self.below(4), pieces.last()) {
                // At the end of the previous one, at its start, or identical to it.
                (0, Some(last)) => offset = last.offset + last.len,
                (1, Some(last)) => offset = last.offset,
                (2, Some(last)) if self.below(3) == 0 => {
                    let last = *last;
                    pieces.push(last);
                    continue;
                }
                _ => {}
            }
            if at + len > room {
                break;
            }
            pieces.push(piece(offset, at, len));
            at += len;
        }
        if self.below(3) > 0 {
            for last in (1..pieces.len()).rev() {
                pieces.swap(last, self.below(last as u64 + 1) as usize);
            }
        }
        pieces
    }
}
