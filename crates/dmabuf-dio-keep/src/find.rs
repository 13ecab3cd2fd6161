// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds what is kept, wherever a path is taken: `keep:NAME`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use dmabuf_dio::{Buffer, Kind, Options};

use crate::error::{Error, Result};
use crate::folder::{Folder, folders};
use crate::name::parse;
use crate::record::Record;

/// A kept file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Where it is.
    pub path: PathBuf,
    /// The last name in the path of its source, with the extension that programs look at.
    pub name: PathBuf,
}

/// The path that a path means: of `keep:NAME` and `keep:NAME/PLACE` the kept file or folder, or a place in it; of
/// others the path itself.
///
/// # Errors
///
/// [`Error::Name`]; [`Error::NotKept`].
pub fn resolve(path: &Path) -> Result<Cow<'_, Path>> {
    Ok(find(path)?.map_or(Cow::Borrowed(path), |found| Cow::Owned(found.path)))
}

/// What a path that begins with `keep:` names; `None` for other paths.
///
/// # Errors
///
/// As for [`resolve`].
pub fn find(path: &Path) -> Result<Option<Found>> {
    let Some(parsed) = parse(path) else { return Ok(None) };
    let (name, place) = parsed?;
    let folders = folders();
    for folder in &folders {
        let Ok(folder) = Folder::open(folder) else { continue };
        // Where a folder cannot be searched, the open that follows says why.
        if matches!(folder.stat(&name), Ok(None)) {
            continue;
        }
        let path = folder.at(&name);
        if !place.as_os_str().is_empty() {
            let name = place.file_name().map_or_else(|| place.clone(), PathBuf::from);
            return Ok(Some(Found { path: path.join(&place), name }));
        }
        let record = Record::of_kept(&folder, name.as_str());
        let name = record.map_or_else(|| name.to_string(), |record| record.name).into();
        return Ok(Some(Found { path, name }));
    }
    Err(Error::NotKept { name: name.to_string(), folders })
}

/// Like [`open`], if that is what a load with these options asks for: all of the file, in any memory that has a
/// descriptor, wherever it is. `None` if it is not, or if the path does not begin with `keep:`.
///
/// # Errors
///
/// As for [`open`].
pub fn open_for(path: &Path, options: &Options, whole: bool) -> Result<Option<Buffer>> {
    let Options { kind, backend, numa, lock, .. } = options;
    let any = matches!(kind, Kind::Any | Kind::Memfd | Kind::File);
    let fits = whole && any && backend.is_none() && numa.is_none() && !lock;
    if fits { open(path) } else { Ok(None) }
}

/// The kept file that a path names as a buffer, which shares its memory: a read-only memfd, in the library's
/// words. `None` for a path that does not begin with `keep:`.
///
/// # Errors
///
/// As for [`resolve`], and [`Error::Io`] if the file cannot be opened; [`Error::Load`] if it is a folder, or if
/// others may write it.
pub fn open(path: &Path) -> Result<Option<Buffer>> {
    let Some(found) = find(path)? else { return Ok(None) };
    let file = std::fs::File::open(&found.path).map_err(|error| Error::Io {
        path: found.path.clone(),
        step: "open it",
        error,
    })?;
    Ok(Some(Buffer::from_fd(file.into())?))
}
