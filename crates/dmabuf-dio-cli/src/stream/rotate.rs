// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that are cut into files: `--rotate`.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dmabuf_dio::Errno;
use dmabuf_dio_stream::{Error, FileSink, RotatingSink};
use dmabuf_dio_terminal::exit::{Failure, USAGE, say};
use serde::Serialize;

use super::device::Chosen;
use super::files::lock;
use super::numbered::{name, refuse_to_replace};
use super::sigmf::names::path_of;
use super::sigmf::sidecar::{Content, Sidecar};
use crate::args::values::Rotate;

impl Rotate {
    /// Frames per file, of `frame` bytes each: at least what the device's DMA transfers. Prints a
    /// message if the result differs from the request.
    pub(crate) fn frames(self, chosen: &Chosen, frame: u64, quiet: bool) -> Result<u64, Failure> {
        let frames = match (self, chosen.rate) {
            (Self::Bytes(bytes), _) => bytes / frame,
            (Self::Seconds(seconds), Some(rate)) => (seconds * rate).round() as u64,
            (Self::Seconds(_), None) => {
                let what = format!("{} has no rate to cut by time", chosen.device.name());
                return Err(Failure::new(USAGE, what, "cut by size: --rotate 4G"));
            }
        };
        let align = chosen.align();
        let whole = whole(frames, align / chosen.frame());
        if whole != frames.max(1) && !quiet {
            say(&format!(
                "dmabuf-dio: a file has {whole} frames instead of {frames}: the device's DMA transfers \
                 multiples of {align} bytes"
            ));
        }
        Ok(whole)
    }
}

/// `frames`, rounded down to a multiple of `unit`, but at least `unit`.
fn whole(frames: u64, unit: u64) -> u64 {
    (frames / unit.max(1)).max(1) * unit.max(1)
}

/// The existing files of a recording, and their descriptions.
#[derive(Clone)]
pub(crate) struct Series {
    force: bool,
    /// Frames per file.
    pub(crate) frames: u64,
    sidecar: Sidecar,
    begun: Arc<Mutex<Vec<Begun>>>,
}

/// A file that was begun.
struct Begun {
    /// Frames before it.
    start: u64,
    /// Its description is complete.
    is_described: bool,
    /// Kept until then.
    lock: Option<File>,
}

/// A file of a recording, for `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Piece {
    file: String,
    first_frame: u64,
    frames: u64,
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)
    }
}

impl Series {
    pub(crate) fn new(force: bool, sidecar: Sidecar, frames: u64) -> Self {
        Self { force, frames, sidecar, begun: Arc::default() }
    }

    /// A file.
    pub(crate) fn file(&self, number: u64) -> PathBuf {
        name(self.sidecar.data(), number)
    }

    /// The sink that opens a file after the other, with frames of `frame` bytes, and writes a first
    /// description of each. The files of an earlier recording of this name are removed, with `--force`.
    pub(crate) fn sink(&self, frame: u64) -> Result<RotatingSink<'_>, Failure> {
        refuse_to_replace(self.sidecar.data(), self.force)?;
        Ok(RotatingSink::new(self.frames.saturating_mul(frame), move |number, bytes| {
            self.begin(number, bytes / frame)
        }))
    }

    /// The files with samples.
    pub(crate) fn pieces(&self, frames: u64) -> Vec<Piece> {
        let begun = self.begun();
        let parts = (0..).zip(begun.iter().enumerate()).map(|(number, (index, one))| {
            let end = begun.get(index + 1).map_or(frames, |next| next.start.min(frames));
            Piece {
                file: self.file(number).display().to_string(),
                first_frame: one.start,
                frames: end.saturating_sub(one.start),
            }
        });
        parts.filter(|piece| piece.frames > 0).collect()
    }

    fn begun(&self) -> MutexGuard<'_, Vec<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates file `number`, with frame `start` first.
    fn begin(&self, number: u64, start: u64) -> Result<FileSink, Error> {
        let data = self.file(number);
        // Files of an earlier recording have been removed, so an existing file belongs to another
        // program.
        if data.exists() || path_of(&data).exists() {
            return Err(cannot("create", &data, Errno::EXIST));
        }
        let lock = lock(&data).map_err(|_| cannot("create", &data, Errno::EXIST))?;
        let sink = FileSink::create(&data)?;
        let part = self.sidecar.part(&data, start);
        // In case the process is killed.
        part.create(&Content { bytes: part.first(), ..Content::nothing_yet() })
            .map_err(|error| cannot("write", &part.path, Errno::from(&error)))?;
        self.begun().push(Begun { start, is_described: false, lock });
        Ok(sink)
    }

    /// Writes the descriptions of the files that are not complete, and removes files without samples
    /// at the end of the recording.
    pub(crate) fn describe(&self, content: &Content) -> io::Result<()> {
        let unit = self.sidecar.unit();
        let known = content.bytes / unit;
        let open: Vec<_> = {
            let begun = self.begun();
            let next = |index: usize| begun.get(index + 1).map(|next| next.start);
            let all = begun.iter().enumerate().filter(|(_, one)| !one.is_described);
            all.map(|(index, one)| (index, one.start, next(index))).collect()
        };
        for (index, start, next) in open {
            let data = self.file(index as u64);
            let part = self.sidecar.part(&data, start);
            let end = next.map_or(known, |next| next.min(known)).max(start);
            if start == end && !content.unfinished {
                let _ = std::fs::remove_file(&data);
                let _ = std::fs::remove_file(&part.path);
                continue;
            }
            // A file is complete once all bytes before the next file have arrived.
            let unfinished = content.unfinished && next.is_none_or(|next| known < next);
            part.write(&Content { bytes: end * unit, unfinished, ..content.clone() })?;
            if let Some(one) = self.begun().get_mut(index).filter(|_| !unfinished) {
                (one.is_described, one.lock) = (true, None);
            }
        }
        Ok(())
    }
}

fn cannot(call: &str, path: &Path, errno: Errno) -> Error {
    Error::Stream { device: path.display().to_string(), call: call.into(), errno }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_end_with_a_transfer_of_the_dma() {
        assert_eq!((whole(10_001, 2), whole(10_000, 2), whole(1, 4)), (10_000, 10_000, 4));
        assert_eq!((whole(0, 1), whole(7, 1), whole(7, 0)), (1, 7, 7));
    }
}
