// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that are cut into files: `--rotate`.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dmabuf_dio::Errno;
use dmabuf_dio_stream::{Error, FileSink, RotatingSink};
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE, say};
use dmabuf_dio_terminal::size::parse_size;
use serde::Serialize;

use super::device::Chosen;
use super::recording;
use super::sigmf::{self, Content, Sidecar};

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

    /// Frames per file, of `frame` bytes each: at least what the device's DMA transfers. Says so if
    /// that is not what was asked for.
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

/// `frames`, rounded down to a multiple of `unit`, at least one of it.
fn whole(frames: u64, unit: u64) -> u64 {
    (frames / unit.max(1)).max(1) * unit.max(1)
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
    let earlier = earlier(first).map_err(|error| {
        let what = format!("{}: cannot look for earlier files: {error}", first.display());
        Failure::new(FAILED, what, "check that the folder can be read")
    })?;
    // All of it before the first is removed.
    for (number, path) in &earlier {
        if !force {
            let what = format!("{} already exists", path.display());
            let hint = "choose another name, or replace all of its files: --force";
            return Err(Failure::new(USAGE, what, hint));
        }
        if path.is_dir() {
            let what = format!("{} is a folder, and is not replaced", path.display());
            return Err(Failure::new(USAGE, what, "choose another name, or remove it"));
        }
        let data = name(first, *number);
        sigmf::refuse_other(&data)?;
        if *path == data && path.is_file() {
            // Another capture may be writing it.
            recording::lock(path)?;
        }
    }
    for (_, path) in &earlier {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let what = format!("{}: cannot remove it: {error}", path.display());
                return Err(Failure::new(FAILED, what, "check the folder"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The files and descriptions of an earlier recording of this name, with their numbers, in order.
/// Some may be missing between them.
fn earlier(first: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let folder = first.parent().filter(|folder| *folder != Path::new(""));
    let entries = match std::fs::read_dir(folder.unwrap_or(Path::new("."))) {
        Ok(entries) => entries,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = first.with_file_name(entry?.file_name());
        if let Some(number) = number_of(first, &path) {
            all.push((number, path));
        }
    }
    all.sort();
    Ok(all)
}

/// The number of a file of the recording `first`, or of the file that a description of it describes.
fn number_of(first: &Path, path: &Path) -> Option<u64> {
    let stem = first.file_stem()?.as_bytes();
    let rest = path.file_name()?.as_bytes().strip_prefix(stem)?.strip_prefix(b"-")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let data = name(first, number);
    (path == data || path == sigmf::path_of(&data)).then_some(number)
}

/// Whether a path is that of a file that a recording of this name may have.
pub(super) fn is_piece(first: &Path, path: &Path) -> bool {
    number_of(first, path).is_some()
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
    fn files_end_with_a_transfer_of_the_dma() {
        assert_eq!((whole(10_001, 2), whole(10_000, 2), whole(1, 4)), (10_000, 10_000, 4));
        assert_eq!((whole(0, 1), whole(7, 1), whole(7, 0)), (1, 7, 7));
    }

    /// Files are removed and their descriptions, whichever of them are there, and no others.
    #[test]
    fn earlier_files_after_a_gap_are_found() {
        for first in ["c.bin", "c.sigmf-data", "c"] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = |name: &str| folder.path().join(name);
            let first = path(first);
            let others = [
                "c-00001.bin",
                "c-0000012.bin",
                "c-000001.txt",
                "c-000001x",
                "cc-000001.bin",
                "c.bin",
            ];
            for other in others {
                std::fs::write(path(other), "x").expect("written");
            }
            let mut mine: Vec<_> = [1, 7, 1_234_567].map(|number| name(&first, number)).into();
            mine.extend([sigmf::path_of(&mine[0]), path("c-000009.sigmf-meta")]);
            for path in &mine {
                std::fs::write(path, "x").expect("written");
                let said = refuse_to_replace(&first, false).expect_err("it exists");
                assert!(said.what().contains("already exists"), "{}", said.what());
                refuse_to_replace(&first, true).expect("removed");
                assert!(!path.exists() && refuse_to_replace(&first, false).is_ok());
            }
            for path in &mine {
                std::fs::write(path, "x").expect("written");
            }
            refuse_to_replace(&first, true).expect("removed");
            assert!(mine.iter().all(|path| !path.exists()), "{}", first.display());
            assert!(others.iter().all(|other| path(other).exists()), "{}", first.display());
            assert!(is_piece(&first, &mine[2]) && !is_piece(&first, &path("c-000001.txt")));
        }
    }

    /// Either all of the earlier files are removed or none.
    #[test]
    fn nothing_is_removed_if_one_file_must_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = folder.path().join("c.bin");
        for number in 0..2 {
            std::fs::write(name(&first, number), "x").expect("written");
        }
        std::fs::create_dir(name(&first, 2)).expect("a folder");
        assert!(refuse_to_replace(&first, true).is_err());
        std::fs::remove_dir(name(&first, 2)).expect("removed");
        let writer = recording::lock(&name(&first, 1)).expect("locked");
        assert!(refuse_to_replace(&first, true).is_err(), "it is being written");
        assert!(name(&first, 0).exists() && name(&first, 1).exists());
        drop(writer);
        refuse_to_replace(&first, true).expect("removed");
        assert!(!name(&first, 0).exists() && !name(&first, 1).exists());
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
