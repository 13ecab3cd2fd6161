// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gathers: random pieces of a file, whose places and spare bytes are compared one by one.

use std::ops::Range;

use dmabuf_dio::gather::{Found, Gathered, Gatherer, Gathering, Piece, PieceError};
use dmabuf_dio::{Backend, Error};

use super::place;
use super::{during, is_of_the_disk};
use crate::judge::Span;
use crate::pages::{PAGE, difference};
use crate::random::Random;
use crate::world::{Outcome, World};

/// What is gathered: pieces that a seed determines. `spare`: pages at the end of the buffer;
/// `overlap` 1: they begin within the last piece, 2: two pieces overlap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) file: u64,
    pub(crate) seed: u64,
    pub(crate) count: u64,
    pub(crate) spare: u64,
    pub(crate) overlap: u64,
}

/// Pieces in any order, none of which overlap in the buffer, and the spare bytes behind them.
fn draw(asked: Asked, buffer: u64, end: u64) -> (Vec<Piece>, Range<u64>) {
    let mut random = Random::of_round(asked.seed, asked.count);
    let room = buffer.saturating_sub(asked.spare * PAGE as u64);
    // Whole blocks, of which some lie one behind the other, or anything.
    let unit = random.pick(&[512, 512, 4096, 1]);
    let longest = random.pick(&[2, 8, 40]) * if unit == 1 { 300 } else { unit };
    let mut pieces: Vec<Piece> = Vec::new();
    let mut place = 0;
    for _ in 0..asked.count {
        let unit = if random.one_in(6) { 1 } else { unit };
        let len = (random.in_range(0..longest) / unit + u64::from(!random.one_in(12))) * unit;
        let last = pieces.last().copied().unwrap_or_default();
        let joins = random.one_in(2);
        if !joins {
            place = (place + random.in_range(0..longest)).next_multiple_of(unit);
        }
        if place + len > room {
            break;
        }
        let offset = match random.in_range(0..8) {
            _ if joins => last.offset + last.len,
            // Around the end of the file, and beyond
            0 => end.saturating_sub(len / 2) / unit * unit,
            1 => end + random.in_range(0..9000) / unit * unit,
            _ => random.in_range(0..end.max(1)) / unit * unit,
        };
        pieces.push(Piece { offset, buf_offset: place, len });
        if random.one_in(10) {
            // Twice, which is read once.
            pieces.push(Piece { offset, buf_offset: place, len });
        }
        place += len;
    }
    if let (Some(last), 2) = (pieces.last().copied(), asked.overlap) {
        let buf_offset = last.buf_offset + last.len / 2;
        if buf_offset + last.len <= room {
            pieces.push(Piece { buf_offset, ..last });
        }
    }
    let used = pieces.iter().map(|piece| piece.buf_offset + piece.len).max().unwrap_or(0);
    let start = if asked.overlap == 1 { used.saturating_sub(1) } else { room };
    for at in (1..pieces.len()).rev() {
        pieces.swap(at, random.in_range(0..at as u64 + 1) as usize);
    }
    (pieces, if asked.spare == 0 { 0..0 } else { start..buffer })
}

fn place_of(piece: &Piece) -> Range<u64> {
    piece.buf_offset..piece.buf_offset + piece.len
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

/// Has the call to be refused?
fn refused(pieces: &[Piece], spare: &Range<u64>) -> bool {
    let pair = |(number, piece): (usize, &Piece)| {
        let others = pieces[number + 1..].iter();
        others
            .filter(|other| *other != piece)
            .any(|other| overlap(&place_of(piece), &place_of(other)))
    };
    pieces.iter().any(|piece| overlap(&place_of(piece), spare))
        || pieces.iter().enumerate().any(pair)
}

pub(crate) fn gather(
    world: &mut World<'_>,
    at: u64,
    asked: Asked,
    (backend, depth, direct): (u64, u64, u64),
) -> Outcome {
    let armed = std::mem::take(&mut world.armed);
    let backend = (backend as usize).checked_sub(1).and_then(|at| Backend::ALL.get(at).copied());
    if world.file(asked.file).is_none() || !place::keeps(world, at, backend) {
        return Ok(());
    }
    let Some(buffer) = place::open(world, at)? else { return Ok(()) };
    let Some(file) = world.file(asked.file) else { return Ok(()) };
    let (pieces, spare) = draw(asked, buffer.len(), file.bytes.len() as u64);
    let mut gatherer = Gatherer::from_fd(file.fd(u64::from(direct == 2)))
        .direct(direct != 0)
        .backend(backend)
        .spare(spare.clone());
    if depth > 0 {
        // Without a ring each request needs a thread.
        gatherer = gatherer.queue_depth(depth as u32);
    }
    let mut gathering = match gatherer.open(&buffer) {
        Ok(gathering) => gathering,
        Err(Error::ReadOnlyBuffer) if !buffer.is_writable() => return Ok(()),
        Err(Error::Unavailable { .. }) if super::load::may_refuse(at, &buffer, backend) => {
            world.machine.did("backend that is not there");
            return Ok(());
        }
        Err(error) => return Err(format!("a gather of a {}: {error}", buffer.kind())),
    };
    drop(gatherer);
    if !buffer.is_writable() {
        return Err("a gather into a buffer that is open for reading".into());
    }
    let must = refused(&pieces, &spare);
    let result = during(world, armed, || gathering.read(&pieces).map(|all| Outcomes::of(&all)));
    let outcomes = match result {
        Ok(_) if must => return Err("pieces that overlap are not refused".into()),
        Ok(outcomes) => outcomes,
        Err(Error::PiecesOverlap { .. } | Error::PieceInSpare { .. } | Error::Piece { .. })
            if must =>
        {
            world.machine.did("gather refused");
            return place::settle(world, at, 0, 0, &[], 0);
        }
        Err(error) => return Err(format!("gather: {error}")),
    };
    judge(world, at, asked.file, direct, &gathering, &pieces, &spare, &outcomes)
}

/// What a call has said.
struct Outcomes {
    pieces: Vec<Result<Found, PieceError>>,
    failed: u64,
    aside: u64,
    shared: u64,
    requests: u64,
    whole: bool,
}

impl Outcomes {
    fn of(gathered: &Gathered<'_>) -> Self {
        let report = gathered.report();
        Self {
            pieces: gathered.pieces().collect(),
            failed: report.failed,
            aside: report.aside,
            shared: report.shared,
            requests: report.requests,
            whole: gathered.is_whole(),
        }
    }
}

#[allow(clippy::too_many_arguments)] // all of one call
fn judge(
    world: &mut World<'_>,
    at: u64,
    file: u64,
    direct: u64,
    gathering: &Gathering,
    pieces: &[Piece],
    spare: &Range<u64>,
    outcomes: &Outcomes,
) -> Outcome {
    let (block, memory) = gathering.alignment();
    let is_aside = |piece: &Piece| {
        piece.len > 0 && ((piece.offset | piece.len) % block != 0 || piece.buf_offset % memory != 0)
    };
    let room = gathering.room(pieces).map_err(|error| format!("room: {error}"))?;
    let mut expected = place::known(world, at);
    let seen = place::seen(world, at)?;
    // What the blocks of other pieces are read to.
    let spared = spare.start as usize..spare.end as usize;
    expected[spared.clone()].copy_from_slice(&seen[spared]);
    let known = world.file(file).ok_or("no file")?;
    let end = known.bytes.len() as u64;
    for (number, (piece, outcome)) in pieces.iter().zip(&outcomes.pieces).enumerate() {
        let wrong = |what: String| format!("piece {number} ({piece:?}): {what}");
        let inside = end.saturating_sub(piece.offset).min(piece.len);
        let place = place_of(piece);
        let found = match outcome {
            Ok(found) if found.len != piece.len || inside != piece.len => {
                return Err(wrong(format!("{} bytes found, the file has {inside}", found.len)));
            }
            Ok(found) => *found,
            Err(PieceError::EndOfFile { found, end: said })
                if *said == end && found.len == inside && inside < piece.len =>
            {
                *found
            }
            Err(PieceError::NoRoom { .. }) if is_aside(piece) && room > spare.end - spare.start => {
                continue;
            }
            Err(PieceError::Failed { errno, .. }) => {
                let start = piece.offset / block * block;
                let length = (piece.offset + piece.len).next_multiple_of(block) - start;
                let aligned = u64::from(direct != 0 && block > 1);
                let span = Span { file, at: start, offset: 0, length, direct: aligned };
                if !is_of_the_disk(world, span, *errno) {
                    return Err(wrong(format!("{errno}")));
                }
                world.machine.did("piece that the disk fails");
                if !is_aside(piece) {
                    let place = place.start as usize..place.end as usize;
                    expected[place.clone()].copy_from_slice(&seen[place]);
                }
                continue;
            }
            Err(error) => return Err(wrong(error.to_string())),
        };
        let range = found.start as usize..(found.start + found.len) as usize;
        if is_aside(piece) && found.len > 0 {
            if found.start < spare.start || found.start + found.len > spare.end {
                return Err(wrong(format!("found at {range:?}, outside the spare bytes")));
            }
        } else if !is_aside(piece) && found.start != piece.buf_offset {
            return Err(wrong(format!("found at {}", found.start)));
        }
        difference("a piece", &seen[range.clone()], known.range(piece.offset, found.len))
            .map_err(wrong)?;
        expected[range.clone()].copy_from_slice(&seen[range]);
        // Behind the end of the file anything may come, unless nothing did.
        if !is_aside(piece) && (1..piece.len).contains(&found.len) {
            let rest = (found.start + found.len) as usize..place.end as usize;
            expected[rest.clone()].copy_from_slice(&seen[rest]);
        }
    }
    counts(pieces, outcomes, &is_aside)?;
    world.machine.did("gather");
    difference("beside the pieces", &seen, &expected)?;
    place::note(world, at, 0, &seen);
    world.check_buffers()
}

/// The report agrees with the results.
fn counts(pieces: &[Piece], outcomes: &Outcomes, is_aside: &dyn Fn(&Piece) -> bool) -> Outcome {
    let failed = outcomes.pieces.iter().filter(|piece| piece.is_err()).count() as u64;
    let aside = pieces.iter().filter(|piece| is_aside(piece)).count() as u64;
    let some = pieces.iter().filter(|piece| piece.len > 0).count() as u64;
    let said = (outcomes.failed, outcomes.aside, outcomes.whole);
    if outcomes.pieces.len() != pieces.len() || said.0 != failed || said.2 != (failed == 0) {
        return Err(format!("{failed} pieces failed, the report says {said:?}"));
    }
    // Those without room are not read aside.
    if said.1 > aside || outcomes.shared > some || outcomes.requests > 0 && some == 0 {
        return Err(format!(
            "{} aside of {aside}, {} shared of {some}, {} requests",
            said.1, outcomes.shared, outcomes.requests
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_refused_only_if_they_were_drawn_so() {
        let mut asked = Asked { file: 0, seed: 0, count: 40, spare: 4, overlap: 0 };
        let (mut spared, mut doubled) = (0, 0);
        for seed in 0..200 {
            asked.seed = seed;
            asked.overlap = 0;
            let (pieces, spare) = draw(asked, 64 << 10, 30_000);
            assert!(!refused(&pieces, &spare), "{seed}: {pieces:?} {spare:?}");
            assert!(pieces.iter().all(|piece| place_of(piece).end <= 64 << 10));
            for (overlap, count) in [(1, &mut spared), (2, &mut doubled)] {
                asked.overlap = overlap;
                let (pieces, spare) = draw(asked, 64 << 10, 30_000);
                *count += u64::from(refused(&pieces, &spare));
            }
        }
        assert!(spared > 100 && doubled > 30, "{spared} {doubled}");
    }
}
