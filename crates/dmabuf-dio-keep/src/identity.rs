// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tells one version of a file from another.

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

/// The version of a source. Equal identities mean equal bytes, as far as the source can tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Identity {
    /// A file of this machine. A write sets both times; a program can set back the first, and not the second.
    File {
        /// The device of its file system.
        device: u64,
        /// Its number there.
        inode: u64,
        /// Its length in bytes.
        length: u64,
        /// When it was written, in nanoseconds since 1970.
        modified: i64,
        /// When it or its attributes were changed, in nanoseconds since 1970.
        changed: i64,
    },
    /// What a store of objects calls this version, such as an `ETag`.
    Version {
        /// The version.
        version: String,
        /// Its length in bytes.
        length: u64,
    },
    /// Nothing tells this version from others: it is loaded anew each time.
    Unknown {
        /// Its length in bytes.
        length: u64,
    },
}

impl Identity {
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "the fields differ by architecture"
    )]
    pub(crate) fn of(stat: &Stat) -> Self {
        Self::File {
            device: stat.st_dev.into(),
            inode: stat.st_ino.into(),
            length: stat.st_size as u64,
            modified: nanoseconds(stat.st_mtime.into(), stat.st_mtime_nsec as u64),
            changed: nanoseconds(stat.st_ctime.into(), stat.st_ctime_nsec as u64),
        }
    }

    /// Length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::File { length, .. } | Self::Version { length, .. } | Self::Unknown { length } => {
                *length
            }
        }
    }
}

/// What tells the file or folder that was kept from one that somebody put in its place. Its change of
/// attributes does not count: a new name is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    inode: u64,
    length: u64,
    modified: i64,
}

impl Stamp {
    /// Whether it is the same folder. What is in it may have changed, and the times with it.
    pub(crate) fn is_folder_of(&self, stat: &Stat) -> bool {
        let is_folder = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
        is_folder && self.inode == Self::of(stat).inode
    }

    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "the fields differ by architecture"
    )]
    pub(crate) fn of(stat: &Stat) -> Self {
        let is_folder = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
        Self {
            inode: stat.st_ino.into(),
            length: if is_folder { 0 } else { stat.st_size as u64 },
            modified: nanoseconds(stat.st_mtime.into(), stat.st_mtime_nsec as u64),
        }
    }
}

/// A time as one number, which is enough until 2262.
fn nanoseconds(seconds: i64, nanoseconds: u64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds as i64)
}
