// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks to the host, through the endpoint of a function.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dmabuf_dio_sys::functionfs;
use rustix::fs::OFlags;

use crate::ends::{Facts, Pending, Sink};
use crate::error::{Result, failed};
use crate::fenced::{Fenced, Port};
use crate::ring::{BlockRing, Filled};
use dmabuf_dio::Errno;

/// How often a block that another device still holds is retried, 1 ms apart.
const PATIENCE: u32 = 1000;

/// An endpoint. Closing it releases every block.
#[derive(Debug)]
struct Endpoint {
    file: File,
    name: String,
}

impl Endpoint {
    fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        // Without a host, a blocking call would wait for one.
        let nonblock = OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).write(true).custom_flags(nonblock).open(path);
        let file = file.map_err(|error| failed(&name, "open", Errno::from(&error)))?;
        Ok(Self { file, name })
    }

    /// The kernel has the same error for a controller that does not support dma-bufs, and for a host
    /// that is gone.
    fn or_no_host(&self, errno: Errno) -> Errno {
        let is_gone = errno == Errno::PERM && functionfs::is_enabled(self.file.as_fd()).is_err();
        if is_gone { Errno::SHUTDOWN } else { errno }
    }
}

impl Port for Endpoint {
    fn name(&self) -> &str {
        &self.name
    }

    fn attach(&self, dmabuf: BorrowedFd<'_>) -> dmabuf_dio_sys::Result<()> {
        functionfs::attach(self.file.as_fd(), dmabuf).map_err(|errno| self.or_no_host(errno))
    }

    fn enqueue(&self, dmabuf: BorrowedFd<'_>, bytes: u64) -> dmabuf_dio_sys::Result<()> {
        // If the gadget is gone, the kernel's transfer would dereference a null pointer (7.3).
        functionfs::is_enabled(self.file.as_fd())?;
        let transfer = || functionfs::transfer(self.file.as_fd(), dmabuf, bytes);
        for _ in 0..PATIENCE {
            match transfer() {
                // The block's last device is about to release it.
                Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(1)),
                Err(Errno::AGAIN) => return Err(Errno::SHUTDOWN),
                result => return result.map_err(|errno| self.or_no_host(errno)),
            }
        }
        transfer()
    }

    fn is_running(&self) -> bool {
        functionfs::is_enabled(self.file.as_fd()).is_ok()
    }
}

/// Sends blocks to the host.
#[derive(Debug)]
pub struct UsbSink(Fenced<Endpoint>);

impl UsbSink {
    /// Opens an IN endpoint, such as `/dev/ffs/ep1`. It is usable once a host has enabled it.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream): `EACCES`, `ENOENT`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self(Fenced::emptying(Endpoint::open(path.as_ref())?)))
    }
}

impl Sink for UsbSink {
    fn facts(&self) -> Facts {
        Facts::new("USB, dma-buf")
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, _: Option<u64>) -> Result<()> {
        let attached = self.0.attach(ring);
        attached.map_err(|errno| failed(self.0.port.name(), "attach a block", errno))
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        self.0.attach_more(block)
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        self.0.queue(filled).map(|()| false)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.0.take()
    }

    fn pending(&self) -> Pending<'_> {
        self.0.pending()
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
