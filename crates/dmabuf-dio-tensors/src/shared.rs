// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many ranges of a file in one buffer, by a gather; or of a content, each by a load.

use std::ops::Range;
use std::time::Instant;

use dmabuf_dio::gather::{Gatherer, Piece, PieceError};
use dmabuf_dio::{Buffer, CancelToken, Direction, Error, Loader, Report};
use rustix::time::{ClockId, clock_gettime};

use crate::file::ModelFile;
use crate::plan::Run;
use crate::settings::LoadSettings;
use crate::workers;

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

/// The same for the runs of a content, of which `loader` sets up the loads.
pub(crate) fn fetch<'f>(
    settings: &LoadSettings,
    file: &ModelFile,
    runs: &[Run],
    cancel: &CancelToken,
    loader: impl Fn(&Run, &CancelToken) -> Loader<'f> + Sync,
) -> Result<Option<(Buffer, Vec<u64>)>, Error> {
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let page = rustix::param::page_size() as u64;
    let (mut places, mut len) = (Vec::new(), 0);
    for run in runs {
        // A tensor has the same place in a page as in the content.
        let place = len + run.range.start % page;
        places.push(place);
        len = (place + run.len()).next_multiple_of(page);
    }
    let buf = match Buffer::alloc_kind(settings.options.kind, "system", len) {
        Err(Error::Heap { .. }) => return Ok(None),
        allocated => allocated?,
    };
    let load =
        |job: usize, cancel: &CancelToken| loader(&runs[job], cancel).load_into(&buf, places[job]);
    let reports = workers::run(runs.len(), settings.concurrency, cancel, load)?;
    let mut all: Option<Report> = None;
    for report in reports {
        let (path, direction) = (file.path().to_owned(), Direction::Load);
        let report =
            report.ok_or(Error::Cancelled { path, direction, done: 0, length: runs[0].len() })?;
        all = Some(match all {
            None => report,
            Some(all) => both(all, &report),
        });
    }
    if let Some(all) = &mut all {
        all.cpu_seconds = cpu_seconds() - cpu;
        all.seconds = began.elapsed().as_secs_f64();
        all.gb_per_second = all.bytes as f64 / all.seconds / 1e9;
    }
    Ok(all.map(|report| (buf.with_report(report), places)))
}

/// What two loads did, without their times, which overlap.
fn both(mut one: Report, other: &Report) -> Report {
    one.bytes += other.bytes;
    one.copied_bytes += other.copied_bytes;
    one.fetched = one.fetched.zip(other.fetched).map(|(one, other)| one.and(other));
    one
}

/// CPU time of the process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
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
