// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many ranges of a file in one buffer, by a gather.

use std::ops::Range;

use dmabuf_dio::gather::{Gatherer, Piece, PieceError};
use dmabuf_dio::{Buffer, Direction, Error};

use crate::model::ModelFile;
use crate::plan::Run;
use crate::settings::LoadSettings;

/// Loads the runs of a file into one buffer. The second result has the places of their first bytes.
/// `None` if no such buffer can be made here, or nothing can read into it.
pub(crate) fn load(
    settings: &LoadSettings,
    file: &ModelFile,
    runs: &[Run],
    gatherer: &Gatherer<'_>,
) -> Result<Option<(Buffer, Vec<u64>)>, Error> {
    let page = rustix::param::page_size() as u64;
    let (mut pieces, mut places, mut len) = (Vec::new(), Vec::new(), 0);
    for run in runs {
        // Whole pages go to their places by direct I/O. Runs have at least a page between them.
        let start = run.range.start / page * page;
        let piece_len = run.range.end.next_multiple_of(page) - start;
        pieces.push(Piece { offset: start, buf_offset: len, len: piece_len });
        places.push(len + (run.range.start - start));
        len += piece_len;
    }
    let buf = match Buffer::alloc_kind(settings.options.kind, "system", len) {
        Err(Error::Heap { .. }) => return Ok(None),
        allocated => allocated?,
    };
    let mut gathering = match gatherer.open(&buf) {
        Err(Error::Unavailable { .. }) => return Ok(None),
        other => other?,
    };
    if page % gathering.alignment().0 != 0 {
        return Ok(None);
    }
    let gathered = gathering.read(&pieces)?;
    for (number, error) in gathered.errors() {
        if let Some(error) = failure(file, &pieces[number], &runs[number].range, error) {
            return Err(error);
        }
    }
    let report = gathered.report().transfer;
    drop(gathering);
    Ok(Some((buf.with_report(report), places)))
}

/// The error of a load that needs the bytes `wanted` of a piece. `None` if the piece has them: its last block
/// may extend beyond the file.
pub(crate) fn failure(
    file: &ModelFile,
    piece: &Piece,
    wanted: &Range<u64>,
    error: PieceError,
) -> Option<Error> {
    let (offset, length) = (wanted.start, wanted.end - wanted.start);
    let (path, direction) = (file.path().to_owned(), Direction::Load);
    let (offset, errno) = match error {
        PieceError::EndOfFile { found, .. } if piece.offset + found.len >= wanted.end => {
            return None;
        }
        PieceError::EndOfFile { end, .. } => {
            return Some(Error::ShortFile { path, offset, length, end, done: 0 });
        }
        PieceError::Failed { offset, errno } => (offset, errno),
        // Aligned pieces need no spare bytes.
        _ => (offset, dmabuf_dio::Errno::INVAL),
    };
    Some(Error::Transfer { path, direction, offset, done: 0, length, errno })
}
