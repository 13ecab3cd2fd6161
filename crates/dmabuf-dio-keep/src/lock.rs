// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks of names. The kernel releases them when their process ends, however it ends.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use dmabuf_dio::CancelToken;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::folder::{Folder, Part};

/// The lock of a name. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Lock<'f> {
    folder: &'f Folder,
    place: PathBuf,
    _file: OwnedFd,
}

impl<'f> Lock<'f> {
    /// Waits for the lock. A signal ends the wait if it cancels the token.
    pub(crate) fn wait(folder: &'f Folder, name: &str, cancel: &CancelToken) -> Result<Self> {
        let lock = Self::take(folder, name, FlockOperation::LockExclusive, cancel)?;
        lock.ok_or_else(|| Error::Io {
            path: folder.at(Part::Lock.place(name)),
            step: "lock it",
            error: Errno::AGAIN.into(),
        })
    }

    /// Takes the lock if nobody has it.
    pub(crate) fn now(folder: &'f Folder, name: &str) -> Result<Option<Self>> {
        let operation = FlockOperation::NonBlockingLockExclusive;
        Self::take(folder, name, operation, &CancelToken::new())
    }

    fn take(
        folder: &'f Folder,
        name: &str,
        operation: FlockOperation,
        cancel: &CancelToken,
    ) -> Result<Option<Self>> {
        let place = Part::Lock.place(name);
        loop {
            let file = folder.lock_file(&place)?;
            match rustix::fs::flock(&file, operation) {
                // Until it was locked, another process may have removed it.
                Ok(()) if folder.is_at(&file, &place) => {
                    return Ok(Some(Self { folder, place, _file: file }));
                }
                Ok(()) => {}
                Err(Errno::INTR) if !cancel.is_cancelled() => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => {
                    let path = folder.at(&place);
                    return Err(Error::Io { path, step: "lock it", error: errno.into() });
                }
            }
        }
    }

    /// Removes the file of the lock while it is held.
    pub(crate) fn remove(self) -> Result<()> {
        self.folder.remove(&self.place)
    }
}
