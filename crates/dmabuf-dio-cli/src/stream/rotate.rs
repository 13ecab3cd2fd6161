// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that are cut into files: `--rotate`.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use dmabuf_dio::Errno;
use dmabuf_dio_stream::{Error, FileSink, Gap, RotatingSink};
use serde::Serialize;

use super::device::Chosen;
use super::sigmf::{self, Sidecar};
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
pub(crate) struct Series<'a> {
    first: &'a Path,
    force: bool,
    sidecar: &'a Sidecar,
    /// Frames per file.
    frames: u64,
    /// Frames before each file.
    starts: RefCell<Vec<u64>>,
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

impl<'a> Series<'a> {
    pub(crate) fn new(first: &'a Path, force: bool, sidecar: &'a Sidecar, frames: u64) -> Self {
        Self { first, force, sidecar, frames, starts: RefCell::default() }
    }

    /// Frames per file.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// The first file.
    pub(crate) fn first(&self) -> PathBuf {
        name(self.first, 0)
    }

    /// Removes the files of an earlier recording of this name, with `--force`.
    pub(crate) fn remove_earlier(&self) -> Result<(), Failure> {
        refuse_to_replace(self.first, self.force)
    }

    /// The sink that opens a file after the other, with frames of `frame` bytes, and writes a first
    /// description of each.
    pub(crate) fn sink(&self, frame: u64) -> RotatingSink<'_> {
        RotatingSink::new(self.frames.saturating_mul(frame), move |number, bytes| {
            let data = name(self.first, number);
            // Those of an earlier recording have been removed.
            if data.exists() || sigmf::path_of(&data).exists() {
                return Err(cannot("create", &data, Errno::EXIST));
            }
            let sink = FileSink::create(&data)?;
            let start = bytes / frame;
            let part = self.sidecar.part(&data, start);
            // In case the process is killed.
            part.write(&[], part.first())
                .map_err(|error| cannot("write", &part.path, Errno::from(&error)))?;
            self.starts.borrow_mut().push(start);
            Ok(sink)
        })
    }

    /// Where each file begins and ends, in frames.
    fn parts(&self, frames: u64) -> Vec<(PathBuf, u64, u64)> {
        let starts = self.starts.borrow();
        let ends = starts.iter().skip(1).copied().chain([frames]);
        let parts = (0..).zip(starts.iter().zip(ends));
        parts
            .map(|(number, (start, end))| {
                (name(self.first, number), (*start).min(frames), end.min(frames))
            })
            .collect()
    }

    /// Writes the descriptions, for a stream that moved `bytes` bytes of frames of `unit` bytes, and
    /// removes files without samples.
    pub(crate) fn describe(&self, gaps: &[Gap], bytes: u64, unit: u64) -> std::io::Result<()> {
        for (data, start, end) in self.parts(bytes / unit) {
            let part = self.sidecar.part(&data, start);
            if start == end {
                let _ = std::fs::remove_file(&data);
                let _ = std::fs::remove_file(&part.path);
            } else {
                part.write(gaps, end * unit)?;
            }
        }
        Ok(())
    }

    /// The files with samples.
    pub(crate) fn pieces(&self, frames: u64) -> Vec<Piece> {
        let piece = |(data, start, end): (PathBuf, u64, u64)| Piece {
            file: data.display().to_string(),
            first_frame: start,
            frames: end - start,
        };
        self.parts(frames).into_iter().map(piece).filter(|piece| piece.frames > 0).collect()
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
    fn times_and_sizes() {
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
    fn names_have_numbers() {
        let of = |first: &str, number| name(Path::new(first), number).display().to_string();
        assert_eq!(of("a/capture.sigmf-data", 3), "a/capture-000003.sigmf-data");
        assert_eq!(of("capture", 1_234_567), "capture-1234567");
        assert_eq!(of("x.y.bin", 0), "x.y-000000.bin");
    }

    #[test]
    fn an_earlier_recording() {
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
