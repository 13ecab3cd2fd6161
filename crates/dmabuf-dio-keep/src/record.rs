// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is written beside a kept file: what it was loaded from.
//!
//! A record is a file of its own, because a tmpfs has extended attributes of users only since Linux 6.6. It
//! names the file that it belongs to, and is written before that file gets its name: if a process is killed
//! between the two, the record belongs to no file, and the source is loaded again.

use std::io::{Read as _, Write as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::folder::{Folder, Part};
use crate::identity::{Identity, Stamp};
use crate::source::{File, Files, Source};

const SCHEMA: u32 = 1;
/// Longer records are not read.
const LONGEST: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    schema: u32,
    /// The kept file or folder.
    pub(crate) stamp: Stamp,
    /// The source, for people.
    pub(crate) source: String,
    /// The last name in the source's path, whose extension programs look at.
    pub(crate) name: String,
    /// When it was kept: seconds since 1970.
    pub(crate) kept: u64,
    /// Bytes of all its files.
    pub(crate) length: u64,
    is_folder: bool,
    /// What else tells the source from others that are shown alike.
    #[serde(default)]
    asked: String,
    files: Vec<Entry>,
    /// What was kept before, and still is if this process was killed before it could replace it.
    #[serde(default)]
    pub(crate) previous: Option<Stamp>,
    /// The kept files of a folder, in the order of `files`.
    #[serde(default)]
    pub(crate) stamps: Vec<Stamp>,
}

/// A file of the source.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    places: Vec<PathBuf>,
    identity: Identity,
}

impl From<&File> for Entry {
    fn from(file: &File) -> Self {
        Self { places: file.places.clone(), identity: file.identity.clone() }
    }
}

/// Whether it is the name of an entry, and no path.
fn is_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
}

impl Record {
    fn new(source: &str, files: &Files) -> Self {
        let name = Path::new(source).file_name().map(|name| name.to_string_lossy().into_owned());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            schema: SCHEMA,
            stamp: Stamp::default(),
            source: source.to_owned(),
            name: name.unwrap_or_else(|| "file".into()),
            kept: now.map_or(0, |since| since.as_secs()),
            length: length(files),
            is_folder: files.is_folder,
            asked: files.asked.clone(),
            files: files.files.iter().map(Entry::from).collect(),
            previous: None,
            stamps: Vec::new(),
        }
    }

    /// The record of files that are loaded, if the source still has them.
    pub(crate) fn of_unchanged(source: &dyn Source, files: &Files) -> Result<Self> {
        let shown = source.shown();
        let record = Self::new(&shown, files);
        if !record.is_of(&shown, &source.files()?) {
            return Err(Error::Changed { path: shown.into() });
        }
        Ok(record)
    }

    /// Whether the source is the same as when it was kept.
    pub(crate) fn is_of(&self, source: &str, files: &Files) -> bool {
        self.source == source
            && self.is_folder == files.is_folder
            && self.asked == files.asked
            && self.files.iter().eq(files.files.iter().map(Entry::from).collect::<Vec<_>>().iter())
    }

    /// Whether the source says which version it is.
    pub(crate) fn has_versions(&self) -> bool {
        !self.files.iter().any(|file| matches!(file.identity, Identity::Unknown { .. }))
    }

    /// Whether all files are there as they were kept. The first look at the name was at a folder only.
    pub(crate) fn is_whole(&self, folder: &Folder, name: &str) -> bool {
        let is_there = |(file, stamp): (&Entry, &Stamp)| {
            file.places.iter().all(|place| {
                let stat = folder.stat(Path::new(name).join(place));
                stat.is_ok_and(|stat| stat.is_some_and(|stat| Stamp::of(&stat) == *stamp))
            })
        };
        !self.is_folder
            || self.stamps.len() == self.files.len()
                && self.files.iter().zip(&self.stamps).all(is_there)
    }

    /// The record of a name; `None` if there is none that can be read.
    pub(crate) fn read(folder: &Folder, name: &str) -> Option<Self> {
        let file = folder.read(Part::Source.place(name)).ok()?;
        let mut text = Vec::new();
        std::fs::File::from(file).take(LONGEST).read_to_end(&mut text).ok()?;
        Self::parse(&text)
    }

    /// A record, if it can be read.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(text).ok()?;
        // Whoever has the folder wrote the record: a path would make programs put links elsewhere.
        (record.schema == SCHEMA && is_name(&record.name)).then_some(record)
    }

    /// The record of a name, if it belongs to what is kept there.
    pub(crate) fn of_kept(folder: &Folder, name: &str) -> Option<Self> {
        let stat = folder.stat(name).ok()??;
        Self::read(folder, name).filter(|record| record.stamp == Stamp::of(&stat))
    }

    /// Writes the record of a name, whose lock is held.
    pub(crate) fn write(&self, folder: &Folder, name: &str) -> Result<()> {
        let (new, place) = (Part::Write.place(name), Part::Source.place(name));
        let failed = |error| Error::Io { path: folder.at(&place), step: "write it", error };
        let text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        let mut file = std::fs::File::from(folder.nameless()?);
        file.write_all(&text).map_err(failed)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o444))
            .map_err(|errno| failed(errno.into()))?;
        folder.remove(&new)?;
        folder.link(&file.into(), &new)?;
        folder.replace(&new, &place)
    }
}

/// Bytes of all files.
pub(crate) fn length(files: &Files) -> u64 {
    files.files.iter().fold(0, |sum, file| sum.saturating_add(file.identity.length()))
}
