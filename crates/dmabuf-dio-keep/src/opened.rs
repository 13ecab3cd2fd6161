// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file of a source that is open for its load: what its bytes, its mode and its version are is asked of one
//! descriptor. Whoever may write the folder can put another file at its path in between.

use std::os::fd::{AsFd as _, OwnedFd};

use dmabuf_dio::Loader;
use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::readers;
use crate::source::File;

/// An open file of a source; of an object only its loader.
#[derive(Debug)]
pub(crate) struct OpenFile<'f> {
    pub(crate) file: &'f File,
    fd: Option<OwnedFd>,
    /// Who may read it, as in `st_mode`.
    pub(crate) mode: u32,
    /// The group that this holds for.
    pub(crate) group: u32,
}

impl<'f> OpenFile<'f> {
    /// Opens a file. Fails if it is not the one that was listed.
    pub(crate) fn open(file: &'f File) -> Result<Self> {
        let mut open = Self { file, fd: None, mode: file.mode, group: file.group };
        let Some(path) = &file.path else { return Ok(open) };
        // A FIFO that is there meanwhile would block until somebody writes it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).and_then(|fd| {
            // With the flag io_uring would fail instead of waiting.
            let flags = rustix::fs::fcntl_getfl(&fd)?;
            rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK)?;
            Ok(fd)
        });
        open.fd = Some(fd.map_err(|errno| open.failed("open it", errno))?);
        open.check()?;
        Ok(open)
    }

    /// Fails if it is not the file that was listed, or was changed since, and takes its mode and group.
    pub(crate) fn check(&mut self) -> Result<()> {
        let Some(fd) = &self.fd else { return Ok(()) };
        let stat = rustix::fs::fstat(fd).map_err(|errno| self.failed("look at it", errno))?;
        if Identity::of(&stat) != self.file.identity {
            return Err(Error::Changed { path: self.path() });
        }
        (self.mode, self.group) = (readers::mode(fd, stat.st_mode), stat.st_gid);
        Ok(())
    }

    /// Loads all of it.
    pub(crate) fn loader(&self) -> Loader<'_> {
        match &self.fd {
            Some(fd) => Loader::from_fd(fd.as_fd()),
            None => self.file.loader.clone(),
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.file.path.clone().unwrap_or_else(|| self.file.places[0].clone())
    }

    fn failed(&self, step: &'static str, errno: rustix::io::Errno) -> Error {
        Error::Io { path: self.path(), step, error: errno.into() }
    }
}
