// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error number of an error, for interfaces that have nothing else.

use std::io::ErrorKind;

use super::Error;
use crate::errno::Errno;

impl Error {
    /// An error number for every error, for interfaces that have nothing else (the C library, `OSError` of
    /// Python):
    ///
    /// | number | error |
    /// |---|---|
    /// | `ECANCELED` | cancelled |
    /// | `EOPNOTSUPP` | no backend, or not the requested one; no dma-buf. Not the number of the first refusal, which would read like one of the file |
    /// | `EINPROGRESS` | requests are still in flight, and the memory may change |
    /// | `ENODATA` | the file is empty, or ends before the range does, as may what is saved |
    /// | `EBADF` | the descriptor does not allow the transfer |
    /// | `EACCES` | the buffer cannot be written |
    /// | `ENOENT` | a dangling link, or no `/proc` |
    /// | `EOVERFLOW`, `ERANGE` | the range overflows; it exceeds the buffer |
    /// | `ENOMEM`, `EBUSY` | too little memory; the buffer is not synchronised with a device |
    /// | the kernel's | where there is one: [`errno`](Self::errno) |
    /// | `EINVAL` | everything else |
    pub fn number(&self) -> Errno {
        let number = match self {
            Self::Cancelled { .. } => libc::ECANCELED,
            Self::Unavailable { .. } | Self::NotADmaBuf { .. } => libc::EOPNOTSUPP,
            Self::InFlight { .. } => libc::EINPROGRESS,
            Self::EmptyFile { .. } | Self::ShortFile { .. } => libc::ENODATA,
            Self::Source { error, .. } if error.kind() == ErrorKind::UnexpectedEof => libc::ENODATA,
            Self::Access { .. } => libc::EBADF,
            Self::ReadOnlyBuffer => libc::EACCES,
            Self::DanglingLink { .. } => libc::ENOENT,
            Self::RangeOverflow { .. } => libc::EOVERFLOW,
            Self::RangeBeyondBuffer { .. } => libc::ERANGE,
            Self::Piece { error, .. } => return error.number(),
            error => return error.errno().unwrap_or(Errno::INVAL),
        };
        Errno::from_raw(number)
    }

    /// The kernel's error number, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open { errno, .. }
            | Self::Transfer { errno, .. }
            | Self::Content { errno, .. }
            | Self::InFlight { errno, .. }
            | Self::Buffer { errno, .. }
            | Self::Thread { errno }
            | Self::Heap { errno, .. }
            | Self::Lock { errno, .. }
            | Self::OldFileGone { errno, .. }
            | Self::Target { errno, .. } => Some(*errno),
            Self::NoMemory { .. } | Self::NodeMemory { .. } => Some(Errno::from_raw(libc::ENOMEM)),
            Self::NoProc => Some(Errno::from_raw(libc::ENOENT)),
            Self::Unsynced { .. } => Some(Errno::from_raw(libc::EBUSY)),
            Self::Piece { error, .. } => error.errno(),
            Self::Source { error, .. } => error.raw_os_error().map(Errno::from_raw),
            Self::Unavailable { refusals, .. } => refusals.first().and_then(|first| first.errno),
            _ => None,
        }
    }
}

/// The error kind follows from the error number; the error itself is the source.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.errno() {
            Some(errno) => Self::from(errno).kind(),
            None => match error {
                Error::ShortFile { .. } => ErrorKind::UnexpectedEof,
                Error::Source { error: ref source, .. } => source.kind(),
                Error::Cancelled { .. } => ErrorKind::Interrupted,
                Error::Unavailable { .. } => ErrorKind::Unsupported,
                _ => ErrorKind::InvalidInput,
            },
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::direction::Direction;
    use crate::kind::Kind;

    #[test]
    fn every_error_has_a_number() {
        let path = || PathBuf::from("f");
        let source = |error| Error::Source { path: path(), offset: 1, length: 2, error };
        let nested = Error::RangeOverflow { offset: 1, length: u64::MAX };
        let (direction, errno) = (Direction::Load, Errno::from_raw(libc::EIO));
        for (error, number) in [
            (Error::ReadOnlyBuffer, libc::EACCES),
            (Error::NoDescriptor, libc::EINVAL),
            (Error::NotADmaBuf { kind: Kind::Memfd, why: None }, libc::EOPNOTSUPP),
            (
                Error::Unavailable { asked: None, kind: None, refusals: Vec::new() },
                libc::EOPNOTSUPP,
            ),
            (Error::EmptyFile { path: path() }, libc::ENODATA),
            (source(ErrorKind::UnexpectedEof.into()), libc::ENODATA),
            (source(std::io::Error::from_raw_os_error(libc::EIO)), libc::EIO),
            (source(std::io::Error::other("no")), libc::EINVAL),
            (
                Error::Content {
                    name: path(),
                    offset: 1,
                    length: 2,
                    what: "no".into(),
                    errno: Errno::from_raw(libc::ESTALE),
                    remedy: "do".into(),
                },
                libc::ESTALE,
            ),
            (Error::RangeBeyondBuffer { offset: 0, length: 9, buffer: 1 }, libc::ERANGE),
            (Error::InFlight { path: path(), direction, errno }, libc::EINPROGRESS),
            (Error::NoMemory { wanted: 1, available: None, reserve: None }, libc::ENOMEM),
            (Error::Piece { number: 1, error: Box::new(nested) }, libc::EOVERFLOW),
        ] {
            assert_eq!(error.number().raw(), number, "{error}");
        }
    }
}
