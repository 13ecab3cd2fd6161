// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the files of a source into files without names.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use dmabuf_dio::{Buffer, CancelToken, Options, Report};
use rustix::fs::{Gid, Mode, Timespec, Timestamps, Uid};

use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::opened::OpenFile;
use crate::readers;
use crate::record::length;
use crate::room::{check, descriptors};
use crate::source::{File, Files};

/// Is told how many bytes of how many are loaded.
pub type OnProgress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// How sources are loaded.
#[derive(Clone, Default)]
#[allow(clippy::exhaustive_structs, reason = "to be written with ..Loading::default()")]
pub struct Loading {
    /// The settings of the transfers.
    pub options: Options,
    /// Is told how much of the source is loaded.
    pub progress: Option<OnProgress>,
    /// Cancels.
    pub cancel: CancelToken,
}

impl fmt::Debug for Loading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loading").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A loaded file that has no name yet.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) fd: OwnedFd,
    pub(crate) places: Vec<PathBuf>,
    pub(crate) report: Option<Report>,
}

/// Loads all files of a source.
pub(crate) fn fill(folder: &Folder, files: &Files, loading: &Loading) -> Result<Vec<Filled>> {
    let total = length(files);
    check(folder, &files.files)?;
    descriptors(files.files.len())?;
    let mut before = 0;
    let mut filled = Vec::new();
    for file in &files.files {
        let one = fill_one(folder, file, loading, before, total);
        // Another process may have used the room meanwhile; then there are no pages.
        let one =
            one.map_err(|error| check(folder, std::slice::from_ref(file)).err().unwrap_or(error));
        filled.push(one?);
        before += file.identity.length();
    }
    Ok(filled)
}

fn fill_one(
    folder: &Folder,
    file: &File,
    loading: &Loading,
    before: u64,
    total: u64,
) -> Result<Filled> {
    let fd = folder.nameless()?;
    let failed = |step, errno: rustix::io::Errno| Error::Io {
        path: folder.path().to_owned(),
        step,
        error: errno.into(),
    };
    let length = file.identity.length();
    rustix::fs::ftruncate(&fd, length).map_err(|errno| failed("create a file in it", errno))?;
    let mut open = OpenFile::open(file)?;
    let report = if length == 0 { None } else { Some(load(&fd, &open, loading, before, total)?) };
    open.check()?;
    // Its own group, so that the mode means the same. Who is not root may not be in that group.
    let same_group = rustix::fs::fstat(&fd).is_ok_and(|stat| stat.st_gid == open.group)
        || rustix::fs::fchown(&fd, None::<Uid>, Some(Gid::from_raw(open.group))).is_ok();
    let mode = Mode::from_raw_mode(readers::kept(open.mode, same_group));
    rustix::fs::fchmod(&fd, mode).map_err(|errno| failed("set the mode of a file in it", errno))?;
    let (tv_sec, tv_nsec) = (file.modified.0, file.modified.1.into());
    let time = Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::futimens(&fd, &times)
        .map_err(|errno| failed("set the time of a file in it", errno))?;
    Ok(Filled { fd, places: file.places.clone(), report })
}

fn load(
    fd: &OwnedFd,
    open: &OpenFile<'_>,
    loading: &Loading,
    before: u64,
    total: u64,
) -> Result<Report> {
    let again = rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(|errno| Error::Io {
        path: open.file.places[0].clone(),
        step: "open another descriptor for it",
        error: errno.into(),
    })?;
    let buffer = Buffer::from_fd(again)?;
    let options = Options { backend: None, ..loading.options.clone() };
    let mut loader = open
        .loader()
        .options(options)
        .length(open.file.identity.length())
        .cancel(loading.cancel.clone());
    if let Some(told) = &loading.progress {
        let told = Arc::clone(told);
        loader = loader.progress(move |progress| told(before + progress.done, total));
    }
    Ok(loader.load_into(&buffer, 0)?)
}
