// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers between the file and buffers, by system calls.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dmabuf_dio::Direction;
use dmabuf_dio_sys::dmabuf::Access;
use rustix::fs::SeekFrom;
use rustix::io::Errno as Os;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::buffer::mapping::Mapping;
use crate::buffer::{Buffer, BufferKind};
use crate::measure::outcome::{Stop, Trouble, repeat};

const PIPE_MAX_SIZE: &str = "/proc/sys/fs/pipe-max-size";

/// The method of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TransferMethod {
    /// `pread` or `pwrite` on a mapping of the buffer.
    ReadWrite,
    Sendfile,
    /// Through a pipe of the maximum size.
    Splice,
    CopyFileRange,
}

impl TransferMethod {
    /// Its name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "R/W",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::CopyFileRange => "c_f_r",
        }
    }

    /// Its name in results.
    pub(crate) fn call_name(self) -> &'static str {
        if self == Self::CopyFileRange { "copy_file_range" } else { self.name() }
    }

    fn call(self, direction: Direction) -> &'static str {
        match (self, direction) {
            (Self::ReadWrite, Direction::Load) => "pread",
            (Self::ReadWrite, Direction::Save) => "pwrite",
            (Self::Sendfile, _) => "sendfile",
            (Self::Splice, _) => "splice",
            (Self::CopyFileRange, _) => "copy_file_range",
        }
    }
}

/// The size of the pipe of `splice`.
pub(crate) fn pipe_size() -> usize {
    let text = std::fs::read_to_string(PIPE_MAX_SIZE).unwrap_or_default();
    text.trim().parse().unwrap_or(1 << 20)
}

/// A file descriptor and an offset in it.
#[derive(Clone, Copy, Debug)]
struct End<'a> {
    fd: BorrowedFd<'a>,
    at: u64,
}

/// Transfers by one method.
#[derive(Debug)]
pub(crate) struct Mover {
    method: TransferMethod,
    direction: Direction,
    pipe: Option<(OwnedFd, OwnedFd)>,
    pipe_size: usize,
}

impl Mover {
    pub(crate) fn new(method: TransferMethod, direction: Direction) -> Result<Self, Trouble> {
        let mut mover = Self { method, direction, pipe: None, pipe_size: pipe_size() };
        if method == TransferMethod::Splice {
            let pipe =
                pipe_with(PipeFlags::CLOEXEC).map_err(|errno| Trouble::failed("pipe2", errno))?;
            mover.pipe_size = fcntl_setpipe_size(&pipe.0, mover.pipe_size)
                .map_err(|errno| Trouble::failed("F_SETPIPE_SZ", errno))?;
            mover.pipe = Some(pipe);
        }
        Ok(mover)
    }

    /// Transfers between the file, from its start, and all buffers. Returns the mappings that were
    /// used.
    pub(crate) fn run(
        &self,
        file: &File,
        kind: BufferKind,
        buffers: &[Buffer],
    ) -> Result<Vec<Mapping>, Trouble> {
        let mut mappings = Vec::new();
        let mut at = 0;
        for buffer in buffers {
            let result = if self.method == TransferMethod::ReadWrite {
                let mut mapping = buffer.map()?;
                let result = self.through_mapping(file, at, buffer, &mut mapping)?;
                mappings.push(mapping);
                result
            } else {
                let ends = [End { fd: file.as_fd(), at }, End { fd: buffer.target(), at: 0 }];
                match (self.direction, ends) {
                    (Direction::Load, [from, to]) | (Direction::Save, [to, from]) => {
                        self.between(from, to, buffer.len())
                    }
                }
            };
            result.map_err(|stop| {
                let stop = Stop { done: at + stop.done, ..stop };
                self.trouble(kind, &stop, buffers)
            })?;
            at += buffer.len();
        }
        if self.direction == Direction::Save {
            rustix::fs::fdatasync(file).map_err(|errno| Trouble::failed("fdatasync", errno))?;
        }
        Ok(mappings)
    }

    /// Transfers between the file and a mapping of the buffer.
    pub(crate) fn run_mapped(
        &self,
        file: &File,
        kind: BufferKind,
        buffer: &Buffer,
        mapping: &mut Mapping,
    ) -> Result<(), Trouble> {
        let result = self.through_mapping(file, 0, buffer, mapping)?;
        result.map_err(|stop| self.trouble(kind, &stop, std::slice::from_ref(buffer)))
    }

    fn through_mapping(
        &self,
        file: &File,
        at: u64,
        buffer: &Buffer,
        mapping: &mut Mapping,
    ) -> Result<Result<(), Stop>, Trouble> {
        let access = match self.direction {
            Direction::Load => Access::Write,
            Direction::Save => Access::Read,
        };
        buffer.begin(access)?;
        // SAFETY: the buffer is this program's own and no other mapping of it is in use; a memfd
        // is sealed against shrinking.
        let bytes = unsafe { mapping.bytes() };
        let result = repeat(buffer.len(), |done| {
            let (rest, at) = (&mut bytes[done as usize..], at + done);
            match self.direction {
                Direction::Load => rustix::io::pread(file, rest, at),
                Direction::Save => rustix::io::pwrite(file, rest, at),
            }
        });
        buffer.end(access)?;
        Ok(result)
    }

    fn between(&self, from: End<'_>, to: End<'_>, len: u64) -> Result<(), Stop> {
        if self.method == TransferMethod::Sendfile {
            // It takes the place in its target from the descriptor.
            rustix::fs::seek(to.fd, SeekFrom::Start(to.at))
                .map_err(|errno| Stop { done: 0, errno: Some(errno) })?;
        }
        repeat(len, |done| {
            let (mut from_at, mut to_at) = (from.at + done, to.at + done);
            let rest = (len - done) as usize;
            match (self.method, &self.pipe) {
                (TransferMethod::Sendfile, _) => {
                    rustix::fs::sendfile(to.fd, from.fd, Some(&mut from_at), rest)
                }
                (TransferMethod::Splice, Some((read_end, write_end))) => {
                    let (flags, rest) = (SpliceFlags::MOVE, rest.min(self.pipe_size));
                    let in_pipe =
                        splice(from.fd, Some(&mut from_at), write_end, None, rest, flags)?;
                    repeat(in_pipe as u64, |out| {
                        let left = in_pipe - out as usize;
                        splice(read_end, None, to.fd, Some(&mut to_at), left, flags)
                    })
                    .map_err(|stop| stop.errno.unwrap_or(Os::PIPE))?;
                    Ok(in_pipe)
                }
                _ => rustix::fs::copy_file_range(
                    from.fd,
                    Some(&mut from_at),
                    to.fd,
                    Some(&mut to_at),
                    rest,
                ),
            }
        })
    }

    /// Why a transfer ended early. An unsupported transfer is rejected before any data is transferred.
    fn trouble(&self, kind: BufferKind, stop: &Stop, buffers: &[Buffer]) -> Trouble {
        let call = self.method.call(self.direction);
        let Some(errno) = stop.errno else {
            return Trouble::short(call, stop.done, buffers.iter().map(Buffer::len).sum());
        };
        if self.method != TransferMethod::CopyFileRange || stop.done > 0 {
            return Trouble::failed(call, errno);
        }
        let preposition = match self.direction {
            Direction::Load => "to",
            Direction::Save => "from",
        };
        let why = match (errno, kind.moves_dmabuf()) {
            (Os::INVAL | Os::XDEV, true) => "this kernel lacks it; see kernel/series",
            (Os::OPNOTSUPP, true) => "the exporter does not lend its pages",
            (Os::INVAL | Os::XDEV | Os::OPNOTSUPP, false) => {
                "not between file systems; kernel/series/measurement allows it"
            }
            (Os::NOSYS | Os::PERM, _) => "the call is forbidden or missing here",
            _ => return Trouble::failed(call, errno),
        };
        let what = if kind.moves_dmabuf() { "a dma-buf" } else { "a memfd" };
        Trouble::unavailable(&format!("{call} {preposition} {what}"), errno, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Maker;
    use crate::disk::{DiskFile, IoMode};
    use crate::pattern::Pattern;

    const LEN: u64 = 3 << 20;

    fn memfds() -> Vec<Buffer> {
        let maker = Maker::new(BufferKind::Memfd).expect("memfds");
        (0..2).map(|_| maker.make(LEN).expect("a memfd")).collect()
    }

    #[test]
    fn each_method_moves_bytes_to_their_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = DiskFile::create(folder.path(), 2 * LEN).expect("a file");
        let file = disk.open(IoMode::Buffer).expect("open");
        for (number, method) in
            [TransferMethod::ReadWrite, TransferMethod::Sendfile, TransferMethod::Splice]
                .into_iter()
                .enumerate()
        {
            let [read, written] = [0, 1].map(|n| Pattern::new(2 * number as u64 + n));
            disk.write(&read).expect("written");
            let mover = Mover::new(method, Direction::Load).expect("a mover");
            let buffers = memfds();
            mover.run(file, BufferKind::Memfd, &buffers).expect("read");
            for (buffer, at) in buffers.iter().zip([0, LEN]) {
                assert_eq!(buffer.check(read, at), Ok(Ok(())), "{method:?}");
                buffer.fill(written, at).expect("filled");
            }
            let mover = Mover::new(method, Direction::Save).expect("a mover");
            mover.run(file, BufferKind::Memfd, &buffers).expect("written");
            assert_eq!(disk.check(written, 2 * LEN), Ok(Ok(())), "{method:?}");
        }
    }

    #[test]
    fn short_file_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = DiskFile::create(folder.path(), LEN).expect("a file");
        disk.write(&Pattern::new(0)).expect("written");
        let mover = Mover::new(TransferMethod::Sendfile, Direction::Load).expect("a mover");
        let trouble = mover
            .run(disk.open(IoMode::Buffer).expect("open"), BufferKind::Memfd, &memfds())
            .expect_err("too short");
        assert_eq!(trouble, Trouble::short("sendfile", LEN, 2 * LEN));
    }

    #[test]
    fn missing_kernel_feature_is_unavailable_not_failed() {
        use crate::measure::outcome::Status;
        let mover = Mover::new(TransferMethod::CopyFileRange, Direction::Load).expect("a mover");
        let status =
            |kind, done, errno| mover.trouble(kind, &Stop { done, errno: Some(errno) }, &[]).status;
        assert_eq!(status(BufferKind::DmaBuf, 0, Os::INVAL), Status::Unavailable);
        assert_eq!(status(BufferKind::UdmabufMemfd, 0, Os::XDEV), Status::Unavailable);
        assert_eq!(status(BufferKind::DmaBuf, 4096, Os::INVAL), Status::Failed);
        assert_eq!(status(BufferKind::DmaBuf, 0, Os::IO), Status::Failed);
    }
}
