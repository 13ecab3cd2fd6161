// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of a stream, with hints on how to resolve them.

use std::path::PathBuf;

use dmabuf_dio::Errno;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error. `Display` is one line that says what failed; [`hint`](Error::hint) is one line that
/// says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of a buffer or a file.
    #[error(transparent)]
    Transfer(#[from] dmabuf_dio::Error),

    /// An operation of a stream's device failed.
    #[error("{device}: cannot {call}: {errno}")]
    Stream {
        /// Name of the device.
        device: String,
        /// The operation: `"attach a block"`, `"read sampling_frequency"`, ...
        call: String,
        /// The kernel's error number.
        #[source]
        errno: Errno,
    },

    /// The length of a sample file is not a multiple of the frame.
    #[error("{}: its {length} bytes are not a whole number of frames of {frame} bytes", path.display())]
    CutFrame {
        /// The file.
        path: PathBuf,
        /// Length of the file in bytes.
        length: u64,
        /// Bytes per frame.
        frame: u64,
    },

    /// A stream of samples did not end with a whole frame. Those before it were passed on.
    #[error("{name}: it ended within a frame: {excess} of {frame} bytes")]
    CutStream {
        /// Where the samples came from.
        name: String,
        /// Bytes of the frame that arrived.
        excess: u64,
        /// Bytes per frame.
        frame: u64,
    },

    /// A sender does not use the framing that was expected.
    #[error("{name}: the sender does not use the framing of dmabuf-dio")]
    NotFramed {
        /// Where the bytes came from.
        name: String,
    },

    /// A sender ended early. What arrived before was passed on.
    #[error("{name}: the sender ended early: {reason}")]
    Sender {
        /// Where the samples came from.
        name: String,
        /// What it said, or what is known.
        reason: String,
    },
}

impl Error {
    /// One line that says what to do.
    pub fn hint(&self) -> String {
        match self {
            Self::Transfer(dmabuf_dio::Error::NoMemory { .. }) => {
                "free memory, or choose fewer or smaller blocks".into()
            }
            Self::Transfer(error) => error.hint(),
            Self::Stream { errno, .. } => stream_hint(*errno).into(),
            Self::CutFrame { path, length, frame } => format!(
                "choose the channels that are in it, or cut the excess: truncate -s {} {}",
                length / frame * frame,
                path.display()
            ),
            Self::CutStream { .. } => {
                "check that the sender has the same channels, and that it was not interrupted"
                    .into()
            }
            Self::NotFramed { .. } => {
                "let it use the framing (capture --framed), or receive raw samples (receive --raw)"
                    .into()
            }
            Self::Sender { .. } => "look at the sender's messages".into(),
        }
    }

    /// The kernel's error number, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Transfer(error) => error.errno(),
            Self::Stream { errno, .. } => Some(*errno),
            Self::CutFrame { .. }
            | Self::CutStream { .. }
            | Self::NotFramed { .. }
            | Self::Sender { .. } => None,
        }
    }
}

/// The error kind follows from the error number; the error itself is the source.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Transfer(error) => error.into(),
            Error::Stream { errno, .. } => Self::new(Self::from(errno).kind(), error),
            Error::CutFrame { .. } | Error::CutStream { .. } | Error::NotFramed { .. } => {
                Self::new(std::io::ErrorKind::InvalidData, error)
            }
            Error::Sender { .. } => Self::new(std::io::ErrorKind::UnexpectedEof, error),
        }
    }
}

fn stream_hint(errno: Errno) -> &'static str {
    match errno.raw() {
        libc::EACCES => "run as root, or add a udev rule that gives this user the device",
        libc::EBUSY => "the device is in use by another program: stop that first",
        libc::EPERM | libc::ENOTTY => {
            "the device does not support dma-bufs (which needs Linux 6.11 and a driver with a DMA buffer)"
        }
        libc::ENODEV => "the device is gone, or was stopped",
        libc::EINVAL => {
            "the device does not support that: try other channels (fewer at once), another rate or \
             length, or set its trigger first"
        }
        libc::ENOMEM => "free memory, or choose smaller or fewer blocks",
        libc::EMFILE | libc::ENFILE => "allow more open files, two for each block: ulimit -n",
        libc::ETIMEDOUT => "find out why the other end no longer accepts data",
        libc::EOPNOTSUPP => "the device, or its buffer, is for the other direction",
        libc::ESHUTDOWN => "no host is connected: connect one and start again",
        libc::EPIPE | libc::ECONNRESET => "the other end has closed the connection: start it again",
        libc::ENOENT => "list what the device has: iio_info, or ls /sys/bus/iio/devices/*",
        libc::ENOSPC | libc::EFBIG | libc::EDQUOT => {
            "free space on the file system, or ask for less"
        }
        libc::EOVERFLOW => "choose more or larger blocks, or a faster sink",
        _ => "see dmesg for details",
    }
}
