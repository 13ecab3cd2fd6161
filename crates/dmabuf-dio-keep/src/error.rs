// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors, with hints on how to resolve them.

use std::io;
use std::path::PathBuf;

use dmabuf_dio::Hint;

/// `Result` with this library's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error. `Display` is one line that says what failed; [`hint`](Error::hint) is one line that
/// says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name cannot be used.
    #[error("{name:?} cannot be the name of something kept: {what}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Nothing is kept under this name.
    #[error("nothing is kept as {name}{}", searched(folders))]
    NotKept {
        /// The name.
        name: String,
        /// Where it was searched for.
        folders: Vec<PathBuf>,
    },
    /// The folder to keep files in cannot be used.
    #[error("{}: cannot keep files there: {what}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The source cannot be kept.
    #[error("{}: it cannot be kept: {what}", path.display())]
    Source {
        /// The source, or a file of it.
        path: PathBuf,
        /// Why not.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The source changed while it was loaded. Nothing new is kept.
    #[error("{}: it changed while it was loaded", path.display())]
    Changed {
        /// The source.
        path: PathBuf,
    },
    /// The tmpfs has too little room. Nothing new is kept.
    #[error("{}: the tmpfs has room for {free} bytes, and {wanted} are to be kept", folder.display())]
    NoRoom {
        /// The folder.
        folder: PathBuf,
        /// Bytes to keep.
        wanted: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A step in the folder failed. Nothing new is kept.
    #[error("{}: cannot {step}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What failed: `"open it"`, ...
        step: &'static str,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A load failed. Nothing new is kept.
    #[error(transparent)]
    Load(#[from] dmabuf_dio::Error),
    /// What a holder sent is not what holders send.
    #[error("{}: not an answer of a holder: {what}", socket.display())]
    Answer {
        /// The holder's socket.
        socket: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The process was not started by systemd with a socket, as a holder has to be.
    #[error("no socket was handed over: {what}")]
    NoSocket {
        /// What is missing.
        what: &'static str,
    },
}

fn searched(folders: &[PathBuf]) -> String {
    let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    if folders.is_empty() { String::new() } else { format!(" in {}", folders.join(", ")) }
}

impl Error {
    /// The error number that fits best, for C and Python.
    pub fn number(&self) -> i32 {
        match self {
            Self::NotKept { .. } => libc::ENOENT,
            Self::Io { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
            Self::Load(error) => error.number().raw(),
            Self::NoRoom { .. } => libc::ENOSPC,
            Self::Changed { .. } => libc::EBUSY,
            Self::Name { .. } | Self::Folder { .. } | Self::Source { .. } => libc::EINVAL,
            Self::Answer { .. } => libc::EPROTO,
            Self::NoSocket { .. } => libc::ENOTCONN,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Hint {
        match self {
            Self::Name { .. } => {
                "choose 1 to 255 bytes of UTF-8 without /, that begin neither with a dot nor with a hyphen"
                    .into()
            }
            Self::NotKept { .. } => {
                "keep it: dmabuf-dio keep NAME=SOURCE; dmabuf-dio keep lists what is kept; \
                 for a file of that name write ./keep:NAME"
                    .into()
            }
            Self::Folder { remedy, .. } | Self::Source { remedy, .. } => (*remedy).into(),
            Self::Changed { .. } => "keep it again when nothing writes it".into(),
            Self::NoRoom { .. } => {
                "remove what is kept there, enlarge the tmpfs (mount -o remount,size=), or name a \
                 folder on a larger one: --dir"
                    .into()
            }
            Self::Io { error, .. } => match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "run it as the owner of the folder, or name a folder of your own: --dir".into()
                }
                io::ErrorKind::NotFound => "check the path".into(),
                _ => "see dmesg".into(),
            },
            Self::Load(error) => error.hint(),
            Self::Answer { .. } => "name the socket of a holder: dmabuf-dio-keep@NAME.socket".into(),
            Self::NoSocket { .. } => {
                "start it by systemd: systemctl start dmabuf-dio-keep@NAME.socket".into()
            }
        }
    }
}
