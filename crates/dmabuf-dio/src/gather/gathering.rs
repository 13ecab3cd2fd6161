// SPDX-License-Identifier: MIT OR Apache-2.0
//! A gather that is set up once and used for many calls.

use std::ops::Range;
use std::sync::Arc;

use super::aside;
use super::check::{Bounds, check};
use super::one::One;
use super::piece::Piece;
use super::plan::Plan;
use super::result::{Gathered, Setup};
use super::ring::Batches;
use crate::backend::Backend;
use crate::buffer::cpu_access::CpuAccess;
use crate::buffer::shared::Shared;
use crate::control::{Control, Watch};
use crate::direction::Direction;
use crate::error::{Error, Result};
use crate::file::File;
use crate::memory::page::page_size;
use crate::refusal::attempt::Attempt;
use crate::report::measure::Before;

/// A file and a buffer, set up for calls that read pieces of the file into the buffer. Created by
/// [`Gatherer::open`](super::Gatherer::open).
///
/// It owns descriptors of both. Between calls the buffer may be accessed, for example through
/// [`Buffer::map`](crate::Buffer::map).
///
/// `Send` and `Sync`; a call from another thread sets up a new ring. Do not use or drop it in a
/// child of `fork(2)`, which shares the ring with the parent.
#[derive(Debug)]
pub struct Gathering {
    pub(super) file: File,
    pub(super) buf: Shared,
    pub(super) engine: Engine,
    /// Requests in flight.
    pub(super) depth: usize,
    pub(super) bounds: Bounds,
    pub(super) control: Control,
    pub(super) setup: Arc<Setup>,
    /// Bytes of the file in the page cache when last checked.
    pub(super) cached: u64,
}

/// The way to make requests.
#[derive(Debug)]
pub(super) enum Engine {
    Ring(Box<Batches>),
    One(One),
}

impl Gathering {
    /// The backend in use.
    pub fn backend(&self) -> Backend {
        self.setup.backend
    }

    /// The alignment in bytes that a piece needs to be read to its place: first that of its file
    /// offset and length, second that of its buffer offset. Both are 1 if no alignment is needed.
    pub fn alignment(&self) -> (u64, u64) {
        (self.bounds.rules.block, self.bounds.rules.memory)
    }

    /// The spare bytes that these pieces need, as [`Gatherer::room`](super::Gatherer::room).
    ///
    /// # Errors
    ///
    /// [`Error::Piece`] if offset and length of a piece overflow.
    pub fn room(&self, pieces: &[Piece]) -> Result<u64> {
        aside::room(pieces, self.bounds.rules)
    }

    /// Sets the range of spare bytes in the buffer: see
    /// [`Gatherer::spare`](super::Gatherer::spare).
    ///
    /// # Errors
    ///
    /// [`Error::RangeBeyondBuffer`] and [`Error::RangeOverflow`]: the old range stays in use.
    pub fn set_spare(&mut self, range: Range<u64>) -> Result<()> {
        self.bounds.spare = spare(range, &self.buf)?;
        Ok(())
    }

    /// Reads pieces of the file into the buffer. Blocks until all pieces are read or have failed.
    ///
    /// The result has the errors of single pieces. Pieces may be in any order; the order of their
    /// buffer offsets costs least. Identical pieces are read once. Empty pieces, and an empty list,
    /// succeed at once.
    ///
    /// The part of a piece's place beyond the end of the file is undefined, except that a piece
    /// starting there leaves its place unchanged. If the file is truncated during the call, its end
    /// is the one after the call.
    ///
    /// # Errors
    ///
    /// Nothing has been read with [`Error::Piece`]: a piece exceeds the buffer, or its offset and
    /// length overflow; [`Error::PiecesOverlap`]: two pieces that are not identical overlap in the
    /// buffer; [`Error::PieceInSpare`].
    ///
    /// After [`Error::Cancelled`] or, if the kernel refuses during the call, [`Error::Buffer`],
    /// [`Error::Transfer`], [`Error::Unsynced`] or [`Error::Unavailable`], the places of all pieces
    /// and the spare bytes are undefined. After [`Error::InFlight`] they may keep changing, and
    /// every later call fails with it.
    pub fn read<'p>(&mut self, pieces: &'p [Piece]) -> Result<Gathered<'p>> {
        let before = self.before(pieces.len() as u64);
        let checked = check(pieces, &self.bounds)?;
        let (bytes, last) = (checked.bytes, checked.end);
        let control = self.control.clone();
        let watch = Watch::start(&control, bytes);
        let Bounds { rules, spare, .. } = &self.bounds;
        let mut plan = Plan::new(pieces, checked, *rules, spare, self.file.end()?);
        if bytes > 0 {
            self.run(&mut plan, &watch)?;
        }
        if watch.is_cancelled() {
            return Err(Error::Cancelled {
                path: self.file.path.clone(),
                direction: Direction::Load,
                done: plan.counts.moved.min(bytes),
                length: bytes,
            });
        }
        let end = self.file.end()?;
        let outcome = plan.finish((end < last).then_some(end));
        watch.set(bytes);
        let cost = before.until_now(self.file.fd(), self.file.system, Direction::Load);
        self.cached = before.cached_after(&cost).unwrap_or(self.cached);
        Ok(Gathered { pieces, outcome, cost, setup: Arc::clone(&self.setup) })
    }

    /// Checks the page cache, unless that takes too long for so many pieces: it is done page by
    /// page.
    fn before(&self, pieces: u64) -> Before {
        /// Pages whose check, before and after, takes a hundredth of the time of a piece.
        const FEW: u64 = 8;
        if self.cached / page_size() <= FEW * pieces {
            return Before::now(self.file.fd(), self.file.system, 0..u64::MAX);
        }
        Before::without_cache()
    }

    fn run(&mut self, plan: &mut Plan<'_>, watch: &Watch<'_>) -> Result<()> {
        let refused = |attempt| match attempt {
            Attempt::Failed(error) => error,
            Attempt::Refused(refusal) => Error::Unavailable {
                asked: Some(refusal.backend),
                kind: None,
                refusals: vec![refusal],
            },
        };
        // The module's ioctl begins CPU access itself.
        let access = match self.engine {
            Engine::One(One::Module(_)) => None,
            _ => Some(CpuAccess::writing(&self.buf)?),
        };
        let result = match &mut self.engine {
            Engine::Ring(ring) => ring.run(plan, &self.file, watch).map_err(refused),
            Engine::One(one) => one.run(plan, &self.file, watch, self.depth),
        };
        access.map_or(Ok(()), CpuAccess::end)?;
        match &self.engine {
            Engine::Ring(ring) if ring.why_unpolled != self.setup.why_unpolled => {
                let why_unpolled = ring.why_unpolled.clone();
                self.setup = Arc::new(Setup { why_unpolled, ..Setup::clone(&self.setup) });
            }
            _ => {}
        }
        result
    }
}

/// The spare bytes as stored: an empty range is at 0.
pub(super) fn spare(range: Range<u64>, buf: &Shared) -> Result<Range<u64>> {
    if range.is_empty() {
        return Ok(0..0);
    }
    buf.check_range(range.start, range.end - range.start)?;
    Ok(range)
}
