// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module: what it lends, and its calls.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use dmabuf_dio_sys::dio::{self, Attach, Info, Load, ReadWrite};
use rustix::io::Errno as Os;

use super::error::{LendError, NotLent};
use super::resume;
use crate::buf::DmaBuf;
use crate::direction::Direction;
use crate::errno::Errno;
use crate::file::extent::Extent;

/// An open file of the module's device. Once it is cancelled it is of no use.
#[derive(Debug)]
pub(crate) struct Context {
    fd: OwnedFd,
    info: Info,
}

impl Context {
    pub(crate) fn open() -> Result<Self, LendError> {
        let fd = dio::open().map_err(|errno| LendError::NoModule { errno: errno.into() })?;
        let info = dio::info(fd.as_fd())
            .map_err(|errno| LendError::OtherModule { errno: errno.into() })?;
        Ok(Self { fd, info })
    }

    /// Opens one of a module that can lend pages to `io_uring`.
    pub(crate) fn with_slots() -> Result<Self, LendError> {
        let context = Self::open()?;
        if context.info.features & dio::FEATURE_SLOTS == 0 {
            return Err(LendError::NoSlots);
        }
        Ok(context)
    }

    /// The module's defaults and limits.
    pub(crate) fn info(&self) -> &Info {
        &self.info
    }

    /// Attaches a buffer; the module keeps a reference of its own to it.
    pub(crate) fn attach(self, buf: &DmaBuf) -> Result<Attached, LendError> {
        let mut attach = Attach::default();
        let attached =
            rustix::io::retry_on_intr(|| dio::attach(self.as_fd(), buf.as_fd(), &mut attach));
        match attached {
            Ok(()) => Ok(Attached { context: self, segments: attach.segments }),
            Err(errno) => Err(not_attached(buf, errno, attach.refusal)),
        }
    }

    /// Bytes that were moved through it so far.
    pub(crate) fn moved(&self) -> Option<u64> {
        let path = format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd());
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix("moved:")?.trim().parse().ok())
    }

    /// Ends the calls that run, and every later one, with `ECANCELED`.
    pub(crate) fn cancel(&self) {
        let _ = dio::cancel(self.as_fd());
    }

    /// Allocates a dma-buf and reads a file into it, whatever signals come meanwhile.
    pub(crate) fn load(
        &self,
        request: &mut Load,
        is_cancelled: impl Fn() -> bool,
    ) -> rustix::io::Result<OwnedFd> {
        resume::load(request, is_cancelled, |request| dio::load(self.as_fd(), request))
    }
}

impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn not_attached(buf: &DmaBuf, errno: Os, refusal: u32) -> LendError {
    let exporter = buf.exporter().unwrap_or_else(|| "unknown".into());
    match NotLent::from_number(refusal) {
        Some(why) if errno == Os::OPNOTSUPP => {
            LendError::NotLent { exporter, why, errno: errno.into() }
        }
        _ => LendError::Attach { exporter, errno: errno.into() },
    }
}

/// A dma-buf whose pages the kernel module borrows, for as long as this lives. Needs the module; see
/// docs/design.md for whose pages it borrows.
#[derive(Debug)]
pub struct Attached {
    context: Context,
    segments: u32,
}

/// What a call has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Bytes, from the start of the range without a gap.
    pub done: u64,
    /// How many of them were asked for with `O_DIRECT`.
    pub direct: u64,
}

/// Why a call has not moved all it was to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{errno} after {} bytes", moved.done)]
#[non_exhaustive]
pub struct MoveError {
    /// As the kernel gave it.
    pub errno: Errno,
    /// What was moved before.
    pub moved: Moved,
    /// With `EINVAL` for want of alignment: what the offsets in file and buffer have to be
    /// congruent modulo.
    pub align: Option<u32>,
    /// With `EBUSY`: why the module no longer lends the buffer. A device may not see what was moved.
    pub not_lent: Option<NotLent>,
}

impl Attached {
    /// Attaches `buf`, which may be closed afterwards.
    ///
    /// # Errors
    ///
    /// [`LendError::NoModule`]; [`LendError::OtherModule`]; [`LendError::NotLent`];
    /// [`LendError::Attach`].
    pub fn new(buf: &DmaBuf) -> Result<Self, LendError> {
        Context::open()?.attach(buf)
    }

    /// Physically contiguous pieces of the buffer.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Moves `len` bytes between the file, from `position` on, and the buffer, from `offset` on: in
    /// it to load, out of it to save. Blocks until that is done, whatever signals come meanwhile.
    /// Reading ends early at the end of the file, and only there.
    ///
    /// # Errors
    ///
    /// [`MoveError`], with `EINVAL`, `ERANGE`, `EBADF`, or what the file system gave.
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

    /// The same, in requests of so many bytes, of which so many are in flight (0: the module's
    /// defaults), until it is called off.
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
                errno: errno.into(),
                moved: Moved { done: rw.done, direct: rw.direct },
                align: (errno == Os::INVAL && rw.align != 0).then_some(rw.align),
                not_lent: NotLent::from_number(rw.refusal).filter(|_| errno == Os::BUSY),
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
    fn a_buffer_that_is_not_lent_says_why() {
        let buf = DmaBuf::memfd(4096).expect("memfd");
        let exporter = "memfd".to_owned();
        for (number, why) in [
            (dio::REFUSED_EXPORTER, NotLent::Exporter),
            (dio::REFUSED_PAGES, NotLent::Pages),
            (dio::REFUSED_MAPPING, NotLent::Mapping),
            (dio::REFUSED_UNSYNCED, NotLent::Unsynced),
        ] {
            let error = not_attached(&buf, Os::OPNOTSUPP, number);
            let errno = Os::OPNOTSUPP.into();
            assert_eq!(error, LendError::NotLent { exporter: exporter.clone(), why, errno });
        }
        // A module of before, or one from later, or quite another error.
        for (errno, number) in [(Os::OPNOTSUPP, 0), (Os::OPNOTSUPP, 99), (Os::INVAL, 1)] {
            let error = not_attached(&buf, errno, number);
            let errno = errno.into();
            assert_eq!(error, LendError::Attach { exporter: exporter.clone(), errno });
        }
    }
}
