// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function of this process on a USB device controller.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use dmabuf_dio::{CancelToken, Errno};
use dmabuf_dio_sys::functionfs::{self, descriptors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as Os;

use crate::error::{Result, failed, from_os};

/// A USB function provided by this process: one vendor-specific interface with a bulk endpoint to
/// the host. It exists until this is dropped.
#[derive(Debug)]
pub struct Function {
    folder: PathBuf,
    control: File,
}

impl Function {
    /// Describes the function in `folder`, the mount point of a `functionfs` instance. Afterwards
    /// its gadget can be bound to a controller.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream): `ENOENT` if it is not such a folder, `EBUSY` if
    /// another function is described there and in use.
    pub fn new(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let name = folder.display().to_string();
        let call = |what, error: std::io::Error| failed(&name, what, Errno::from(&error));
        let mut control = OpenOptions::new()
            .read(true)
            .write(true)
            .open(folder.join("ep0"))
            .map_err(|error| call("open ep0", error))?;
        control
            .write_all(&descriptors::bulk_in())
            .and_then(|()| control.write_all(&descriptors::strings("samples")))
            .map_err(|error| match error.raw_os_error() {
                // A function that is already described would take this as an answer to the host.
                Some(libc::ESRCH) => failed(&name, "describe the function", Errno::BUSY),
                _ => call("describe the function", error),
            })?;
        Ok(Self { folder, control })
    }

    /// The path of the endpoint to the host.
    pub fn endpoint(&self) -> PathBuf {
        self.folder.join("ep1")
    }

    /// Blocks until a host has chosen the configuration with this function, and returns `true`.
    /// Returns `false` if the token was cancelled first.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream).
    pub fn wait(&mut self, cancel: &CancelToken) -> Result<bool> {
        let name = self.folder.display().to_string();
        let tick = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        while !cancel.is_cancelled() {
            let mut fds = [PollFd::new(&self.control, PollFlags::IN)];
            match poll(&mut fds, Some(&tick)) {
                Ok(0) | Err(Os::INTR) => continue,
                Ok(_) => {}
                Err(errno) => {
                    return Err(failed(&name, "wait for the host", from_os(errno)));
                }
            }
            let mut event = [0; functionfs::EVENT_BYTES];
            let read = self.control.read(&mut event);
            read.map_err(|error| failed(&name, "read an event", Errno::from(&error)))?;
            if functionfs::is_enable(&event) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
