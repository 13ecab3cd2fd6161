// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many ranges of a file in one buffer, by a gather.

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
    let path = || file.path().to_owned();
    for (number, error) in gathered.errors() {
        let (piece, run) = (&pieces[number], &runs[number]);
        let (offset, length) = (run.range.start, run.len());
        match error {
            // The last page of the file
            PieceError::EndOfFile { found, .. } if piece.offset + found.len >= run.range.end => {}
            PieceError::EndOfFile { end, .. } => {
                return Err(Error::ShortFile { path: path(), offset, length, end, done: 0 });
            }
            PieceError::Failed { offset, errno } => {
                let (path, direction) = (path(), Direction::Load);
                return Err(Error::Transfer { path, direction, offset, done: 0, length, errno });
            }
            _ => return Ok(None),
        }
    }
    let report = gathered.report().transfer;
    drop(gathering);
    Ok(Some((buf.with_report(report), places)))
}
