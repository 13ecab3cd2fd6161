// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the bytes come from.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use dmabuf_dio::Loader;
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::follow;
use crate::identity::Identity;

/// Something that can be kept: it lists its files, each with an identity and a loader.
pub trait Source: fmt::Debug + Send + Sync {
    /// Its path or address, for messages and lists. No secrets.
    fn shown(&self) -> String;

    /// Its files, now. They are listed before the load and after it: if the two differ, the source has changed.
    ///
    /// # Errors
    ///
    /// [`Error::Source`], [`Error::Io`].
    fn files(&self) -> Result<Files>;
}

/// The files of a source.
#[derive(Debug, Default)]
pub struct Files {
    /// Whether it is a folder; otherwise there is one file, whose place is its own name.
    pub is_folder: bool,
    /// The files, by place.
    pub files: Vec<File>,
    /// What else tells the source from others that are shown alike, such as a digest of the whole URL. No secrets.
    pub asked: String,
    /// What a folder has and is not kept: folders behind links, links that lead nowhere, links of another user to
    /// files of a third, devices.
    pub left_out: Vec<PathBuf>,
}

/// A file of a source.
#[derive(Clone, Debug)]
pub struct File {
    /// Where it is in the folder. Hubs have the same file in several places. There is at least one.
    pub places: Vec<PathBuf>,
    /// Its version.
    pub identity: Identity,
    /// Who may read it, as in `st_mode`.
    pub mode: u32,
    /// The group that this holds for.
    pub group: u32,
    /// When it was written: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Its path, if it is a file of this machine: it is opened once, and `loader` is not used.
    pub path: Option<PathBuf>,
    /// Loads all of it.
    pub loader: Loader<'static>,
}

/// A file or a folder of this machine.
#[derive(Clone, Debug)]
pub struct OnDisk(PathBuf);

impl OnDisk {
    /// The file or folder at a path. A relative path counts from the folder that this process is in.
    pub fn new(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        Self(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
    }
}

impl Source for OnDisk {
    fn shown(&self) -> String {
        self.0.display().to_string()
    }

    fn files(&self) -> Result<Files> {
        let stat = stat(&self.0)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let name = self.0.file_name().map_or_else(|| "file".into(), PathBuf::from);
                let files = vec![file(&self.0, name, &stat)?];
                Ok(Files { is_folder: false, files, ..Files::default() })
            }
            FileType::Directory => {
                let mut found = Files { is_folder: true, ..Files::default() };
                let folder =
                    rustix::fs::open(&self.0, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
                let folder = folder.map_err(|errno| not_listed(&self.0, errno))?;
                walk(&folder, &self.0, Path::new(""), &mut found)?;
                found.files = merged(found.files);
                if found.files.is_empty() {
                    return Err(Error::Source {
                        path: self.0.clone(),
                        what: "the folder has no files".into(),
                        remedy: "name a folder with files",
                    });
                }
                Ok(found)
            }
            _ => Err(Error::Source {
                path: self.0.clone(),
                what: "it is neither a regular file nor a folder".into(),
                remedy: "name a file, whose times tell when it was changed",
            }),
        }
    }
}

fn stat(path: &Path) -> Result<Stat> {
    rustix::fs::stat(path).map_err(|errno| Error::Io {
        path: path.to_owned(),
        step: "look at it",
        error: errno.into(),
    })
}

#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_cast,
    reason = "the fields differ by architecture"
)]
fn file(path: &Path, place: PathBuf, stat: &Stat) -> Result<File> {
    if place.to_str().is_none() {
        return Err(Error::Source {
            path: path.to_owned(),
            what: "its name is not UTF-8".into(),
            remedy: "rename it, or keep a link to it that has another name",
        });
    }
    Ok(File {
        places: vec![place],
        identity: Identity::of(stat),
        mode: stat.st_mode,
        group: stat.st_gid,
        modified: (i64::from(stat.st_mtime), stat.st_mtime_nsec as u32),
        path: Some(path.to_owned()),
        loader: Loader::new(path),
    })
}

fn not_listed(folder: &Path, errno: Errno) -> Error {
    Error::Io { path: folder.to_owned(), step: "list it", error: errno.into() }
}

/// Adds the files of a folder. Links to files are followed, as hubs have them; links to folders are
/// not: they may lead back here.
fn walk(folder: &OwnedFd, path: &Path, place: &Path, found: &mut Files) -> Result<()> {
    let failed = |errno| not_listed(path, errno);
    let mut names = Vec::new();
    for entry in Dir::read_from(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_bytes().to_owned();
        if !matches!(&name[..], b"." | b"..") {
            names.push(name);
        }
    }
    names.sort();
    for name in names.iter().map(|name| Path::new(OsStr::from_bytes(name))) {
        let (path, place) = (path.join(name), place.join(name));
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let stat =
            rustix::fs::openat(folder, name, flags, Mode::empty()).and_then(rustix::fs::fstat);
        let stat = match stat.map(|stat| (FileType::from_raw_mode(stat.st_mode), stat)) {
            Ok((FileType::Directory, _)) => {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let inner = rustix::fs::openat(folder, name, flags, Mode::empty());
                walk(&inner.map_err(|errno| not_listed(&path, errno))?, &path, &place, found)?;
                continue;
            }
            Ok((FileType::Symlink, _)) => follow::target(folder.as_fd(), name).ok().flatten(),
            Ok((_, stat)) => Some(stat),
            Err(_) => None,
        };
        match stat {
            Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                found.files.push(file(&path, place, &stat)?);
            }
            _ => found.left_out.push(place),
        }
    }
    Ok(())
}

/// Keeps a file that has several names once.
fn merged(files: Vec<File>) -> Vec<File> {
    let mut known: HashMap<(u64, u64), usize> = HashMap::new();
    let mut merged: Vec<File> = Vec::new();
    for mut file in files {
        if let Identity::File { device, inode, .. } = file.identity {
            if let Some(first) = known.get(&(device, inode)) {
                merged[*first].places.append(&mut file.places);
                continue;
            }
            known.insert((device, inode), merged.len());
        }
        merged.push(file);
    }
    merged
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folder_lists_each_file_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        fs::create_dir_all(root.join("deep/empty")).expect("folders");
        for name in ["a.safetensors", "config.json", "deep/b"] {
            fs::write(root.join(name), name).expect("a file");
        }
        symlink("a.safetensors", root.join("again")).expect("a link");
        symlink("nowhere", root.join("dangling")).expect("a link");
        symlink(".", root.join("deep/loop")).expect("a link");
        let files = OnDisk::new(root).files().expect("files");
        let places: Vec<Vec<_>> = files.files.iter().map(|file| file.places.clone()).collect();
        let of = |places: &[&str]| places.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            places,
            [of(&["a.safetensors", "again"]), of(&["config.json"]), of(&["deep/b"])]
        );
        assert_eq!(files.left_out, of(&["dangling", "deep/loop"]));
        assert!(files.is_folder);

        let one = OnDisk::new(root.join("again")).files().expect("a file");
        assert_eq!(one.files[0].places, of(&["again"]));
        assert_eq!(one.files[0].identity, files.files[0].identity);
        for bad in [root.join("nowhere"), root.join("deep/empty"), "/dev/null".into()] {
            assert!(OnDisk::new(&bad).files().is_err(), "{}", bad.display());
        }
    }

    #[test]
    fn every_change_is_another_identity() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("f");
        let identity = || OnDisk::new(&path).files().expect("files").files[0].identity.clone();
        fs::write(&path, "one").expect("written");
        let first = identity();
        assert_eq!(identity(), first);
        let other = folder.path().join("g");
        fs::write(&other, "two").expect("written");
        fs::rename(&other, &path).expect("renamed");
        assert_ne!(identity(), first, "another file");
        let second = identity();
        fs::write(&path, "longer").expect("written");
        assert_ne!(identity(), second, "another length");
    }
}
