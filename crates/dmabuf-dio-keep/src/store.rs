// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps sources in a folder.

use std::path::{Path, PathBuf};

use dmabuf_dio::Report;

use crate::error::{Error, Result};
use crate::fill::{Filled, Loading, fill};
use crate::folder::{Folder, Part};
use crate::identity::Stamp;
use crate::lock::Lock;
use crate::name::Name;
use crate::record::Record;
use crate::source::{Files, Source};

/// A folder on a tmpfs, with what is kept in it.
#[derive(Debug)]
pub struct Store(Folder);

/// Something that is kept.
#[derive(Debug)]
#[non_exhaustive]
pub struct Kept {
    /// Its name.
    pub name: Name,
    /// The file or folder.
    pub path: PathBuf,
    /// What it was loaded from.
    pub source: String,
    /// Bytes of all its files.
    pub length: u64,
    /// When it was loaded: seconds since 1970.
    pub since: u64,
    /// Whether it was loaded now. Otherwise it was there.
    pub loaded: bool,
    /// How its files were loaded, if that was now; none for empty files.
    pub reports: Vec<Report>,
    /// What a folder has that is not kept.
    pub left_out: Vec<PathBuf>,
}

impl Store {
    /// The store in this folder, which is created if its parent exists.
    ///
    /// # Errors
    ///
    /// [`Error::Folder`] if it is not on a tmpfs, or if other users could replace what is in it; [`Error::Io`].
    pub fn create(folder: impl AsRef<Path>) -> Result<Self> {
        Folder::create(folder.as_ref()).map(Self)
    }

    /// The store in this folder, to look at.
    ///
    /// # Errors
    ///
    /// [`Error::Folder`], [`Error::Io`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Folder::open(folder.as_ref()).map(Self)
    }

    /// Keeps a source under a name: loads it, unless it is kept already and has not changed since. Blocks until
    /// it is kept, also while another process loads it. What was kept under that name is replaced at once when the
    /// load is complete; who has it open or mapped keeps it.
    ///
    /// The mode lets nobody write, and lets read who may read the source.
    ///
    /// # Errors
    ///
    /// [`Error::Source`]; [`Error::Changed`]; [`Error::NoRoom`]; [`Error::Io`]; [`Error::Load`]. Nothing changes then.
    pub fn keep(&self, name: &Name, source: &dyn Source, loading: &Loading) -> Result<Kept> {
        let folder = &self.0;
        self.clean()?;
        let _lock = Lock::wait(folder, name.as_str(), &loading.cancel)?;
        // Of a process that was killed since
        folder.remove(&Part::New.place(name.as_str()))?;
        let (shown, files) = (source.shown(), source.files()?);
        if let Some(record) = Record::of_kept(folder, name.as_str()) {
            let is_whole = || record.is_whole(folder, name.as_str());
            if record.has_versions() && record.is_of(&shown, &files) && is_whole() {
                return Ok(self.kept(name, record, files.left_out));
            }
        }
        self.own(name)?;
        let filled = fill(folder, &files, loading)?;
        let record = Record::of_unchanged(source, &files)?;
        self.publish(name, &files, &filled, record)?;
        let record = Record::of_kept(folder, name.as_str()).ok_or_else(|| Error::Io {
            path: folder.at(name),
            step: "find it",
            error: std::io::ErrorKind::NotFound.into(),
        })?;
        let reports = filled.into_iter().filter_map(|one| one.report).collect();
        Ok(Kept { loaded: true, reports, ..self.kept(name, record, files.left_out) })
    }

    /// Everything that is kept, by name.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn list(&self) -> Result<Vec<Kept>> {
        let names = self.0.names(None)?;
        let kept = |name: String| {
            let record = Record::of_kept(&self.0, &name)?;
            Some(self.kept(&Name::new(&name).ok()?, record, Vec::new()))
        };
        Ok(names.into_iter().filter_map(kept).collect())
    }

    /// Removes what killed processes left behind, and the records of what was removed.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn clean(&self) -> Result<()> {
        let folder = &self.0;
        for part in [Part::New, Part::Write] {
            for name in folder.names(Some(part))? {
                if let Some(_lock) = Lock::now(folder, &name)? {
                    folder.remove(&part.place(&name))?;
                }
            }
        }
        for name in folder.names(Some(Part::Lock))? {
            if folder.stat(&name)?.is_some() {
                continue;
            }
            let Some(lock) = Lock::now(folder, &name)? else { continue };
            if folder.stat(&name)?.is_none() {
                folder.remove(&Part::Source.place(&name))?;
                lock.remove()?;
            }
        }
        Ok(())
    }

    /// What is kept there now, to be replaced. A file that somebody else put there is not.
    fn own(&self, name: &Name) -> Result<Option<Stamp>> {
        let folder = &self.0;
        let Some(stat) = folder.stat(name)? else { return Ok(None) };
        let stamp = Stamp::of(&stat);
        let is_own = |own: Stamp| own == stamp || own.is_folder_of(&stat);
        let record = Record::read(folder, name.as_str());
        if record.is_some_and(|own| is_own(own.stamp) || own.previous.is_some_and(is_own)) {
            return Ok(Some(stamp));
        }
        Err(Error::Folder {
            folder: folder.path().to_owned(),
            what: format!("{name} is there, and was not kept by dmabuf-dio"),
            remedy: "remove it, or choose another name",
        })
    }

    /// Gives a file a name in the hidden folder, where nobody else has one.
    fn link(&self, file: &Filled, place: &Path) -> Result<()> {
        if self.0.link(&file.fd, place)? {
            return Ok(());
        }
        let error = std::io::ErrorKind::AlreadyExists.into();
        Err(Error::Io { path: self.0.at(place), step: "name it", error })
    }

    /// Gives complete files their names.
    fn publish(
        &self,
        name: &Name,
        files: &Files,
        filled: &[Filled],
        mut record: Record,
    ) -> Result<()> {
        let (folder, new) = (&self.0, Part::New.place(name.as_str()));
        let stat = |place: &Path| {
            let missing = || Error::Io {
                path: folder.at(place),
                step: "find it",
                error: std::io::ErrorKind::NotFound.into(),
            };
            folder.stat(place)?.ok_or_else(missing)
        };
        let stamp = |file: &Filled| match rustix::fs::fstat(&file.fd) {
            Ok(stat) => Ok(Stamp::of(&stat)),
            Err(errno) => {
                Err(Error::Io { path: folder.at(name), step: "look at it", error: errno.into() })
            }
        };
        if let ([one], false) = (filled, files.is_folder) {
            record.stamp = stamp(one)?;
            record.previous = self.own(name)?;
            record.write(folder, name.as_str())?;
            if folder.link(&one.fd, name.as_ref())? {
                return Ok(());
            }
            self.link(one, &new)?;
        } else {
            folder.mkdir(&new, 0o755)?;
            for (file, place) in
                filled.iter().flat_map(|file| file.places.iter().map(move |place| (file, place)))
            {
                self.make_folders(&new, place)?;
                self.link(file, &new.join(place))?;
            }
            record.stamp = Stamp::of(&stat(&new)?);
            record.stamps = filled.iter().map(stamp).collect::<Result<_>>()?;
            record.previous = self.own(name)?;
            record.write(folder, name.as_str())?;
        }
        folder.replace(&new, name.as_ref())
    }

    /// Creates the folders that a place is in.
    fn make_folders(&self, root: &Path, place: &Path) -> Result<()> {
        let mut inner = root.to_owned();
        for part in place.parent().into_iter().flat_map(Path::components) {
            inner.push(part);
            if self.0.stat(&inner)?.is_none() {
                self.0.mkdir(&inner, 0o755)?;
            }
        }
        Ok(())
    }

    fn kept(&self, name: &Name, record: Record, left_out: Vec<PathBuf>) -> Kept {
        Kept {
            name: name.clone(),
            path: self.0.at(name),
            source: record.source,
            length: record.length,
            since: record.kept,
            loaded: false,
            reports: Vec::new(),
            left_out,
        }
    }
}
