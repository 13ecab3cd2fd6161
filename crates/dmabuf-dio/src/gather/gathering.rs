// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is set up once and used for many calls.

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
use crate::backend::attempt::Attempt;
use crate::buf::DmaBuf;
use crate::buf::cpu_access::CpuAccess;
use crate::control::{Control, Watch};
use crate::direction::Direction;
use crate::error::{Error, Result};
use crate::file::File;
use crate::memory::page::page_size;
use crate::report::measure::Before;

/// A file and a buffer, ready for calls that read pieces of the one into the other. Made by
/// [`Gatherer::open`](super::Gatherer::open).
///
/// It has descriptors of its own, of both. The bytes of the buffer may be looked at between
/// calls, through [`DmaBuf::map`] say.
#[derive(Debug)]
pub struct Gathering {
    pub(super) file: File,
    pub(super) buf: DmaBuf,
    pub(super) engine: Engine,
    /// Requests in flight.
    pub(super) depth: usize,
    pub(super) bounds: Bounds,
    pub(super) control: Control,
    pub(super) setup: Arc<Setup>,
    /// Bytes of the file in the page cache when that was last looked at.
    pub(super) cached: u64,
}

/// What makes the requests.
#[derive(Debug)]
pub(super) enum Engine {
    Ring(Box<Batches>),
    One(One),
}

impl Gathering {
    /// The backend that is used.
    pub fn backend(&self) -> Backend {
        self.setup.backend
    }

    /// What a piece needs in order to be read to its place: the number that its offset in the
    /// file and its length have to be multiples of, and the one for its offset in the buffer.
    /// Both are 1 where nothing needs aligning.
    pub fn alignment(&self) -> (u64, u64) {
        (self.bounds.rules.block, self.bounds.rules.memory)
    }

    /// How many spare bytes these pieces need, as [`Gatherer::room`](super::Gatherer::room).
    ///
    /// # Errors
    ///
    /// [`Error::Piece`] if the numbers of a piece overflow.
    pub fn room(&self, pieces: &[Piece]) -> Result<u64> {
        aside::room(pieces, self.bounds.rules)
    }

    /// Sets the spare bytes anew: see [`Gatherer::spare`](super::Gatherer::spare).
    ///
    /// # Errors
    ///
    /// [`Error::RangeBeyondBuffer`] and [`Error::RangeOverflow`]: it stays as it was.
    pub fn set_spare(&mut self, range: Range<u64>) -> Result<()> {
        self.bounds.spare = spare(range, &self.buf)?;
        Ok(())
    }

    /// Reads pieces of the file into the buffer. Blocks until all that can be read has been.
    ///
    /// What went wrong with a single piece is in the result. Pieces may come in any order, and in
    /// the order of their places in the buffer at the least cost. Pieces that are the same in all
    /// three numbers are read once. A piece without bytes is read at once, no pieces are as well.
    ///
    /// What of a piece's place lies behind the end of the file is undefined, but for a piece
    /// that begins there: its place does not change. A file that is shrunk meanwhile ends where
    /// it ends after the call.
    ///
    /// # Errors
    ///
    /// Nothing has been read with [`Error::Piece`]: a piece leaves the buffer or its numbers
    /// overflow; [`Error::PiecesOverlap`]: two want the same bytes of the buffer, and are not the
    /// same; [`Error::PieceInSpare`].
    ///
    /// After [`Error::Cancelled`], or one of [`Error::Buffer`], [`Error::Transfer`],
    /// [`Error::Unsynced`] and [`Error::Unavailable`], which say what the kernel suddenly refuses, the places of all
    /// pieces and the spare bytes are undefined. After [`Error::InFlight`] they may go on
    /// changing, and every later call fails with it as well.
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
        let cost = before.until_now(self.file.fd(), Direction::Load);
        self.cached = before.cached_after(&cost).unwrap_or(self.cached);
        Ok(Gathered { pieces, outcome, cost, setup: Arc::clone(&self.setup) })
    }

    /// Looks at the page cache, unless that takes long beside so many pieces: it is done page by
    /// page.
    fn before(&self, pieces: u64) -> Before {
        /// Pages that take a hundredth of the time of a piece, before and after.
        const FEW: u64 = 8;
        if self.cached / page_size() <= FEW * pieces {
            return Before::now(self.file.fd());
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
        // The module's ioctl does this itself.
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

/// The spare bytes as they are kept: none are at 0.
pub(super) fn spare(range: Range<u64>, buf: &DmaBuf) -> Result<Range<u64>> {
    if range.is_empty() {
        return Ok(0..0);
    }
    buf.check_range(range.start, range.end - range.start)?;
    Ok(range)
}
