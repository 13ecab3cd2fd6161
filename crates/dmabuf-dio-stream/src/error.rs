// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of a stream, with hints on how to resolve them.

use std::path::PathBuf;

use dmabuf_dio::{Errno, Hint};

use crate::iio::available::{Available, Left};

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

    /// A stream of samples did not end with a whole frame. Whole frames before the end were passed
    /// on.
    #[error("{name}: it ended within a frame, after {excess} of {frame} bytes")]
    CutStream {
        /// The origin of the samples.
        name: String,
        /// Bytes of the frame that arrived.
        excess: u64,
        /// Bytes per frame.
        frame: u64,
    },

    /// A setting was refused before anything was changed.
    #[error("{device}: cannot set {attribute}: {reason}")]
    Setting {
        /// Name of the device or trigger.
        device: String,
        /// The attribute as requested, or its name in sysfs.
        attribute: String,
        /// Why not.
        reason: Refused,
    },

    /// The driver refused one of several settings. The others were restored, except for `left`.
    #[error("{device}: cannot set {attribute} to {value}: {errno}")]
    NotSet {
        /// Name of the device or trigger.
        device: String,
        /// Name of the attribute, in sysfs.
        attribute: String,
        /// The refused value.
        value: String,
        /// The kernel's error number.
        #[source]
        errno: Errno,
        /// The settings that could not be restored.
        left: Vec<Left>,
    },

    /// Settings could not be put back.
    #[error("cannot restore {}", list(left))]
    NotPutBack {
        /// These settings.
        left: Vec<Left>,
    },

    /// A capture device does not offer the requested settings, or no frames that a stream can
    /// transfer.
    #[error("{device}: {what}")]
    Video {
        /// Its node.
        device: String,
        /// The unsupported value or operation.
        what: String,
        /// What to do.
        hint: String,
    },

    /// There is no such trigger, the device does not use triggers, or it needs one and has none.
    #[error("{device}: {}", trigger(wanted.as_deref(), available.is_some()))]
    Trigger {
        /// Name of the device.
        device: String,
        /// The requested trigger.
        wanted: Option<String>,
        /// Names of all triggers; `None` if the device does not use them.
        available: Option<Vec<String>>,
    },
}

/// Why an attribute is not set.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// There is no such attribute; these are similar.
    #[error("there is no such attribute")]
    Unknown(Vec<String>),
    /// Several attributes may be meant.
    #[error("the name can mean {}", .0.join(" or "))]
    Ambiguous(Vec<String>),
    /// The attribute can only be read.
    #[error("it can only be read")]
    ReadOnly,
    /// The attribute cannot be read.
    #[error("it cannot be read, so it could not be restored")]
    WriteOnly,
    /// The driver does not offer the value.
    #[error("the device does not offer {value}")]
    NotOffered {
        /// The requested value.
        value: String,
        /// The values that it offers.
        available: Available,
    },
    /// The attribute is to have two values.
    #[error("it is given twice")]
    Twice,
}

impl Refused {
    fn hint(&self) -> String {
        match self {
            Self::Unknown(names) if names.is_empty() => {
                "list what the device has: dmabuf-dio devices NAME".into()
            }
            Self::Unknown(names) => format!("choose from these: {}", names.join(", ")),
            Self::Ambiguous(_) => "name the direction, too: in_voltage0.hardwaregain".into(),
            Self::ReadOnly => "leave it out".into(),
            Self::WriteOnly => "set it beforehand, with iio_attr or in /sys/bus/iio/devices".into(),
            Self::NotOffered { available, .. } => format!(
                "choose from these: {available}; if another setting changes them, set that one first"
            ),
            Self::Twice => "choose one of the values".into(),
        }
    }
}

/// The settings that were left, and the values that they should have.
fn list(left: &[Left]) -> String {
    let one = |left: &Left| {
        let Left { device, attribute, before, value } = left;
        format!("{attribute} of {device} to {before}: it is {value}")
    };
    left.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn trigger(wanted: Option<&str>, takes: bool) -> String {
    match wanted {
        Some(wanted) if takes => format!("there is no trigger {wanted}"),
        Some(wanted) => {
            format!("cannot use the trigger {wanted}: the device does not use triggers")
        }
        None => "it captures only with a trigger, and none is set".into(),
    }
}

impl Error {
    /// A remedy for the error.
    pub fn hint(&self) -> Hint {
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
            )
            .into(),
            Self::CutStream { .. } => {
                "check that the sender has the same channels, and that it was not interrupted"
                    .into()
            }
            Self::Setting { reason, .. } => reason.hint().into(),
            Self::NotSet { errno, left, .. } if left.is_empty() => {
                format!("all settings are as before; {}", setting_hint(*errno)).into()
            }
            Self::NotSet { left, .. } => format!("not restored: {}", list(left)).into(),
            Self::NotPutBack { .. } => "set it with iio_attr, or in /sys/bus/iio/devices".into(),
            Self::Video { hint, .. } => hint.clone().into(),
            Self::Trigger { available: None, .. } => "leave it out".into(),
            Self::Trigger { available: Some(names), .. } if names.is_empty() => {
                "there is no trigger: load a driver, such as iio-trig-hrtimer or iio-trig-sysfs, \
                 and create one"
                    .into()
            }
            Self::Trigger { available: Some(names), .. } => {
                format!("choose from these: {}", names.join(", ")).into()
            }
        }
    }

    /// The kernel's error number, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Transfer(error) => error.errno(),
            Self::Stream { errno, .. } | Self::NotSet { errno, .. } => Some(*errno),
            Self::CutFrame { .. }
            | Self::CutStream { .. }
            | Self::Setting { .. }
            | Self::NotPutBack { .. }
            | Self::Video { .. }
            | Self::Trigger { .. } => None,
        }
    }
}

/// The error kind follows from the error number; the error itself is the source.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Transfer(error) => error.into(),
            Error::CutFrame { .. } | Error::CutStream { .. } => {
                Self::new(std::io::ErrorKind::InvalidData, error)
            }
            Error::Stream { errno, .. } | Error::NotSet { errno, .. } => {
                Self::new(Self::from(errno).kind(), error)
            }
            Error::Setting { .. } | Error::Video { .. } | Error::Trigger { .. } => {
                Self::new(std::io::ErrorKind::InvalidInput, error)
            }
            Error::NotPutBack { .. } => Self::other(error),
        }
    }
}

fn setting_hint(errno: Errno) -> &'static str {
    match errno.raw() {
        libc::EACCES | libc::EPERM => {
            "run as root, or add a udev rule that gives this user access to the attribute"
        }
        libc::EBUSY => "the device is in use: stop its stream first",
        _ => "choose another value, or first set what it depends on",
    }
}

fn stream_hint(errno: Errno) -> &'static str {
    match errno.raw() {
        libc::EACCES => "run as root, or add a udev rule that gives this user access to the device",
        libc::EBUSY => "the device is in use by another program: stop that program first",
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
            "free space on the file system, or request less"
        }
        libc::EEXIST => "it was made meanwhile, and is not replaced: choose another name",
        libc::ENOBUFS => "release blocks, or choose more of them",
        libc::EOVERFLOW => "choose more or larger blocks, or a faster sink",
        _ => "see dmesg for details",
    }
}

/// The error of a failed call.
pub(crate) fn failed(who: &str, call: impl Into<String>, errno: Errno) -> Error {
    Error::Stream { device: who.into(), call: call.into(), errno }
}

/// For `map_err` on calls of rustix.
pub(crate) fn from_os(errno: rustix::io::Errno) -> Errno {
    Errno::from_raw(errno.raw_os_error())
}
