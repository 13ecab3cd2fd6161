// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes from many places of a file, next to each other in memory of their own.

use std::ops::Range;

use dmabuf_dio::gather::{Gatherer, Gathering, Piece};
use dmabuf_dio::{Buffer, CancelToken, Error, Options};

use crate::model::ModelFile;
use crate::shared::failure;
use crate::strips::Strips;

/// Bytes that are read at once, to be copied to their places.
const WINDOW: u64 = 8 << 20;
/// The most bytes of a piece.
const PIECE: u64 = 1 << 20;
/// Reading as many bytes between two strips costs less than another request.
const JOIN: u64 = 8 << 10;

/// Reads strips of a file into one buffer, of `len` bytes: also how many bytes were read.
pub(crate) fn load(
    file: &ModelFile,
    strips: &Strips,
    len: u64,
    options: &Options,
    cancel: &CancelToken,
) -> Result<(Buffer, u64), Error> {
    let mut memory = Buffer::zeroed(len)?;
    let target = memory.bytes_mut().unwrap_or_default();
    let span = strips.span();
    let window = Buffer::memfd((span.end - span.start + PIECE).min(WINDOW))?;
    let gatherer = Gatherer::from(file.file()).direct(options.direct).cancel(cancel.clone());
    let mut gathering = gatherer.open(&window)?;
    let (block, place) = gathering.alignment();
    let mut batch = Batch::new(block.max(place), window.len());
    let (mut done, mut read) = (0, 0);
    for strip in strips.iter() {
        for start in (strip.start..strip.end).step_by(PIECE as usize) {
            let piece = start..strip.end.min(start + PIECE);
            if !batch.has_room(&piece) {
                read += batch.read(file, &mut gathering, &window, &mut target[done..])?;
                done += batch.take();
            }
            batch.add(piece);
        }
    }
    read += batch.read(file, &mut gathering, &window, &mut target[done..])?;
    Ok((memory, read))
}

/// Strips that are read by one call.
struct Batch {
    /// The alignment of requests.
    unit: u64,
    /// Bytes of the window.
    room: u64,
    used: u64,
    pieces: Vec<Piece>,
    /// Strips: their ranges in the file, and their pieces.
    strips: Vec<(Range<u64>, usize)>,
}

impl Batch {
    fn new(unit: u64, room: u64) -> Self {
        Self { unit, room, used: 0, pieces: Vec::new(), strips: Vec::new() }
    }

    /// The requests' bytes of a strip: whole blocks.
    fn blocks(&self, strip: &Range<u64>) -> Range<u64> {
        strip.start / self.unit * self.unit..strip.end.next_multiple_of(self.unit)
    }

    fn has_room(&self, strip: &Range<u64>) -> bool {
        let blocks = self.blocks(strip);
        self.used + (blocks.end - blocks.start) + JOIN <= self.room
    }

    fn add(&mut self, strip: Range<u64>) {
        let blocks = self.blocks(&strip);
        let joins = |piece: &&mut Piece| {
            let end = piece.offset + piece.len;
            blocks.start <= end + JOIN && blocks.end - piece.offset <= PIECE
        };
        if let Some(piece) = self.pieces.last_mut().filter(joins) {
            let len = blocks.end - piece.offset;
            self.used += len - piece.len;
            piece.len = len;
        } else {
            let len = blocks.end - blocks.start;
            self.pieces.push(Piece { offset: blocks.start, buf_offset: self.used, len });
            self.used += len;
        }
        self.strips.push((strip, self.pieces.len() - 1));
    }

    /// Reads the strips, and copies them to the start of `target`. Returns the bytes read.
    fn read(
        &self,
        file: &ModelFile,
        gathering: &mut Gathering,
        window: &Buffer,
        target: &mut [u8],
    ) -> Result<u64, Error> {
        let gathered = gathering.read(&self.pieces)?;
        for (number, error) in gathered.errors() {
            let piece = &self.pieces[number];
            let strips = self.strips.iter().filter(|(_, of)| *of == number).map(|(strip, _)| strip);
            let end = strips.map(|strip| strip.end).max().unwrap_or(piece.offset);
            if let Some(error) = failure(file, piece, &(piece.offset..end), error) {
                return Err(error);
            }
        }
        let map = window.map()?;
        let mut target = target;
        for (strip, number) in &self.strips {
            let piece = &self.pieces[*number];
            let (bytes, rest) = target.split_at_mut((strip.end - strip.start) as usize);
            map.read_at(piece.buf_offset + (strip.start - piece.offset), bytes)?;
            target = rest;
        }
        map.finish()?;
        Ok(self.used)
    }

    /// Empties the batch. Returns the bytes of its strips.
    fn take(&mut self) -> usize {
        self.used = 0;
        self.pieces.clear();
        self.strips.drain(..).map(|(strip, _)| (strip.end - strip.start) as usize).sum()
    }
}
