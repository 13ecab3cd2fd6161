// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes from many places of a file, next to each other in memory of their own.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use dmabuf_dio::content::{self, Content};
use dmabuf_dio::gather::{Gatherer, Gathering, Piece};
use dmabuf_dio::{Buffer, CancelToken, Direction, Error, Options, Origin};

use crate::file::ModelFile;
use crate::settings::GAP_OF_CONTENT;
use crate::shared::failure;
use crate::strips::Strips;
use crate::workers;

/// Bytes that a thread reads at once, to copy them to their places.
const WINDOW: u64 = 4 << 20;
/// While one copies, others read.
const THREADS: u64 = 3;
/// The most bytes of a piece.
const PIECE: u64 = 1 << 20;
/// The most pieces of a batch: there may be one for each byte.
const PIECES: usize = 8 << 10;
/// Reading as many bytes between two strips costs less than another request.
const JOIN: u64 = 8 << 10;
/// The window of a content: a request takes as long as so many bytes.
const FETCHED: u64 = 8 << 20;
/// Pieces of a content that one thread fetches at the same time.
const TOGETHER: usize = 8;

/// The threads of a reader's gathers, each of which has a window.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<u64>);

/// Some of them, and their window.
#[derive(Debug)]
struct Taken<'t> {
    threads: &'t Threads,
    count: u64,
    window: u64,
}

impl Threads {
    /// As many as are wanted and are left, at least one: gathers at the same time share the disk.
    fn take(&self, wanted: u64, window: u64) -> Taken<'_> {
        let mut busy = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = THREADS.saturating_sub(*busy);
        let (count, window) =
            if free == 0 { (1, window / 2) } else { (wanted.clamp(1, free), window) };
        *busy += count;
        Taken { threads: self, count, window }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.threads.0.lock().unwrap_or_else(PoisonError::into_inner) -= self.count;
    }
}

/// Reads strips of a file into one buffer, of `len` bytes: also how many bytes were read.
pub(crate) fn load(
    file: &ModelFile,
    strips: &Strips,
    len: u64,
    options: &Options,
    threads: &Threads,
    cancel: &CancelToken,
) -> Result<(Buffer, u64), Error> {
    let mut memory = Buffer::zeroed_with(len, options)?;
    let mut rest = memory.bytes_mut().unwrap_or_default();
    let span = strips.span();
    let (join, window) = match file.origin() {
        Origin::File(_) => (JOIN, WINDOW),
        Origin::Content(_) => (GAP_OF_CONTENT, FETCHED),
    };
    let is_dense = strips.widest_gap() <= join;
    let taken = threads.take((span.end - span.start) / window, window);
    let (jobs, window) = (taken.count, taken.window);
    let first = |job: u64| strips.count() * job / jobs;
    let mut shares = Vec::new();
    for job in 0..jobs {
        let numbers = first(job)..first(job + 1);
        let bytes: u64 = numbers.clone().map(|number| len_of(&strips.get(number))).sum();
        let (ours, others) = rest.split_at_mut(bytes as usize);
        rest = others;
        shares.push(Mutex::new((numbers, ours)));
    }
    let work = |job: usize, cancel: &CancelToken| {
        let mut share = shares[job].lock().unwrap_or_else(PoisonError::into_inner);
        let (numbers, target) = &mut *share;
        let source = Source::open(file, is_dense, window, options, cancel)?;
        let piece = source.piece();
        let parts = move |strip: Range<u64>| {
            let starts = (strip.start..strip.end).step_by(piece as usize);
            starts.map(move |start| start..strip.end.min(start + piece))
        };
        read(source, numbers.clone().map(|number| strips.get(number)).flat_map(parts), target)
    };
    let read: Option<u64> =
        workers::run(shares.len(), shares.len(), cancel, work)?.into_iter().sum();
    drop(shares);
    let read = read.ok_or_else(|| cancelled(file.path(), len))?;
    Ok((memory, read))
}

fn cancelled(path: &Path, length: u64) -> Error {
    Error::Cancelled { path: path.to_owned(), direction: Direction::Load, done: 0, length }
}

/// Reads strips, none longer than a piece, one after the other to `target`.
fn read(
    mut source: Source<'_>,
    strips: impl Iterator<Item = Range<u64>> + Clone,
    mut target: &mut [u8],
) -> Result<u64, Error> {
    let mut batch = Batch::new(&source);
    let mut read = 0;
    // A list of those of a batch could be longer than their bytes.
    let mut unread = strips.clone();
    for strip in strips {
        if !batch.has_room(&strip) {
            let ours = unread.clone().take(batch.strips);
            (target, read) = (source.read(&batch, ours, target)?, read + batch.used);
            unread.by_ref().take(batch.strips).for_each(drop);
            batch.clear();
        }
        batch.add(&strip);
    }
    source.read(&batch, unread, target)?;
    Ok(read + batch.used)
}

fn len_of(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// The way to read a batch.
enum Source<'m> {
    /// All from its first to its last byte.
    Load(&'m ModelFile, u64, Options, CancelToken),
    Gather(&'m ModelFile, Buffer, Box<Gathering>),
    /// Pieces of a content, by requests of their own.
    Fetch(&'m Arc<dyn Content>, u64, CancelToken),
}

impl<'m> Source<'m> {
    fn open(
        file: &'m ModelFile,
        is_dense: bool,
        window: u64,
        options: &Options,
        cancel: &CancelToken,
    ) -> Result<Self, Error> {
        // The window is only on the way: it needs no place, and may be swapped out.
        let passing = || Options { numa: None, lock: false, ..options.clone() };
        let load = || Ok(Self::Load(file, window, passing(), cancel.clone()));
        if is_dense {
            return load();
        }
        let open = match file.origin() {
            Origin::File(open) => open,
            Origin::Content(content) => return Ok(Self::Fetch(content, window, cancel.clone())),
        };
        let gathering = Buffer::memfd(window).and_then(|window| {
            let gatherer = Gatherer::from(open).direct(options.direct);
            Ok((gatherer.cancel(cancel.clone()).open(&window)?, window))
        });
        match gathering {
            Ok((gathering, window)) => Ok(Self::Gather(file, window, Box::new(gathering))),
            // A load needs no memfd.
            Err(Error::Buffer { .. } | Error::Unavailable { .. }) => load(),
            Err(error) => Err(error),
        }
    }

    /// The most bytes of a batch.
    fn window(&self) -> u64 {
        match self {
            Self::Load(_, window, ..) | Self::Fetch(_, window, _) => *window,
            Self::Gather(_, window, _) => window.len(),
        }
    }

    /// The most bytes of a strip.
    fn piece(&self) -> u64 {
        match self {
            Self::Load(_, window, ..) | Self::Fetch(_, window, _) => *window,
            Self::Gather(..) => PIECE,
        }
    }

    /// Reads the strips of a batch, and copies them to the start of `target`. Returns the rest of it.
    fn read<'t>(
        &mut self,
        batch: &Batch,
        strips: impl Iterator<Item = Range<u64>> + Clone,
        target: &'t mut [u8],
    ) -> Result<&'t mut [u8], Error> {
        match self {
            Self::Load(file, _, options, cancel) => {
                let Some(piece) = batch.pieces.first() else { return Ok(target) };
                let loader = file.loader().offset(piece.offset).length(piece.len);
                let loaded = loader.options(options.clone()).cancel(cancel.clone()).load()?;
                let all = loaded.bytes().unwrap_or_default();
                batch.copy(strips, target, |at, out| {
                    out.copy_from_slice(&all[at as usize..at as usize + out.len()]);
                    Ok(())
                })
            }
            Self::Gather(file, window, gathering) => {
                let gathered = gathering.read(&batch.pieces)?;
                for (number, error) in gathered.errors() {
                    let wanted = batch.wanted(strips.clone(), number);
                    if let Some(error) = failure(file, &batch.pieces[number], &wanted, error) {
                        return Err(error);
                    }
                }
                let map = window.map()?;
                let rest = batch.copy(strips, target, |at, out| map.read_at(at, out))?;
                map.finish()?;
                Ok(rest)
            }
            Self::Fetch(content, _, cancel) => {
                let fetch = |number: usize, cancel: &CancelToken| {
                    let piece = &batch.pieces[number];
                    content::read(&***content, piece.offset, piece.len, cancel)
                };
                let count = batch.pieces.len();
                let fetched = workers::run(count, TOGETHER, cancel, fetch)?;
                let Some(fetched) = fetched.into_iter().collect::<Option<Vec<_>>>() else {
                    return Err(cancelled(content.name(), batch.used));
                };
                batch.copy(strips, target, |at, out| {
                    let number = batch.pieces.partition_point(|piece| piece.buf_offset <= at) - 1;
                    let start = (at - batch.pieces[number].buf_offset) as usize;
                    out.copy_from_slice(&fetched[number][start..start + out.len()]);
                    Ok(())
                })
            }
        }
    }
}

/// Strips that are read by one call.
struct Batch {
    /// The most bytes of the pieces.
    window: u64,
    /// The alignment of requests.
    unit: u64,
    /// The most bytes of a piece.
    piece: u64,
    /// Strips share a piece if at most so many bytes are between them.
    join: u64,
    /// Bytes of the pieces.
    used: u64,
    pieces: Vec<Piece>,
    /// How many strips.
    strips: usize,
}

impl Batch {
    fn new(source: &Source<'_>) -> Self {
        let (unit, join) = match source {
            // One piece is all that a load reads.
            Source::Load(_, window, ..) => (1, *window),
            Source::Gather(_, _, gathering) => {
                let (block, place) = gathering.alignment();
                (block.max(place), JOIN)
            }
            Source::Fetch(..) => (1, GAP_OF_CONTENT),
        };
        let (window, piece) = (source.window(), source.piece());
        Self { window, unit, piece, join, used: 0, pieces: Vec::new(), strips: 0 }
    }

    /// The requests' bytes of a strip: whole blocks.
    fn blocks(&self, strip: &Range<u64>) -> Range<u64> {
        strip.start / self.unit * self.unit..strip.end.next_multiple_of(self.unit)
    }

    /// How many bytes more are read with a strip, and whether it joins the last piece.
    fn more(&self, strip: &Range<u64>) -> (u64, bool) {
        let blocks = self.blocks(strip);
        match self.pieces.last() {
            Some(piece)
                if blocks.start <= piece.offset + piece.len + self.join
                    && blocks.end - piece.offset <= self.piece =>
            {
                (blocks.end.saturating_sub(piece.offset + piece.len), true)
            }
            _ => (len_of(&blocks), false),
        }
    }

    fn has_room(&self, strip: &Range<u64>) -> bool {
        let (more, joins) = self.more(strip);
        // A load reads one piece.
        let is_piece = joins || self.join < self.window && self.pieces.len() < PIECES;
        self.pieces.is_empty() || is_piece && self.used + more <= self.window
    }

    fn add(&mut self, strip: &Range<u64>) {
        let (more, joins) = self.more(strip);
        if let Some(piece) = self.pieces.last_mut().filter(|_| joins) {
            piece.len += more;
        } else {
            let offset = self.blocks(strip).start;
            self.pieces.push(Piece { offset, buf_offset: self.used, len: more });
        }
        self.used += more;
        self.strips += 1;
    }

    /// Copies the strips to the start of `target`, by `read`, which gets places among the pieces. Returns the
    /// rest of `target`.
    fn copy<'t>(
        &self,
        strips: impl Iterator<Item = Range<u64>>,
        mut target: &'t mut [u8],
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Error>,
    ) -> Result<&'t mut [u8], Error> {
        let mut pieces = self.pieces.iter().peekable();
        for strip in strips {
            while pieces.next_if(|piece| !has(piece, &strip)).is_some() {}
            let Some(piece) = pieces.peek() else { break };
            let (out, rest) = target.split_at_mut(len_of(&strip) as usize);
            read(piece.buf_offset + (strip.start - piece.offset), out)?;
            target = rest;
        }
        Ok(target)
    }

    /// The strips of a piece, from the first to the last.
    fn wanted(&self, strips: impl Iterator<Item = Range<u64>>, number: usize) -> Range<u64> {
        let piece = &self.pieces[number];
        let mut strips = strips.filter(|strip| has(piece, strip));
        let first = strips.next().unwrap_or(piece.offset..piece.offset);
        first.start..strips.last().map_or(first.end, |strip| strip.end)
    }

    fn clear(&mut self) {
        self.used = 0;
        self.pieces.clear();
        self.strips = 0;
    }
}

/// Whether a piece has all bytes of a strip.
fn has(piece: &Piece, strip: &Range<u64>) -> bool {
    piece.offset <= strip.start && strip.end <= piece.offset + piece.len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathers_at_the_same_time_share_the_windows() {
        let threads = Threads::default();
        let shape = |taken: &Taken<'_>| (taken.count, taken.window);
        let one = threads.take(100, WINDOW);
        assert_eq!(shape(&one), (THREADS, WINDOW));
        let (two, three) = (threads.take(100, WINDOW), threads.take(0, WINDOW));
        assert_eq!((shape(&two), shape(&three)), ((1, WINDOW / 2), (1, WINDOW / 2)));
        drop(one);
        assert_eq!(shape(&threads.take(100, WINDOW)), (1, WINDOW));
        drop((two, three));
        assert_eq!(shape(&threads.take(2, WINDOW)), (2, WINDOW));
        assert_eq!(shape(&threads.take(100, WINDOW)), (THREADS, WINDOW));
    }
}
