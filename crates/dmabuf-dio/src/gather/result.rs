// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a call.

use std::sync::Arc;

use super::outcome::{Exception, Outcome};
use super::piece::{Found, Piece, PieceError};
use crate::backend::{Backend, Refusal};
use crate::direction::Direction;
use crate::file::copies::Copies;
use crate::file::dma::Dma;
use crate::kind::Kind;
use crate::report::Report;
use crate::report::facts::Facts;
use crate::report::measure::Cost;
use crate::transfer::task::{REFUSED_DIRECT, Transferred};

/// The pieces of one call and their results.
#[derive(Clone, Debug)]
pub struct Gathered<'p> {
    pub(super) pieces: &'p [Piece],
    pub(super) outcome: Outcome,
    pub(super) cost: Cost,
    pub(super) setup: Arc<Setup>,
}

/// The facts that are the same for all calls.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) backend: Backend,
    pub(super) buffer: Kind,
    pub(super) unallocated: u64,
    /// Whether requests use direct I/O.
    pub(super) direct: bool,
    pub(super) why_buffered: Option<String>,
    pub(super) copies: Option<Copies>,
    pub(super) dma: Option<Dma>,
    pub(super) segments: Option<u32>,
    pub(super) refusals: Vec<Refusal>,
    /// Why completions are not polled; `None` if they are.
    pub(super) why_unpolled: Option<String>,
    /// A note on the buffer.
    pub(super) note: Option<String>,
}

/// The actions and the cost of a call.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GatherReport {
    /// The transfer as a whole. Its `bytes` are those moved by requests, including whole blocks
    /// around unaligned pieces. Its `mode` is unknown if checking the page cache would take longer
    /// than reading the few pieces.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub transfer: Report,
    /// Pieces requested.
    pub pieces: u64,
    /// Pieces that shared a request with a neighbour or an identical piece.
    pub shared: u64,
    /// Pieces that were read to the spare bytes.
    pub aside: u64,
    /// Pieces that are not whole.
    pub failed: u64,
    /// Requests made.
    pub requests: u64,
    /// Whether completions were polled, without interrupts. If polling was requested but not used,
    /// the notes say why.
    pub polled: bool,
}

impl Gathered<'_> {
    /// Number of pieces.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are no pieces.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether every piece is completely in the buffer.
    pub fn is_whole(&self) -> bool {
        self.outcome.exceptions.is_empty()
    }

    /// The result of the piece at index `number`, from 0 in the order of the call; `None` if there
    /// are fewer pieces.
    pub fn get(&self, number: usize) -> Option<Result<Found, PieceError>> {
        self.pieces.get(number).map(|piece| self.of(number as u32, piece))
    }

    /// The results of all pieces, in the order of the call.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = Result<Found, PieceError>> {
        self.pieces.iter().enumerate().map(|(number, piece)| self.of(number as u32, piece))
    }

    /// Indexes and errors of the pieces that are not whole.
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

    /// The actions and the cost of the call.
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
            copies: setup.copies,
            moved: Transferred {
                direct: counts.direct,
                segments: setup.segments,
                notes,
                ..Transferred::default()
            },
            refusals: setup.refusals.clone(),
            cost: self.cost,
            dma: setup.dma.clone(),
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
            let len = end.saturating_sub(piece.offset).min(piece.len);
            PieceError::EndOfFile { found: Found { start, len }, end }
        }
        Exception::Failed { offset, errno } => PieceError::Failed { offset, errno },
        Exception::NoRoom { needed } => PieceError::NoRoom { needed },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::gather::outcome::Counts;

    #[test]
    fn fallback_to_the_page_cache_is_noted() {
        let zero = Duration::ZERO;
        let cost = Cost {
            elapsed: zero,
            cpu: zero,
            cached: None,
            cache_growth: None,
            storage: None,
            served: false,
            dirtied: None,
        };
        let notes = |asked, direct| {
            let setup = Setup {
                backend: Backend::Memfd,
                buffer: Kind::Memfd,
                unallocated: 0,
                direct: asked,
                why_buffered: None,
                copies: None,
                dma: None,
                segments: None,
                refusals: Vec::new(),
                why_unpolled: Some(String::new()),
                note: None,
            };
            let counts = Counts { requests: 2, shared: 0, moved: 8192, direct };
            let outcome = Outcome { counts, ..Outcome::default() };
            Gathered { pieces: &[], outcome, cost, setup: Arc::new(setup) }.report().transfer.notes
        };
        assert_eq!(notes(true, 4096), [REFUSED_DIRECT]);
        assert!(notes(true, 8192).is_empty() && notes(false, 0).is_empty());
    }
}
