// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that are cut into files: `--rotate`.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dmabuf_dio::Errno;
use dmabuf_dio_stream::{Error, FileSink, RotatingSink};
use serde::Serialize;

use super::device::Chosen;
use super::recording;
use super::sigmf::{self, Content, Sidecar};
use crate::exit::{FAILED, Failure, USAGE};
use crate::size::parse_size;

/// Digits of a file's number.
const DIGITS: usize = 6;

/// The value of `--rotate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rotate {
    Seconds(f64),
    Bytes(u64),
}

impl Rotate {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let units = [("min", 60.0), ("s", 1.0), ("h", 3600.0)];
        let time = units.iter().find_map(|(unit, seconds)| {
            Some(text.strip_suffix(unit)?.trim_end().parse::<f64>().ok()? * seconds)
        });
        let bad =
            || format!("{text:?} is neither a time nor a size: write 60s, 10min, 1h, 500M or 4G");
        match time {
            Some(seconds) if seconds > 0.0 && seconds <= 1e9 => Ok(Self::Seconds(seconds)),
            Some(_) => Err(bad()),
            None => match parse_size(text) {
                Ok(bytes @ 1..) => Ok(Self::Bytes(bytes)),
                _ => Err(bad()),
            },
        }
    }

    /// Frames per file, of `frame` bytes each: at least one.
    pub(crate) fn frames(self, chosen: &Chosen, frame: u64) -> Result<u64, Failure> {
        let frames = match (self, chosen.rate) {
            (Self::Bytes(bytes), _) => bytes / frame,
            (Self::Seconds(seconds), Some(rate)) => (seconds * rate).round() as u64,
            (Self::Seconds(_), None) => {
                let what = format!("{} has no rate to cut by time", chosen.device.name());
                return Err(Failure::new(USAGE, what, "cut by size: --rotate 4G"));
            }
        };
        Ok(frames.max(1))
    }
}

/// The files of a recording.
pub(crate) struct Series {
    force: bool,
    /// Frames per file.
    frames: u64,
    pieces: Pieces,
}

/// The files that there are so far, and their descriptions.
#[derive(Clone)]
pub(crate) struct Pieces {
    first: PathBuf,
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
    pub(crate) fn new(first: &Path, force: bool, sidecar: Sidecar, frames: u64) -> Self {
        let pieces = Pieces { first: first.into(), sidecar, begun: Arc::default() };
        Self { force, frames, pieces }
    }

    /// Frames per file.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// The first file.
    pub(crate) fn first(&self) -> PathBuf {
        name(&self.pieces.first, 0)
    }

    /// Removes the files of an earlier recording of this name, with `--force`.
    pub(crate) fn remove_earlier(&self) -> Result<(), Failure> {
        refuse_to_replace(&self.pieces.first, self.force)
    }

    /// The sink that opens a file after the other, with frames of `frame` bytes, and writes a first
    /// description of each.
    pub(crate) fn sink(&self, frame: u64) -> RotatingSink<'_> {
        RotatingSink::new(self.frames.saturating_mul(frame), move |number, bytes| {
            self.pieces.begin(number, bytes / frame)
        })
    }

    /// What describes the files.
    pub(crate) fn pieces_so_far(&self) -> Pieces {
        self.pieces.clone()
    }

    /// The files with samples.
    pub(crate) fn pieces(&self, frames: u64) -> Vec<Piece> {
        let begun = self.pieces.begun();
        let parts = (0..).zip(begun.iter().enumerate()).map(|(number, (index, one))| {
            let end = begun.get(index + 1).map_or(frames, |next| next.start.min(frames));
            Piece {
                file: name(&self.pieces.first, number).display().to_string(),
                first_frame: one.start,
                frames: end.saturating_sub(one.start),
            }
        });
        parts.filter(|piece| piece.frames > 0).collect()
    }
}

impl Pieces {
    fn begun(&self) -> MutexGuard<'_, Vec<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates file `number`, with frame `start` first.
    fn begin(&self, number: u64, start: u64) -> Result<FileSink, Error> {
        let data = name(&self.first, number);
        // Files of an earlier recording have been removed, so a file here is somebody else's.
        if data.exists() || sigmf::path_of(&data).exists() {
            return Err(cannot("create", &data, Errno::EXIST));
        }
        let lock = recording::lock(&data).map_err(|_| cannot("create", &data, Errno::EXIST))?;
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
            let data = name(&self.first, index as u64);
            let part = self.sidecar.part(&data, start);
            let end = next.map_or(known, |next| next.min(known)).max(start);
            if start == end && !content.unfinished {
                let _ = std::fs::remove_file(&data);
                let _ = std::fs::remove_file(&part.path);
                continue;
            }
            // Nothing is added to a file once all before the next one has arrived.
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

/// The name of a file: `capture-000003.sigmf-data` for `capture.sigmf-data`.
pub(crate) fn name(first: &Path, number: u64) -> PathBuf {
    let mut name = OsString::from(first.file_stem().unwrap_or_default());
    name.push(format!("-{number:0DIGITS$}"));
    if let Some(extension) = first.extension() {
        name.push(".");
        name.push(extension);
    }
    first.with_file_name(name)
}

/// Fails if there are files of an earlier recording of this name, or removes them with `force`:
/// files that the new recording does not replace would look like a part of it.
pub(crate) fn refuse_to_replace(first: &Path, force: bool) -> Result<(), Failure> {
    for number in 0.. {
        let data = name(first, number);
        let description = sigmf::path_of(&data);
        if !data.exists() && !description.exists() {
            break;
        }
        if !force {
            let what = format!("{} already exists", data.display());
            let hint = "choose another name, or replace all of its files: --force";
            return Err(Failure::new(USAGE, what, hint));
        }
        sigmf::refuse_other(&data)?;
        for path in [data, description] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let what = format!("{}: cannot remove it: {error}", path.display());
                    return Err(Failure::new(FAILED, what, "check the folder"));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_times_and_sizes_are_parsed() {
        assert_eq!(Rotate::parse("60s"), Ok(Rotate::Seconds(60.0)));
        assert_eq!(Rotate::parse("1.5min"), Ok(Rotate::Seconds(90.0)));
        assert_eq!(Rotate::parse("2h"), Ok(Rotate::Seconds(7200.0)));
        assert_eq!(Rotate::parse("4G"), Ok(Rotate::Bytes(4 << 30)));
        assert_eq!(Rotate::parse("500MB"), Ok(Rotate::Bytes(500_000_000)));
        for bad in ["", "0", "0s", "-1s", "nans", "s", "5x", "infh"] {
            assert!(Rotate::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rotated_files_have_numbered_names() {
        let of = |first: &str, number| name(Path::new(first), number).display().to_string();
        assert_eq!(of("a/capture.sigmf-data", 3), "a/capture-000003.sigmf-data");
        assert_eq!(of("capture", 1_234_567), "capture-1234567");
        assert_eq!(of("x.y.bin", 0), "x.y-000000.bin");
    }

    #[test]
    fn earlier_recording_is_not_replaced_without_force() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = folder.path().join("c.bin");
        assert!(refuse_to_replace(&first, false).is_ok());
        for number in 0..3 {
            std::fs::write(name(&first, number), "x").expect("written");
        }
        std::fs::write(folder.path().join("c-000001.sigmf-meta"), "x").expect("written");
        std::fs::write(folder.path().join("c-00000x.bin"), "x").expect("written");
        assert!(refuse_to_replace(&first, false).is_err());
        assert!(name(&first, 2).exists());
        refuse_to_replace(&first, true).expect("removed");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }
}
