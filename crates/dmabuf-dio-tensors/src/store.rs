// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder that the files of a model are in: one of this machine, or one of contents.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::content::{Content, Folder};
use dmabuf_dio::{CancelToken, Errno};

use crate::error::{Error, Result};
use crate::file::ModelFile;
use crate::header::Header;
use crate::{fetch, open, workers};

/// Contents whose headers are read at the same time: each takes two or three answers of a store.
const TOGETHER: usize = 16;

/// A folder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Store<'s> {
    Disk(&'s Path),
    Contents(&'s dyn Folder, &'s CancelToken),
}

impl Store<'_> {
    /// What messages call it.
    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::Disk(folder) => folder,
            Self::Contents(folder, _) => folder.name(),
        }
    }

    /// What messages call a file of it.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder().join(name)
    }

    /// The names of the files in it, without those in folders below.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let folder = match self {
            Self::Disk(folder) => folder,
            Self::Contents(folder, _) => {
                let path = folder.name();
                let all = folder.list().map_err(|source| failed(path, source))?;
                let name = |(name, _): (PathBuf, u64)| name.into_os_string().into_string().ok();
                return Ok(all
                    .into_iter()
                    .filter_map(name)
                    .filter(|name| !name.contains('/'))
                    .collect());
            }
        };
        let error = |source| Error::Open { path: (*folder).to_owned(), source };
        // The working directory has no name in a path.
        let named = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(named).map_err(error)? {
            names.extend(entry.map_err(error)?.file_name().into_string());
        }
        Ok(names)
    }

    /// Reads a file of at most `limit` bytes.
    pub(crate) fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>> {
        match self {
            Self::Disk(folder) => open::read(&folder.join(name), limit),
            Self::Contents(folder, cancel) => fetch::read(&*content(*folder, name)?, limit, cancel),
        }
    }

    /// Opens a file of a model.
    pub(crate) fn open(&self, name: &str) -> Result<(ModelFile, Header)> {
        match self {
            Self::Disk(folder) => ModelFile::open(&folder.join(name)),
            Self::Contents(folder, cancel) => {
                ModelFile::of_content(content(*folder, name)?, cancel)
            }
        }
    }

    /// Opens files one after the other, contents several at a time, and passes them on in this order.
    pub(crate) fn each(
        &self,
        names: &[String],
        mut take: impl FnMut(ModelFile, Header) -> Result<()>,
    ) -> Result<()> {
        let (together, cancel) = match self {
            Self::Disk(_) => (1, &CancelToken::new()),
            Self::Contents(_, cancel) => (TOGETHER, *cancel),
        };
        for names in names.chunks(together) {
            let opened =
                workers::run(names.len(), together, cancel, |job, _| self.open(&names[job]))?;
            for (opened, name) in opened.into_iter().zip(names) {
                let (file, header) = opened.ok_or_else(|| self.cancelled(name))?;
                take(file, header)?;
            }
        }
        Ok(())
    }

    fn cancelled(&self, name: &str) -> Error {
        let (path, direction) = (self.path(name), dmabuf_dio::Direction::Load);
        let source =
            dmabuf_dio::Error::Cancelled { path: path.clone(), direction, done: 0, length: 0 };
        Error::Load { path, source }
    }

    /// Whether a name that is listed leads to a file.
    pub(crate) fn is_there(&self, name: &str) -> bool {
        match self {
            Self::Disk(folder) => folder.join(name).exists(),
            Self::Contents(..) => true,
        }
    }

    /// Whether there is such a file, which need not be listed.
    pub(crate) fn has(&self, name: &str) -> Result<bool> {
        match self {
            Self::Disk(folder) => Ok(folder.join(name).exists()),
            Self::Contents(folder, _) => match content(*folder, name) {
                Err(error) if is_missing(&error) => Ok(false),
                opened => opened.map(|_| true),
            },
        }
    }

    /// Those of the names that the folder does not have; none if that cannot be found out.
    pub(crate) fn missing(&self, names: impl Iterator<Item = String>) -> Vec<String> {
        match self {
            Self::Disk(folder) => names.filter(|name| !folder.join(name).exists()).collect(),
            Self::Contents(folder, _) => {
                let Ok(all) = folder.list() else { return Vec::new() };
                let all: HashSet<_> = all.into_iter().map(|(name, _)| name).collect();
                names.filter(|name| !all.contains(Path::new(name))).collect()
            }
        }
    }
}

fn content(folder: &dyn Folder, name: &str) -> Result<Arc<dyn Content>> {
    let failed = |source| failed(&folder.name().join(name), source);
    folder.open(Path::new(name)).map_err(failed)
}

fn failed(path: &Path, source: dmabuf_dio::Error) -> Error {
    Error::Load { path: path.to_owned(), source }
}

/// Whether an error says that there is no such file.
pub(crate) fn is_missing(error: &Error) -> bool {
    match error {
        Error::Open { source, .. } => source.kind() == ErrorKind::NotFound,
        Error::Load { source, .. } => source.errno() == Some(Errno::NOENT),
        _ => false,
    }
}

/// Whether an error says that a store does not list its contents.
pub(crate) fn cannot_list(error: &Error) -> bool {
    matches!(error, Error::Load { source, .. } if source.errno() == Some(Errno::OPNOTSUPP))
}
