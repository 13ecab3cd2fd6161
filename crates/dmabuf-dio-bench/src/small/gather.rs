// SPDX-License-Identifier: MIT OR Apache-2.0
//! All reads in a single call of the library, into a buffer with a place for each.

use dmabuf_dio::gather::{Gatherer, Gathering, Piece};
use dmabuf_dio::{Backend, Buffer, Kind};

use super::memory::BLOCK;
use super::reader::Reader;
use crate::disk::DiskFile;
use crate::outcome::{Result, Status, Trouble};

/// A file and a buffer with a place for every read.
pub(crate) struct GatherReader {
    buf: Buffer,
    gathering: Gathering,
    pieces: Vec<Piece>,
    polled: bool,
}

impl GatherReader {
    pub(crate) fn new(disk: &DiskFile, depth: u32, offsets: &[u64], polled: bool) -> Result<Self> {
        let buf = Buffer::alloc_kind(Kind::DmaBuf, "system", offsets.len() as u64 * BLOCK)?;
        let gathering = Gatherer::new(disk.path().unwrap_or_else(|| "".as_ref()))
            .backend(Backend::UringSlot)
            .queue_depth(depth)
            .polled(polled)
            .open(&buf)?;
        let piece =
            |(at, offset): (u64, &u64)| Piece { offset: *offset, buf_offset: at, len: BLOCK };
        let pieces = (0..).step_by(BLOCK as usize).zip(offsets).map(piece).collect();
        Ok(Self { buf, gathering, pieces, polled })
    }
}

impl Reader for GatherReader {
    fn read(&mut self, offsets: &[u64]) -> Result<()> {
        let gathered = self.gathering.read(&self.pieces[..offsets.len()]);
        let gathered = gathered?;
        if let Some((number, error)) = gathered.errors().next() {
            return Err(Trouble::new(Status::Failed, format!("piece {number}: {error}")));
        }
        let report = gathered.report();
        if self.polled && !report.polled {
            let reason = report.transfer.notes.join("; ");
            return Err(Trouble::new(Status::Unavailable, reason));
        }
        Ok(())
    }

    fn compare(&mut self, offsets: &[u64], disk: &DiskFile) -> Result<()> {
        self.read(offsets)?;
        let view = self.buf.map()?;
        let mut bytes = vec![0; BLOCK as usize];
        for piece in &self.pieces {
            view.read_at(piece.buf_offset, &mut bytes)?;
            disk.check(&bytes, piece.offset)?;
        }
        Ok(())
    }
}
