// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on a simulated device, byte by byte: what each piece has, and what nobody may touch.

use std::cell::RefCell;
use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;

use super::check::{Bounds, check};
use super::outcome::{Exception, Outcome};
use super::piece::{Group, Piece, Rules};
use super::plan::{Plan, Request};
use crate::drawn::{holds, one_of};
use crate::errno::Errno;
use crate::error::Error;

/// A byte of the buffer that nothing was read to.
const UNTOUCHED: u8 = 0xee;
/// Bytes of the buffer before the spare ones.
const PLACES: u64 = 640 << 10;

/// The file's byte at an offset, never [`UNTOUCHED`].
fn byte(at: u64) -> u8 {
    ((at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) % 0xee) as u8
}

/// A call, and the device that answers it.
#[derive(Clone, Debug)]
struct Call {
    rules: Rules,
    pieces: Vec<Piece>,
    /// Bytes of the spare range.
    spare: u64,
    /// The end of the file when the call begins, and when it reads.
    end: u64,
    end_then: u64,
    /// Reads that touch these bytes fail.
    bad: Range<u64>,
    /// The first answers: interrupted, or how much less than all.
    first: Vec<Answer>,
    refuses_direct: bool,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Interrupted,
    /// This much of it, in 256ths.
    Part(u8),
    Whole,
}

fn answers() -> impl Strategy<Value = Answer> {
    one_of![Just(Answer::Interrupted), any::<u8>().prop_map(Answer::Part), Just(Answer::Whole)]
}

/// Pieces next to each other, apart, repeated, empty, and in any order: as `(skip in the file, skip in the buffer,
/// length, shape)`.
fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let block = one_of![Just(1_u64), Just(512), Just(4096)];
    let some = (0_u64..6, 0_u64..3, 0_u64..9, block, 0_u8..16);
    let long = one_of![30 => Just(0_u64), 1 => 1_u64..300_000];
    (vec((some, long), 0..14), any::<u64>(), 0_u64..30_000).prop_map(|(drawn, shuffle, start)| {
        let (mut file, mut buf) = (start / 512 * 512, 0);
        let mut pieces: Vec<Piece> = Vec::new();
        for ((skip, apart, len, block, shape), long) in drawn {
            // Most follow the one before, in the file and in the buffer.
            file += if shape & 1 == 0 { skip * block } else { 0 };
            buf += if shape & 2 == 0 { apart * block } else { 0 };
            let len = len * block + long / 512 * 512;
            if shape == 15 {
                pieces.extend(pieces.last().copied());
            }
            if shape == 14 {
                file = file.saturating_sub(len + 700);
            }
            if buf + len > PLACES {
                break;
            }
            pieces.push(Piece { offset: file, buf_offset: buf, len });
            (file, buf) = (file + len, buf + len);
        }
        // Some are given in another order.
        if shuffle % 3 == 0 && !pieces.is_empty() {
            let turn = (shuffle >> 8) as usize % pieces.len();
            pieces.rotate_left(turn);
        }
        pieces
    })
}

fn calls() -> impl Strategy<Value = Call> {
    let rules = one_of![
        Just(Rules::BUFFERED),
        (one_of![Just(512_u64), Just(4096)], one_of![Just(1_u64), Just(4), Just(512)])
            .prop_map(|(block, memory)| Rules { block, memory }),
    ];
    let spare = one_of![Just(0_u64), 0_u64..20_000, Just(700 << 10)];
    let ends = (
        one_of![Just(1_u64 << 20), 0_u64..100_000],
        one_of![3 => Just(0_u64), 1 => 0_u64..9000],
        any::<bool>(),
    );
    let bad = one_of![1 => Just(0..0), 1 => (0_u64..60_000, 1_u64..20_000).prop_map(|(at, len)| at..at + len)];
    let device = (bad, vec(answers(), 0..12), prop::bool::weighted(0.1));
    (rules, pieces(), spare, ends, device).prop_map(
        |(rules, pieces, spare, (end, moved, shorter), (bad, first, refuses_direct))| Call {
            rules,
            pieces,
            spare,
            end,
            end_then: if shorter { end.saturating_sub(moved) } else { end + moved },
            bad,
            first,
            refuses_direct,
        },
    )
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

impl Call {
    fn spare(&self) -> Range<u64> {
        PLACES..PLACES + self.spare
    }

    /// The bad bytes of the file.
    fn bad(&self) -> Range<u64> {
        self.bad.start..self.bad.end.min(self.end_then)
    }

    /// Answers a request, and stores the bytes of the file.
    fn answer(&self, request: &Request, number: usize, buffer: &mut [u8]) -> Result<u64, Errno> {
        let Group { file, buf, len, .. } = request.group;
        let failed = |number| Err(Errno::from_raw(number));
        let Rules { block, memory } = self.rules;
        let is_direct = self.rules.are_direct() && !request.buffered;
        if is_direct && (self.refuses_direct || (file | len) % block != 0 || buf % memory != 0) {
            return failed(libc::EINVAL);
        }
        if meet(&(file..file + len), &self.bad()) {
            return failed(libc::EIO);
        }
        let there = self.end_then.saturating_sub(file).min(len);
        let moved = match self.first.get(number) {
            Some(Answer::Interrupted) => return failed(libc::EINTR),
            Some(Answer::Part(part)) if there > 0 => (there * u64::from(*part) / 256).max(1),
            _ => there,
        };
        let room = &mut buffer[buf as usize..(buf + len) as usize];
        // A device may store more than it says.
        for (place, at) in room.iter_mut().zip(file..file + moved) {
            *place = byte(at);
        }
        Ok(moved)
    }

    /// Runs the call. Returns what it reports and the buffer afterwards.
    fn run(&self) -> Result<(Outcome, Vec<u8>), Error> {
        let spare = self.spare();
        let bounds = Bounds { buffer: spare.end, spare: spare.clone(), rules: self.rules };
        let checked = check(&self.pieces, &bounds)?;
        let mut plan = Plan::new(&self.pieces, checked, self.rules, &spare, self.end);
        let mut buffer = vec![UNTOUCHED; spare.end as usize];
        let (mut request, mut made, mut moved) = (Request::default(), 0, 0);
        while plan.next(&mut request) {
            let Group { buf, len, .. } = request.group;
            assert!(len > 0 && len <= self.rules.limit(), "{request:?}");
            assert!(buf + len <= spare.end, "{request:?} is outside the buffer");
            assert!(!request.aside || buf >= spare.start, "{request:?} is outside the spare bytes");
            assert!(made < 10_000, "it does not end: {request:?}");
            let answer = self.answer(&request, made, &mut buffer);
            (made, moved) = (made + 1, moved + answer.unwrap_or(0));
            plan.complete(&request, answer);
        }
        let outcome = plan.finish(Some(self.end_then));
        assert_eq!((outcome.counts.requests, outcome.counts.moved), (made as u64, moved));
        Ok((outcome, buffer))
    }

    /// The blocks that have to be read for a piece.
    fn blocks(&self, piece: &Piece) -> Range<u64> {
        let block = self.rules.block;
        piece.offset / block * block..(piece.offset + piece.len).next_multiple_of(block)
    }

    /// Compares what was reported of a piece with the buffer and the file.
    fn compare(&self, number: usize, outcome: &Outcome, buffer: &[u8]) {
        let piece = self.pieces[number];
        let told = |(other, exception): &(u32, Exception)| {
            (*other as usize == number).then_some(*exception)
        };
        let exception = outcome.exceptions.iter().find_map(told);
        let aside = outcome.starts.iter().find(|(other, _)| *other as usize == number);
        let start = aside.map_or(piece.buf_offset, |(_, start)| *start);
        let is_bad = meet(&self.blocks(&piece), &self.bad());
        let is_behind = piece.len > 0 && piece.offset + piece.len > self.end_then;
        let whole = match exception {
            None => {
                assert!(!is_behind, "piece {number} is beyond the end of the file");
                piece.len
            }
            Some(Exception::EndOfFile { end }) => {
                assert!(is_behind && end <= self.end_then, "piece {number}: {exception:?}");
                end.saturating_sub(piece.offset).min(piece.len)
            }
            Some(Exception::Failed { offset, errno }) => {
                assert_eq!(errno.raw(), libc::EIO, "piece {number}");
                assert!(is_bad, "piece {number}: {exception:?} where nothing is bad");
                assert!(self.blocks(&piece).contains(&offset), "piece {number}: {exception:?}");
                0
            }
            Some(Exception::NoRoom { needed }) => {
                assert!(aside.is_some() && needed > 0, "piece {number}: {exception:?}");
                0
            }
        };
        for at in 0..whole {
            let found = buffer[(start + at) as usize];
            assert_eq!(found, byte(piece.offset + at), "byte {at} of piece {number}: {piece:?}");
        }
        let is_read = exception.is_none() && piece.len > 0;
        let touches = meet(&(piece.offset..piece.offset + piece.len), &self.bad());
        assert!(!(is_read && touches), "piece {number} has bytes that cannot be read");
    }
}

#[cfg_attr(test, test)]
pub(crate) fn every_piece_has_its_bytes_or_a_reason() {
    let reasons = RefCell::new([0; 4]);
    holds(&calls(), |call| {
        let Ok((outcome, mut buffer)) = call.run() else { return };
        for number in 0..call.pieces.len() {
            call.compare(number, &outcome, &buffer);
        }
        for (_, exception) in &outcome.exceptions {
            reasons.borrow_mut()[match exception {
                Exception::EndOfFile { .. } => 1,
                Exception::Failed { .. } => 2,
                Exception::NoRoom { .. } => 3,
            }] += 1;
        }
        reasons.borrow_mut()[0] += usize::from(outcome.exceptions.is_empty());
        // Neither a place nor spare: unchanged.
        for piece in &call.pieces {
            buffer[piece.buf_offset as usize..][..piece.len as usize].fill(UNTOUCHED);
        }
        let spare = call.spare();
        let outside = buffer[..spare.start as usize].iter().position(|byte| *byte != UNTOUCHED);
        assert_eq!(outside, None, "nobody has asked for this byte");
    });
    let reasons = reasons.into_inner();
    // A fuzzer draws one.
    let are_drawn = reasons.iter().all(|count| *count > 5);
    assert!(are_drawn || cfg!(fuzzed), "some are hardly drawn: {reasons:?}");
}

#[cfg_attr(test, test)]
pub(crate) fn requests_and_shared_pieces_add_up() {
    holds(&calls(), |call| {
        let call = Call { first: Vec::new(), bad: 0..0, refuses_direct: false, ..call };
        let Ok((outcome, _)) = call.run() else { return };
        let no_room =
            |(_, exception): &&(u32, Exception)| matches!(exception, Exception::NoRoom { .. });
        let refused = outcome.exceptions.iter().filter(no_room).count() as u64;
        let some = call.pieces.iter().filter(|piece| piece.len > 0).count() as u64;
        // Only a piece that is longer than a request has several, or one at the end of a file that changes.
        let is_long =
            |piece: &Piece| call.blocks(piece).end - call.blocks(piece).start > call.rules.limit();
        if !call.pieces.iter().any(is_long) && call.end_then == call.end {
            let counts = outcome.counts;
            assert_eq!(counts.requests + counts.shared, some - refused, "{counts:?}");
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn pieces_are_refused_if_they_do_not_fit() {
    let near = || one_of![0_u64..50, (u64::MAX - 50)..=u64::MAX, any::<u64>()];
    let piece = (near(), near(), near());
    let few = vec(one_of![4 => (0_u64..50, 0_u64..50, 0_u64..9), 1 => piece], 0..6);
    holds(&(few, 0_u64..60, 0_u64..60), |(drawn, start, len)| {
        let piece = |(offset, buf_offset, len)| Piece { offset, buf_offset, len };
        let pieces: Vec<_> = drawn.into_iter().map(piece).collect();
        let rules = Rules { block: 4, memory: 1 };
        let (buffer, spare) = (60, start..(start + len).min(60).max(start));
        let in_file = |piece: &Piece| {
            u128::from(piece.offset) + u128::from(piece.len)
                <= u128::from(i64::MAX as u64 - rules.limit())
        };
        let place = |piece: &Piece| {
            u128::from(piece.buf_offset)..u128::from(piece.buf_offset) + u128::from(piece.len)
        };
        let meets = |one: &Piece, other: &Range<u128>| {
            let one = place(one);
            one.start.max(other.start) < one.end.min(other.end)
        };
        let lent = u128::from(spare.start)..u128::from(spare.end);
        let fits =
            |piece: &Piece| in_file(piece) && place(piece).end <= buffer && !meets(piece, &lent);
        let alone = |(number, one): (usize, &Piece)| {
            pieces[..number].iter().all(|other| one == other || !meets(other, &place(one)))
        };
        let wanted = pieces.iter().all(fits) && pieces.iter().enumerate().all(alone);
        let found = check(&pieces, &Bounds { buffer: buffer as u64, spare, rules });
        assert_eq!(found.is_ok(), wanted, "{found:?}");
        let Ok(checked) = found else { return };
        let order: Vec<_> =
            (0..checked.order.len(&pieces)).map(|entry| checked.order.number(entry)).collect();
        let places = |number: &&usize| pieces[**number].len > 0;
        let places: Vec<_> =
            order.iter().filter(places).map(|number| pieces[*number].buf_offset).collect();
        assert!(places.is_sorted(), "{order:?}");
        assert_eq!(places.len(), pieces.iter().filter(|piece| piece.len > 0).count());
    });
}
