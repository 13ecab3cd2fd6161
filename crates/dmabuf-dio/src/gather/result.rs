// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a call gives back.

use std::sync::Arc;

use super::outcome::{Exception, Outcome};
use super::piece::{Found, Piece, PieceError};
use crate::backend::{Backend, Refusal};
use crate::direction::Direction;
use crate::kind::Kind;
use crate::report::Report;
use crate::report::facts::Facts;
use crate::report::measure::Cost;
use crate::transfer::task::{REFUSED_DIRECT, Transferred};

/// The pieces of one call, and what became of them.
#[derive(Clone, Debug)]
pub struct Gathered<'p> {
    pub(super) pieces: &'p [Piece],
    pub(super) outcome: Outcome,
    pub(super) cost: Cost,
    pub(super) setup: Arc<Setup>,
}

/// What does not change from call to call.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) backend: Backend,
    pub(super) buffer: Kind,
    pub(super) unallocated: u64,
    /// Whether requests ask for direct I/O.
    pub(super) direct: bool,
    pub(super) why_buffered: Option<String>,
    pub(super) segments: Option<u32>,
    pub(super) refusals: Vec<Refusal>,
    /// Why completions are not polled for; `None` if they are.
    pub(super) why_unpolled: Option<String>,
    /// What there is to say about the buffer.
    pub(super) note: Option<String>,
}

/// What a call did and what it cost.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GatherReport {
    /// The transfer as a whole. Its `bytes` are those that requests moved, with whole blocks
    /// around pieces that are not aligned. Its `mode` is unknown if the page cache has so much of
    /// the file that to look at it would take longer than to read few pieces.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub transfer: Report,
    /// Pieces that were asked for.
    pub pieces: u64,
    /// Pieces that came with the request of a neighbour, or of one that was the same.
    pub shared: u64,
    /// Pieces that were read aside, to the spare bytes.
    pub aside: u64,
    /// Pieces that are not whole.
    pub failed: u64,
    /// Requests made.
    pub requests: u64,
    /// Whether completions were polled for, without interrupts. If that was wished for and not
    /// done, the notes say why.
    pub polled: bool,
}

impl Gathered<'_> {
    /// How many pieces there are.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether every piece is in the buffer, whole.
    pub fn is_whole(&self) -> bool {
        self.outcome.exceptions.is_empty()
    }

    /// Where the piece with this number is, counted from 0 in the order of the call; `None` if
    /// there are fewer.
    pub fn get(&self, number: usize) -> Option<Result<Found, PieceError>> {
        self.pieces.get(number).map(|piece| self.of(number as u32, piece))
    }

    /// All pieces, in the order of the call.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = Result<Found, PieceError>> {
        self.pieces.iter().enumerate().map(|(number, piece)| self.of(number as u32, piece))
    }

    /// The numbers of those that are not whole, and why.
    pub fn errors(&self) -> impl ExactSizeIterator<Item = (usize, PieceError)> {
        self.outcome.exceptions.iter().map(|(number, exception)| {
            let piece = &self.pieces[*number as usize];
            (*number as usize, explain(piece, self.start(*number, piece), *exception))
        })
    }

    fn of(&self, number: u32, piece: &Piece) -> Result<Found, PieceError> {
        let start = self.start(number, piece);
        match find(&self.outcome.exceptions, number) {
            None => Ok(Found { start, len: piece.len }),
            Some(exception) => Err(explain(piece, start, exception)),
        }
    }

    fn start(&self, number: u32, piece: &Piece) -> u64 {
        find(&self.outcome.starts, number).unwrap_or(piece.buf_offset)
    }

    /// What the call did and what it cost.
    pub fn report(&self) -> GatherReport {
        let (setup, counts) = (&self.setup, &self.outcome.counts);
        let mut notes = Vec::new();
        if setup.direct && counts.direct < counts.moved {
            notes.push(REFUSED_DIRECT.into());
        }
        notes.extend(setup.note.clone());
        notes.extend(setup.why_unpolled.iter().filter(|why| !why.is_empty()).cloned());
        let facts = Facts {
            operation: Direction::Load,
            backend: Some(setup.backend),
            buffer: Some(setup.buffer),
            bytes: counts.moved,
            unallocated: setup.unallocated,
            why_buffered: setup.why_buffered.clone(),
            moved: Transferred {
                direct: counts.direct,
                segments: setup.segments,
                notes,
                ..Transferred::default()
            },
            refusals: setup.refusals.clone(),
            cost: self.cost,
        };
        GatherReport {
            transfer: facts.report(),
            pieces: self.len() as u64,
            shared: counts.shared,
            aside: self.outcome.starts.len() as u64,
            failed: self.outcome.exceptions.len() as u64,
            requests: counts.requests,
            polled: setup.why_unpolled.is_none(),
        }
    }
}

fn find<T: Copy>(sorted: &[(u32, T)], number: u32) -> Option<T> {
    if sorted.is_empty() {
        return None;
    }
    let at = sorted.binary_search_by_key(&number, |(number, _)| *number).ok()?;
    Some(sorted[at].1)
}

fn explain(piece: &Piece, start: u64, exception: Exception) -> PieceError {
    match exception {
        Exception::EndOfFile { end } => {
            let len = end.saturating_sub(piece.file_offset).min(piece.len);
            PieceError::EndOfFile { found: Found { start, len }, end }
        }
        Exception::Failed { offset, errno } => PieceError::Failed { offset, errno },
        Exception::NoRoom { needed } => PieceError::NoRoom { needed },
    }
}
