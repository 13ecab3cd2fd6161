// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module: its loans and its calls.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use dmabuf_dio_sys::dio::{self, Attach, Info, Load, ReadWrite};

use super::error::{LendError, NotLent};
use super::resume;
use crate::buffer::Buffer;
use crate::buffer::shared::Shared;
use crate::direction::Direction;
use crate::errno::Errno;
use crate::file::extent::Extent;

/// An open file of the module's device. It is unusable once cancelled.
#[derive(Debug)]
pub(crate) struct Context {
    fd: OwnedFd,
    info: Info,
}

impl Context {
    pub(crate) fn open() -> Result<Self, LendError> {
        let fd = dio::open().map_err(|errno| LendError::NoModule { errno })?;
        let info = dio::info(fd.as_fd()).map_err(|errno| LendError::OtherModule { errno })?;
        Ok(Self { fd, info })
    }

    /// Opens the device, and checks that the module can lend pages to `io_uring`.
    pub(crate) fn with_slots() -> Result<Self, LendError> {
        let context = Self::open()?;
        if context.info.features & dio::FEATURE_SLOTS == 0 {
            return Err(LendError::NoSlots);
        }
        Ok(context)
    }

    /// Whether the kernel keeps lent memory mapped for disks behind an IOMMU.
    pub(crate) fn keeps_mapped(&self) -> bool {
        self.info.features & dio::FEATURE_PREMAP != 0
    }

    /// The module's defaults and limits.
    pub(crate) fn info(&self) -> &Info {
        &self.info
    }

    /// Attaches a buffer; the module keeps its own reference to it.
    pub(crate) fn attach(self, buf: &Shared) -> Result<Attached, LendError> {
        let mut attach = Attach::default();
        loop {
            return match dio::attach(self.as_fd(), buf.as_fd(), &mut attach) {
                Ok(()) => Ok(Attached { context: self, segments: attach.segments }),
                Err(Errno::INTR) => continue,
                Err(errno) => Err(not_attached(buf, errno, attach.refusal)),
            };
        }
    }

    /// Bytes moved so far through this file.
    pub(crate) fn moved(&self) -> Option<u64> {
        let path = format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd());
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix("moved:")?.trim().parse().ok())
    }

    /// Ends current and later calls with `ECANCELED`.
    pub(crate) fn cancel(&self) {
        let _ = dio::cancel(self.as_fd());
    }

    /// Allocates a dma-buf and reads a file into it, across signals.
    pub(crate) fn load(
        &self,
        request: &mut Load,
        is_cancelled: impl Fn() -> bool,
    ) -> dmabuf_dio_sys::Result<OwnedFd> {
        loop {
            match dio::load(self.as_fd(), request) {
                // The context keeps the data that was read, and continues there.
                Err(Errno::INTR) if !is_cancelled() => {}
                result => return result,
            }
        }
    }
}

impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The memory that a buffer's descriptor refers to.
pub(super) fn shared(buf: &Buffer) -> Result<&Shared, LendError> {
    buf.shared().map_err(|_| LendError::Attach {
        exporter: buf.kind().name().to_owned(),
        errno: Errno::INVAL,
    })
}

fn not_attached(buf: &Shared, errno: Errno, refusal: u32) -> LendError {
    let exporter = buf.exporter().unwrap_or_else(|| "unknown".into());
    match NotLent::from_number(refusal) {
        Some(why) if errno == Errno::OPNOTSUPP => LendError::NotLent { exporter, why, errno },
        _ => LendError::Attach { exporter, errno },
    }
}

/// A dma-buf whose pages the kernel module borrows for the lifetime of this value. Needs the
/// module; docs/design.md lists the exporters that it borrows from.
#[derive(Debug)]
pub struct Attached {
    context: Context,
    segments: u32,
}

/// The bytes that a call moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Contiguous bytes from the start of the range.
    pub done: u64,
    /// How many of them were requested with `O_DIRECT`.
    pub direct: u64,
}

/// Why a call has not moved everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{errno} after {} bytes", moved.done)]
#[non_exhaustive]
pub struct MoveError {
    /// The kernel's error number.
    pub errno: Errno,
    /// The bytes that were moved before the error.
    pub moved: Moved,
    /// With `EINVAL` due to alignment: the modulus in bytes for which the offsets in file and
    /// buffer must be congruent.
    pub align: Option<u32>,
    /// With `EBUSY`: why the module no longer lends the buffer. A device may not see the moved
    /// data.
    pub not_lent: Option<NotLent>,
}

impl Attached {
    /// Attaches `buf`, which may be closed afterwards.
    ///
    /// # Errors
    ///
    /// [`LendError::NoModule`]; [`LendError::OtherModule`]; [`LendError::NotLent`];
    /// [`LendError::Attach`].
    pub fn new(buf: &Buffer) -> Result<Self, LendError> {
        Self::of(shared(buf)?)
    }

    pub(crate) fn of(buf: &Shared) -> Result<Self, LendError> {
        Context::open()?.attach(buf)
    }

    /// Number of physically contiguous segments of the buffer.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Moves `len` bytes between byte `position` of the file and byte `offset` of the buffer, in
    /// the given direction. Blocks until done, across signals. A read ends early only at the end of
    /// the file.
    ///
    /// # Errors
    ///
    /// [`MoveError`], with `EINVAL`, `ERANGE`, `EBADF`, or an error number of the file system.
    pub fn transfer(
        &self,
        direction: Direction,
        file: BorrowedFd<'_>,
        position: u64,
        offset: u64,
        len: u64,
    ) -> Result<Moved, MoveError> {
        let extent = Extent { file: position, buf: offset, len };
        self.transfer_with(direction, file, extent, (0, 0), || false)
    }

    /// The same, with the given request size and queue depth (0: the module's defaults), until
    /// cancelled.
    pub(crate) fn transfer_with(
        &self,
        direction: Direction,
        file: BorrowedFd<'_>,
        extent: Extent,
        (chunk, depth): (u64, u32),
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Moved, MoveError> {
        let rw = ReadWrite {
            file_fd: file.as_raw_fd(),
            file_offset: extent.file,
            buf_offset: extent.buf,
            length: extent.len,
            chunk,
            depth,
            ..ReadWrite::default()
        };
        let context = self.context.as_fd();
        let result = resume::read_write(rw, is_cancelled, |part| match direction {
            Direction::Load => dio::read(context, part),
            Direction::Save => dio::write(context, part),
        });
        match result {
            Ok(rw) => Ok(Moved { done: rw.done, direct: rw.direct }),
            Err((errno, rw)) => Err(MoveError {
                errno,
                moved: Moved { done: rw.done, direct: rw.direct },
                align: (errno == Errno::INVAL && rw.align != 0).then_some(rw.align),
                not_lent: NotLent::from_number(rw.refusal).filter(|_| errno == Errno::BUSY),
            }),
        }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl AsFd for Attached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.context.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_buffer_gives_its_reason() {
        let buf = Shared::memfd(4096).expect("memfd");
        let exporter = "memfd".to_owned();
        for (number, why) in [
            (dio::REFUSED_EXPORTER, NotLent::Exporter),
            (dio::REFUSED_PAGES, NotLent::Pages),
            (dio::REFUSED_MAPPING, NotLent::Mapping),
            (dio::REFUSED_UNSYNCED, NotLent::Unsynced),
            (dio::REFUSED_UNFILLED, NotLent::Unfilled),
            (dio::REFUSED_POISONED, NotLent::Poisoned),
        ] {
            let error = not_attached(&buf, Errno::OPNOTSUPP, number);
            let errno = Errno::OPNOTSUPP;
            assert_eq!(error, LendError::NotLent { exporter: exporter.clone(), why, errno });
        }
        // An older module, a newer one, and an unrelated error.
        for (errno, number) in [(Errno::OPNOTSUPP, 0), (Errno::OPNOTSUPP, 99), (Errno::INVAL, 1)] {
            let error = not_attached(&buf, errno, number);
            assert_eq!(error, LendError::Attach { exporter: exporter.clone(), errno });
        }
    }
}
