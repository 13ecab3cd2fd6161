// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams to and from a USB host: endpoints of a user-space function, on a device controller with
//! scatter-gather (`Documentation/usb/functionfs.rst`).

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dmabuf_dio_sys::functionfs::{self, descriptors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno as Os;

use crate::error::Result;
use crate::fenced::{Fenced, Port};
use crate::ring::BlockRing;
use crate::wait::Wait;
use crate::{Filled, Sink, Source, failed};
use dmabuf_dio::CancelToken;
use dmabuf_dio::Errno;

/// How often a block that another device still holds is retried, 1 ms apart.
const PATIENCE: u32 = 1000;

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
                    return Err(failed(&name, "wait for the host", crate::from_os(errno)));
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
}

impl Endpoint {
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

fn attach(blocks: &mut Fenced<Endpoint>, ring: &Arc<BlockRing>) -> Result<()> {
    blocks.attach(ring).map_err(|errno| failed(blocks.port.name(), "attach a block", errno))
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
    fn how(&self) -> String {
        "USB, dma-buf".into()
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, _: Option<u64>) -> Result<()> {
        attach(&mut self.0, ring)
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

    fn ready(&self) -> Option<Wait<'_>> {
        self.0.first()
    }

    fn queued(&self) -> usize {
        self.0.len()
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Receives blocks from the host, which waits while none is queued. Every transfer must have the
/// requested length: the kernel does not report the length of a shorter one.
#[derive(Debug)]
pub struct UsbSource {
    blocks: Fenced<Endpoint>,
    frame: u64,
}

impl UsbSource {
    /// Opens an OUT endpoint that delivers frames of `frame` bytes.
    ///
    /// # Errors
    ///
    /// As for [`UsbSink::open`].
    pub fn open(path: impl AsRef<Path>, frame: u64) -> Result<Self> {
        Ok(Self { blocks: Fenced::filling(Endpoint::open(path.as_ref())?), frame })
    }
}

impl Source for UsbSource {
    fn frame(&self) -> u64 {
        self.frame
    }

    fn how(&self) -> String {
        "USB, dma-buf".into()
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        attach(&mut self.blocks, ring)
    }

    fn start(&mut self) -> Result<()> {
        Ok(())
    }

    fn attach_more(&mut self, block: usize) -> Result<bool> {
        self.blocks.attach_more(block)
    }

    fn queue(&mut self, block: usize, bytes: u64) -> Result<bool> {
        self.blocks.queue(Filled { block, bytes })?;
        Ok(false)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        self.blocks.take()
    }

    fn ready(&self) -> Option<Wait<'_>> {
        self.blocks.first()
    }

    fn queued(&self) -> usize {
        self.blocks.len()
    }

    /// The host still fills what is queued; closing the endpoint takes it back.
    fn stop(&mut self) -> Result<()> {
        self.blocks.keep_done();
        Ok(())
    }
}
