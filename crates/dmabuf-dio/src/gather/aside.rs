// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unaligned pieces: where in the spare bytes their blocks go.

use std::ops::Range;

use super::check::check_numbers;
use super::piece::{Group, Piece, Rules};
use crate::error::Result;

/// The unaligned pieces, by file offset.
#[derive(Debug)]
pub(super) struct Asides {
    /// File offset and number of each piece. Once room is assigned: its offset in the buffer, or
    /// [`NOWHERE`].
    entries: Vec<(u64, u32)>,
    /// The first entry without assigned room.
    next: usize,
    /// The rest of the spare bytes.
    free: Range<u64>,
}

/// There was no room.
pub(super) const NOWHERE: u64 = u64::MAX;

impl Asides {
    /// Collects the `count` unaligned ones of `pieces`.
    pub(super) fn new(pieces: &[Piece], count: usize, rules: Rules, spare: &Range<u64>) -> Self {
        let mut entries = Vec::with_capacity(count);
        if count > 0 {
            let some =
                (0..).zip(pieces).filter(|(_, piece)| piece.len > 0 && rules.is_aside(piece));
            entries.extend(some.map(|(number, piece)| (piece.offset, number)));
            if !entries.is_sorted() {
                entries.sort_unstable();
            }
        }
        let start = spare.start.next_multiple_of(rules.unit()).min(spare.end);
        Self { entries, next: 0, free: start..spare.end }
    }

    /// Assigns room to the next pieces whose blocks form one range of the file, and returns that
    /// range. Calls `refuse` for each piece without room, with the bytes it needs.
    pub(super) fn next_group(
        &mut self,
        pieces: &[Piece],
        rules: Rules,
        mut refuse: impl FnMut(u32, u64),
    ) -> Option<Group> {
        let mut group: Option<Group> = None;
        while let Some(entry) = self.entries.get_mut(self.next) {
            let piece = &pieces[entry.1 as usize];
            let (start, end) = rules.blocks(piece);
            let left = self.free.end - self.free.start;
            if let Some(group) = &mut group {
                let group_end = group.file + group.len;
                let more = end.saturating_sub(group_end);
                if start > group_end || more > 0 && end - group.file > rules.limit() {
                    break;
                }
                if more > left {
                    entry.0 = NOWHERE;
                    refuse(entry.1, more - left);
                } else {
                    self.free.start += more;
                    group.len += more;
                    entry.0 = group.buf + (piece.offset - group.file);
                }
                group.count += 1;
            } else if end - start > left {
                entry.0 = NOWHERE;
                refuse(entry.1, end - start - left);
            } else {
                let (buf, len, first) = (self.free.start, end - start, self.next as u32);
                self.free.start += len;
                entry.0 = buf + (piece.offset - start);
                group = Some(Group { file: start, buf, len, first, count: 1 });
            }
            self.next += 1;
        }
        group
    }

    /// The number of the piece at `entry`, and its offset.
    pub(super) fn entry(&self, entry: u32) -> (u32, u64) {
        let (start, number) = self.entries[entry as usize];
        (number, start)
    }

    /// Once all have room: the offset of each piece, by number.
    pub(super) fn into_starts(self) -> Vec<(u32, u64)> {
        let mut starts: Vec<_> =
            self.entries.into_iter().map(|(start, number)| (number, start)).collect();
        if !starts.is_sorted() {
            starts.sort_unstable();
        }
        starts
    }
}

/// Spare bytes that the pieces need, if the spare range starts at a multiple of the rules' unit.
pub(super) fn room(pieces: &[Piece], rules: Rules) -> Result<u64> {
    check_numbers(pieces, rules)?;
    let spare = 0..NOWHERE;
    let count = pieces.iter().filter(|piece| piece.len > 0 && rules.is_aside(piece)).count();
    let mut asides = Asides::new(pieces, count, rules, &spare);
    while asides.next_group(pieces, rules, |_, _| {}).is_some() {}
    Ok(asides.free.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { block: 512, memory: 4 };

    fn pieces(all: &[(u64, u64)]) -> Vec<Piece> {
        let places = (0..).map(|at| at << 20);
        let piece = |(&(offset, len), buf_offset)| Piece { offset, buf_offset, len };
        all.iter().zip(places).map(piece).collect()
    }

    /// File offset, buffer offset and length of each request; the offset of each piece; the
    /// refusals.
    type Laid = (Vec<(u64, u64, u64)>, Vec<(u32, u64)>, Vec<(u32, u64)>);

    fn laid(all: &[(u64, u64)], spare: Range<u64>) -> Laid {
        let pieces = pieces(all);
        let count = pieces.iter().filter(|piece| RULES.is_aside(piece)).count();
        let mut asides = Asides::new(&pieces, count, RULES, &spare);
        let (mut groups, mut refused) = (Vec::new(), Vec::new());
        while let Some(group) =
            asides.next_group(&pieces, RULES, |number, needed| refused.push((number, needed)))
        {
            groups.push((group.file, group.buf, group.len));
        }
        (groups, asides.into_starts(), refused)
    }

    #[test]
    fn blocks_are_packed_and_shared() {
        let all = [(5000, 10), (0, 512), (1, 1), (510, 3), (1030, 1), (99_999, 2), (5010, 100)];
        let (groups, starts, refused) = laid(&all, 100..1 << 20);
        assert_eq!(groups, [(0, 512, 1536), (4608, 2048, 512), (99_840, 2560, 512)]);
        let wanted = [(0, 2440), (2, 513), (3, 1022), (4, 1542), (5, 2719), (6, 2450)];
        assert_eq!(starts, wanted);
        assert!(refused.is_empty());
        assert_eq!(room(&pieces(&all), RULES).expect("fit"), 1536 + 512 + 512);
        assert_eq!(room(&[], RULES).expect("fit"), 0);
    }

    #[test]
    fn refused_piece_leaves_room_for_others() {
        let all = [(1, 1), (2000, 2000), (10_001, 1), (20_001, 1), (3, 3)];
        let (groups, starts, refused) = laid(&all, 0..1024);
        assert_eq!(groups, [(0, 0, 512), (9728, 512, 512)]);
        assert_eq!(starts, [(0, 1), (1, NOWHERE), (2, 785), (3, NOWHERE), (4, 3)]);
        // 1536..4096 in 512 bytes, and 19968..20480 in none.
        assert_eq!(refused, [(1, 2048), (3, 512)]);
    }

    #[test]
    fn pieces_without_room_are_refused() {
        let (groups, starts, refused) = laid(&[(1, 1), (2, 511)], 0..0);
        assert!(groups.is_empty());
        assert_eq!(starts, [(0, NOWHERE), (1, NOWHERE)]);
        assert_eq!(refused, [(0, 512), (1, 1024)]);
    }

    #[test]
    fn shared_requests_have_a_limit() {
        let limit = RULES.limit();
        let all: Vec<_> = (0..600).map(|at| (at * 512 + 1, 512)).collect();
        let (groups, starts, refused) = laid(&all, 0..1 << 30);
        assert!(refused.is_empty());
        assert!(groups.iter().all(|group| group.2 <= limit));
        assert_eq!(groups.len(), 2);
        for ((_, start), (offset, _)) in starts.iter().zip(&all) {
            let group = groups.iter().find(|group| (group.1..group.1 + group.2).contains(start));
            let group = group.expect("a request");
            assert_eq!(start - group.1, offset - group.0);
        }
        // A long piece has its own request, which also serves pieces within it.
        let (groups, ..) =
            laid(&[(1, 3 * limit), (limit, 100), (3 * limit, 1), (3 * limit, 513)], 0..1 << 30);
        assert_eq!(groups, [(0, 0, 3 * limit + 512), (3 * limit, 3 * limit + 512, 1024)]);
    }

    #[test]
    fn blocks_fit_to_the_last_byte() {
        // The second block is all that is left, and too little.
        let (groups, _, refused) = laid(&[(1, 1), (513, 1)], 0..1024);
        assert_eq!((groups, refused), (vec![(0, 0, 1024)], vec![]));
        let (groups, _, refused) = laid(&[(1, 1), (600, 1500)], 0..1024);
        assert_eq!((groups, refused), (vec![(0, 0, 512)], vec![(1, 1536)]));
        // A shared request of the maximum length.
        let limit = RULES.limit();
        let all: Vec<_> = (0..=limit / 512).map(|at| (at * 512 + 1, 1)).collect();
        let (groups, ..) = laid(&all, 0..1 << 30);
        assert_eq!(groups, [(0, 0, limit), (limit, limit, 512)]);
    }
}
