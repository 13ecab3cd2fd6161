// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files with names, in a folder of their own, and what has to be in it.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use crate::pages::difference;

pub(crate) const NAMES: u64 = 4;

/// A file, and how often there was another one of its name.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    pub(crate) version: u64,
}

/// The folder; it is removed with what is in it.
pub(crate) struct Saved {
    folder: PathBuf,
    files: [Option<Content>; NAMES as usize],
    versions: u64,
}

impl Saved {
    pub(crate) fn create(folder: &Path) -> Result<Self, String> {
        let folder = folder.join("torture-saved");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder, files: [const { None }; NAMES as usize], versions: 0 })
    }

    pub(crate) fn path(&self, name: u64) -> PathBuf {
        self.folder.join(format!("saved-{}", name % NAMES))
    }

    pub(crate) fn get(&self, name: u64) -> Option<&Content> {
        self.files[(name % NAMES) as usize].as_ref()
    }

    /// A file has this content now.
    pub(crate) fn put(&mut self, name: u64, bytes: Vec<u8>) {
        self.versions += 1;
        self.files[(name % NAMES) as usize] = Some(Content { bytes, version: self.versions });
    }

    /// A file is not there any more.
    pub(crate) fn remove(&mut self, name: u64) -> Result<(), String> {
        let path = self.path(name);
        self.files[(name % NAMES) as usize] = None;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("unlink: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// The file with this name has its content, and no other file is there but those that are known.
    pub(crate) fn check(&self, name: u64) -> Result<(), String> {
        if let Some(content) = self.get(name) {
            let path = self.path(name);
            let actual = std::fs::read(&path);
            let actual = actual.map_err(|error| format!("{}: {error}", path.display()))?;
            difference(&format!("saved-{}", name % NAMES), &actual, &content.bytes)?;
        }
        only(&self.folder, (0..NAMES).filter(|name| self.get(*name).is_some()), |name| {
            format!("saved-{name}")
        })
    }

    /// All of them, without the page cache.
    pub(crate) fn check_all(&self) -> Result<(), String> {
        for name in 0..NAMES {
            if let (Some(_), Ok(file)) = (self.get(name), File::open(self.path(name))) {
                file.sync_data().map_err(|error| format!("fdatasync: {error}"))?;
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
            self.check(name)?;
        }
        Ok(())
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A folder has files of these names, and nothing else.
pub(crate) fn only(
    folder: &Path,
    names: impl Iterator<Item = u64>,
    name: impl Fn(u64) -> String,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let there: BTreeSet<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let expected: BTreeSet<String> = names.map(name).collect();
    if there != expected {
        return Err(format!("the folder has {there:?} in place of {expected:?}"));
    }
    Ok(())
}
