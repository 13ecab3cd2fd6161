// SPDX-License-Identifier: MIT OR Apache-2.0
//! All reads in a single call of the library, into a buffer with a place for each.

use dmabuf_dio::gather::{Gatherer, Gathering, Piece};
use dmabuf_dio::{Backend, Buffer, Kind};

use super::target::{BLOCK, Target};
use crate::outcome::{Status, Trouble};

/// A file and a buffer with a place for every read.
pub(crate) struct GatherReader {
    buf: Buffer,
    gathering: Gathering,
    pieces: Vec<Piece>,
    polled: bool,
}

impl GatherReader {
    pub(crate) fn new(
        target: &Target,
        depth: u32,
        offsets: &[u64],
        polled: bool,
    ) -> Result<Self, Trouble> {
        let buf = Buffer::alloc_kind(Kind::DmaBuf, "system", offsets.len() as u64 * BLOCK)
            .map_err(Trouble::of_library)?;
        let gathering = Gatherer::new(&target.path)
            .backend(Backend::UringSlot)
            .queue_depth(depth)
            .polled(polled)
            .open(&buf)
            .map_err(Trouble::of_library)?;
        let pieces = (0..)
            .zip(offsets)
            .map(|(number, offset)| Piece {
                offset: *offset,
                buf_offset: number * BLOCK,
                len: BLOCK,
            })
            .collect();
        Ok(Self { buf, gathering, pieces, polled })
    }

    /// Reads the first `count` pieces.
    pub(crate) fn read(&mut self, count: usize) -> Result<(), Trouble> {
        let gathered = self.gathering.read(&self.pieces[..count]);
        let gathered = gathered.map_err(Trouble::of_library)?;
        if let Some((number, error)) = gathered.errors().next() {
            let reason = format!("piece {number}: {error}");
            return Err(Trouble::new(Status::Failed, reason));
        }
        let report = gathered.report();
        if self.polled && !report.polled {
            let reason = report.transfer.notes.join("; ");
            return Err(Trouble::new(Status::Unavailable, reason));
        }
        Ok(())
    }

    /// Reads all pieces and compares every byte.
    pub(crate) fn compare(&mut self, target: &Target) -> Result<(), Trouble> {
        self.read(self.pieces.len())?;
        let view = self.buf.map().map_err(Trouble::of_library)?;
        let mut bytes = vec![0; BLOCK as usize];
        for piece in &self.pieces {
            view.read_at(piece.buf_offset, &mut bytes).map_err(Trouble::of_library)?;
            target.check(&bytes, piece.offset)?;
        }
        target.forget();
        Ok(())
    }
}
