// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks all pieces before anything is read.

use std::ops::Range;

use super::piece::{Piece, Rules};
use crate::error::{Error, Result};

/// The limits for pieces.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// Length of the buffer in bytes.
    pub(super) buffer: u64,
    pub(super) spare: Range<u64>,
    pub(super) rules: Rules,
}

/// Properties of pieces that passed the check.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) order: Order,
    /// Number of unaligned pieces.
    pub(super) asides: usize,
    /// Bytes of all pieces.
    pub(super) bytes: u64,
    /// The largest end of a piece in the file.
    pub(super) end: u64,
}

/// The pieces in the order of their buffer offsets. Empty pieces may be missing.
#[derive(Debug)]
pub(super) enum Order {
    /// In the given order.
    Given,
    /// The low bits under the mask are the number of a piece.
    Sorted { keys: Vec<u64>, mask: u64 },
}

impl Order {
    /// The number of the piece at `entry`.
    #[inline]
    pub(super) fn number(&self, entry: usize) -> usize {
        match self {
            Self::Given => entry,
            Self::Sorted { keys, mask } => (keys[entry] & mask) as usize,
        }
    }

    pub(super) fn len(&self, pieces: &[Piece]) -> usize {
        match self {
            Self::Given => pieces.len(),
            Self::Sorted { keys, .. } => keys.len(),
        }
    }
}

/// File ranges that end before this do not overflow when rounded.
fn largest_end(rules: Rules) -> u64 {
    i64::MAX as u64 - rules.limit()
}

/// Fails if any piece is invalid.
pub(super) fn check(pieces: &[Piece], bounds: &Bounds) -> Result<Checked> {
    if u32::try_from(pieces.len()).is_err() {
        let need = "at most 4,294,967,295 in a call";
        return Err(Error::Setting { name: "pieces", value: pieces.len() as u64, need });
    }
    let Bounds { buffer, rules, .. } = *bounds;
    // An empty range is in no piece, wherever it is.
    let spare = if bounds.spare.is_empty() { 0..0 } else { bounds.spare.clone() };
    let top = largest_end(rules);
    let (mut asides, mut bytes, mut last_end) = (0, 0_u64, 0);
    let (mut ascending, mut previous, mut previous_end) = (true, &Piece::default(), 0);
    // This runs for every piece, so the details of a bad one are determined later.
    let bad = pieces.iter().position(|piece| {
        let Some((file_end, buf_end)) = ends(piece, top, buffer) else { return true };
        if piece.len == 0 {
            return false;
        }
        if piece.buf_offset < previous_end {
            ascending &= piece == previous;
        }
        (previous, previous_end) = (piece, buf_end);
        asides += usize::from(rules.is_aside(piece));
        bytes = bytes.saturating_add(piece.len);
        last_end = last_end.max(file_end);
        piece.buf_offset < spare.end && spare.start < buf_end
    });
    if let Some(number) = bad {
        let piece = &pieces[number];
        if ends(piece, top, buffer).is_some() {
            return Err(Error::PieceInSpare { number, spare });
        }
        return Err(refuse(number, piece, top, buffer));
    }
    let mut checked = Checked { order: Order::Given, asides, bytes, end: last_end };
    if !ascending {
        checked.order = sort(pieces, bounds.buffer);
        look_for_overlaps(pieces, &checked.order)?;
    }
    Ok(checked)
}

/// The ends of a piece in the file and in the buffer, if they do not exceed `top` and `buffer`.
#[inline]
fn ends(piece: &Piece, top: u64, buffer: u64) -> Option<(u64, u64)> {
    let file_end = piece.offset.saturating_add(piece.len);
    let buf_end = piece.buf_offset.saturating_add(piece.len);
    (file_end <= top && buf_end <= buffer).then_some((file_end, buf_end))
}

/// Fails if the offset and length of a piece overflow.
pub(super) fn check_numbers(pieces: &[Piece], rules: Rules) -> Result<()> {
    let (top, buffer) = (largest_end(rules), u64::MAX - 1);
    match pieces.iter().position(|piece| ends(piece, top, buffer).is_none()) {
        None => Ok(()),
        Some(number) => Err(refuse(number, &pieces[number], top, buffer)),
    }
}

#[cold]
fn refuse(number: usize, piece: &Piece, top: u64, buffer: u64) -> Error {
    let Piece { offset, buf_offset, len: length } = *piece;
    let in_file = offset.checked_add(length).is_none_or(|end| end > top);
    let error = if in_file {
        Error::RangeOverflow { offset, length }
    } else if buf_offset.checked_add(length).is_none() {
        Error::RangeOverflow { offset: buf_offset, length }
    } else {
        Error::RangeBeyondBuffer { offset: buf_offset, length, buffer }
    };
    Error::Piece { number, error: Box::new(error) }
}

/// Sorts by buffer offset, then by number.
fn sort(pieces: &[Piece], buffer: u64) -> Order {
    let bits = |value: u64| u64::BITS - value.leading_zeros();
    let (places, numbers) = (bits(buffer), bits(pieces.len() as u64));
    let some = (0..).zip(pieces).filter(|(_, piece)| piece.len > 0);
    if places + numbers <= u64::BITS {
        // Both are compared at once.
        let mut keys: Vec<u64> =
            some.map(|(number, piece)| piece.buf_offset << numbers | number).collect();
        keys.sort_unstable();
        return Order::Sorted { keys, mask: (1 << numbers) - 1 };
    }
    let mut keys: Vec<u64> = some.map(|(number, _)| number).collect();
    keys.sort_unstable_by_key(|number| (pieces[*number as usize].buf_offset, *number));
    Order::Sorted { keys, mask: u64::MAX }
}

fn look_for_overlaps(pieces: &[Piece], order: &Order) -> Result<()> {
    let mut before: Option<usize> = None;
    for number in (0..order.len(pieces)).map(|entry| order.number(entry)) {
        let piece = &pieces[number];
        let overlaps = |other: &Piece| piece.buf_offset < other.buf_end() && piece != other;
        if let Some(before) = before.filter(|before| overlaps(&pieces[*before])) {
            let (first, second) = (number.min(before), number.max(before));
            return Err(Error::PiecesOverlap { first, second });
        }
        before = Some(number);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { block: 512, memory: 4 };

    fn piece((offset, buf_offset, len): (u64, u64, u64)) -> Piece {
        Piece { offset, buf_offset, len }
    }

    fn checked(pieces: &[(u64, u64, u64)]) -> Result<(Vec<usize>, usize, u64, u64)> {
        let pieces: Vec<_> = pieces.iter().copied().map(piece).collect();
        let checked =
            check(&pieces, &Bounds { buffer: 65_536, spare: 60_000..65_536, rules: RULES })?;
        let order = (0..checked.order.len(&pieces)).map(|at| checked.order.number(at)).collect();
        Ok((order, checked.asides, checked.bytes, checked.end))
    }

    #[test]
    fn ordered_pieces_are_not_sorted() {
        let pieces = [(9000, 0, 10), (0, 10, 0), (512, 512, 512), (512, 512, 512), (0, 1024, 1)];
        let given: Vec<_> = pieces.iter().copied().map(piece).collect();
        let bounds = Bounds { buffer: 65_536, spare: 0..0, rules: RULES };
        let found = check(&given, &bounds).expect("fit");
        assert!(matches!(found.order, Order::Given));
        assert_eq!((found.asides, found.bytes, found.end), (2, 1035, 9010));
    }

    #[test]
    fn empty_spare_range_is_in_no_piece() {
        let pieces = [piece((0, 0, 4096))];
        let bounds = Bounds { buffer: 65_536, spare: 512..512, rules: RULES };
        assert!(check(&pieces, &bounds).is_ok());
        let bounds = Bounds { spare: 512..1024, ..bounds };
        assert!(matches!(check(&pieces, &bounds), Err(Error::PieceInSpare { number: 0, .. })));
    }

    #[test]
    fn unordered_pieces_are_sorted() {
        let pieces = [(0, 4096, 512), (0, 0, 512), (7, 9, 0), (0, 512, 512), (0, 0, 512)];
        assert_eq!(checked(&pieces).expect("fit").0, [1, 4, 3, 0]);
    }

    #[test]
    fn huge_buffers_sort_with_wide_keys() {
        let pieces: Vec<_> = (0..100).rev().map(|at| piece((0, at << 50, 1 << 50))).collect();
        let bounds = Bounds { buffer: u64::MAX, spare: 0..0, rules: Rules::BUFFERED };
        let order = check(&pieces, &bounds).expect("fit").order;
        let numbers: Vec<_> = (0..100).map(|entry| order.number(entry)).collect();
        assert_eq!(numbers, (0..100).rev().collect::<Vec<_>>());
        assert!(matches!(order, Order::Sorted { mask: u64::MAX, .. }));
    }

    #[test]
    fn overlaps_are_named() {
        for (pieces, numbers) in [
            (&[(0, 0, 100), (0, 99, 1)][..], (0, 1)),
            (&[(0, 50, 10), (0, 0, 10), (0, 0, 51)], (1, 2)),
            (&[(0, 50, 10), (0, 0, 51), (0, 49, 0)], (0, 1)),
            (&[(0, 7, 10), (1, 7, 10)], (0, 1)),
            (&[(0, 0, 9), (0, 20, 9), (0, 20, 9), (0, 28, 1)], (2, 3)),
        ] {
            match checked(pieces) {
                Err(Error::PiecesOverlap { first, second }) => {
                    assert_eq!((first, second), numbers);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn piece_beyond_buffer_or_file_is_named() {
        for (at, offset) in [(u64::MAX, 0), (0, u64::MAX), (i64::MAX as u64, 0), (0, 65_527)] {
            let error = checked(&[(0, 0, 9), (at, offset, 10)]).expect_err("unfit");
            assert!(matches!(error, Error::Piece { number: 1, .. }), "{error}");
        }
        assert!(matches!(checked(&[(0, 65_537, 0)]), Err(Error::Piece { number: 0, .. })));
        assert!(checked(&[(0, 65_536, 0)]).is_ok());
    }

    fn why(piece: (u64, u64, u64)) -> Error {
        match checked(&[piece]) {
            Err(Error::Piece { number: 0, error }) => *error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn error_distinguishes_buffer_and_file_bounds() {
        let top = largest_end(RULES);
        for (file, len) in [(top, 1), (top - 9, 10), (u64::MAX, 10)] {
            let error = why((file, 70_000, len));
            assert!(
                matches!(error, Error::RangeOverflow { offset, length } if offset == file && length == len),
                "{error}"
            );
        }
        for file in [0, top - 10] {
            let error = why((file, 65_530, 10));
            assert!(matches!(error, Error::RangeBeyondBuffer { offset: 65_530, .. }), "{error}");
        }
        let error = why((0, u64::MAX, 10));
        assert!(matches!(error, Error::RangeOverflow { offset: u64::MAX, .. }), "{error}");
    }

    #[test]
    fn overflowing_pieces_are_found_without_a_buffer() {
        let check = |pieces: &[_]| {
            let pieces: Vec<_> = pieces.iter().copied().map(piece).collect();
            check_numbers(&pieces, RULES)
        };
        assert!(check(&[(0, 0, 10), (1 << 60, u64::MAX - 20, 19)]).is_ok());
        for bad in [(0, u64::MAX - 9, 10), (u64::MAX - 5, 0, 10), (largest_end(RULES), 0, 1)] {
            let error = check(&[(0, 0, 10), bad]).expect_err("overflow");
            assert!(matches!(error, Error::Piece { number: 1, .. }), "{error}");
        }
    }

    #[test]
    fn narrow_keys_sort_offset_and_number_together() {
        let pieces: Vec<_> = (0..5).rev().map(|at| piece((0, at << 30, 1))).collect();
        let bounds = Bounds { buffer: 1 << 40, spare: 0..0, rules: Rules::BUFFERED };
        let order = check(&pieces, &bounds).expect("fit").order;
        assert!(matches!(order, Order::Sorted { mask: 7, .. }), "{order:?}");
        assert_eq!((0..5).map(|at| order.number(at)).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
    }

    #[test]
    fn piece_in_spare_bytes_is_refused() {
        let error = checked(&[(0, 0, 1), (0, 59_999, 2)]).expect_err("unfit");
        assert!(matches!(error, Error::PieceInSpare { number: 1, .. }), "{error}");
        assert!(checked(&[(0, 59_999, 1), (0, 60_000, 0)]).is_ok());
    }
}
