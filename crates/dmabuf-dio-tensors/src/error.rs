// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors, with hints on how to resolve them.

use std::io;
use std::path::{Path, PathBuf};

use dmabuf_dio::Hint;

use crate::malformed::Malformed;
use crate::no_part::NoPart;

/// `Result` with this library's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error. `Display` is one line that says what failed; [`hint`](Error::hint) is one line that
/// says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be opened.
    #[error("{}: cannot open it: {source}", path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A header or an index cannot be read.
    #[error("{}: cannot read it: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The path names neither a regular file nor a folder.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A folder has no model.
    #[error("{}: the folder has no .safetensors, .gguf or .safetensors.index.json file", path.display())]
    NoModel {
        /// The folder.
        path: PathBuf,
        /// A file of a format that is not read.
        other: Option<String>,
    },
    /// Parts of a model in several files are missing.
    #[error("{}: of the {count} parts of the model these are missing: {}", shown(path), missing.join(", "))]
    MissingParts {
        /// The folder.
        path: PathBuf,
        /// Names of some of them.
        missing: Vec<String>,
        /// How many parts the model has.
        count: u32,
    },
    /// An index names files that do not exist.
    #[error("{}: it names files that are missing: {}", path.display(), missing.join(", "))]
    MissingFiles {
        /// The index.
        path: PathBuf,
        /// Names of some of them.
        missing: Vec<String>,
        /// A safetensors file in the folder that the index does not name.
        beside: Option<String>,
    },
    /// A folder has several models.
    #[error("{}: several models: {}", path.display(), found.join(", "))]
    Ambiguous {
        /// The folder.
        path: PathBuf,
        /// Names of some of them.
        found: Vec<String>,
    },
    /// A content names other files, and was opened without its folder.
    #[error("{}: it names other files, which are in its folder", path.display())]
    NeedsFolder {
        /// The content.
        path: PathBuf,
    },
    /// A header or an index is malformed. Nothing was loaded.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        reason: Malformed,
    },
    /// The model has no tensor of this name. Nothing was loaded.
    #[error("the model has no tensor {name:?}")]
    NoTensor {
        /// The name.
        name: String,
    },
    /// The model has no tensor of this number. Nothing was loaded.
    #[error("the model has {count} tensors, and none of number {number}")]
    NoNumber {
        /// The number.
        number: usize,
        /// How many tensors there are.
        count: usize,
    },
    /// A tensor does not have this part. Nothing was loaded.
    #[error("{name:?}, with the shape {shape:?}: {reason}")]
    NoPart {
        /// The tensor.
        name: String,
        /// Its shape.
        shape: Vec<u64>,
        /// The reason.
        #[source]
        reason: NoPart,
    },
    /// There is no such rank.
    #[error("rank {rank} of {world} does not exist")]
    NoShard {
        /// The rank.
        rank: u32,
        /// How many there are.
        world: u32,
    },
    /// A load failed. Its buffers are freed.
    #[error("{}", load_text(path, source))]
    Load {
        /// The file.
        path: PathBuf,
        /// The error of the transfer.
        source: dmabuf_dio::Error,
    },
    /// Tensors cannot be saved. Nothing was written.
    #[error("{}: cannot be saved: {reason}", path.display())]
    NotSaved {
        /// The file that was to be written.
        path: PathBuf,
        /// What is wrong with them.
        #[source]
        reason: Malformed,
    },
    /// A save failed. What it wrote is removed.
    #[error("{}", save_text(.0))]
    Save(#[source] dmabuf_dio::Error),
    /// A loaded buffer cannot be read.
    #[error("cannot read the buffer: {0}")]
    Buffer(#[source] dmabuf_dio::Error),
}

impl Error {
    /// A remedy for the error.
    pub fn hint(&self) -> Hint {
        match self {
            Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the path".into()
            }
            Self::Open { source, .. } if source.raw_os_error() == Some(EMFILE) => {
                "allow more open files: ulimit -n".into()
            }
            Self::Open { .. } => "check the path and its permissions: ls -l".into(),
            Self::Read { .. } => "see dmesg for errors of the storage device".into(),
            Self::NotAFile { .. } => "name a .safetensors, .gguf or index file, or a folder".into(),
            Self::NoModel { other: Some(name), .. } => format!(
                "download the model as safetensors or GGUF, or convert it: the format of {name} is not read"
            )
            .into(),
            Self::MissingParts { .. } => "download them into the same folder".into(),
            Self::MissingFiles { beside: Some(name), .. } => format!(
                "if {name} beside it is the whole model, name that file or remove the index; otherwise download \
                 the missing files"
            )
            .into(),
            Self::MissingFiles { .. } => "download them into the folder of the index".into(),
            Self::NoModel { .. } => "name the folder that has the weights, or a file".into(),
            Self::Ambiguous { .. } => {
                "name the file instead of the folder; put a model of several files into a folder of its own".into()
            }
            Self::NeedsFolder { .. } => "open it with the folder that it is in, which has the other files".into(),
            Self::Malformed { reason: Malformed::NotAModel { found }, .. } => found.hint().into(),
            Self::Malformed { reason, .. } => hint_of(reason).into(),
            Self::NoTensor { .. } => Hint::TensorNames,
            Self::NoNumber { .. } => "number tensors from 0, in the order of the files".into(),
            Self::NoPart { reason, .. } => part_hint(reason).into(),
            Self::NoShard { .. } => "number ranks from 0".into(),
            Self::NotSaved { reason, .. } => save_hint(reason).into(),
            Self::Load { source, .. } | Self::Buffer(source) | Self::Save(source) => source.hint(),
        }
    }
}

/// The library names a file that it got as a descriptor otherwise, and a content by its name.
fn load_text(path: &Path, source: &dmabuf_dio::Error) -> String {
    let (path, text) = (path.display().to_string(), source.to_string());
    let is_named = text.strip_prefix(&path).is_some_and(|rest| rest.starts_with(':'));
    if is_named { text } else { format!("{path}: {text}") }
}

fn save_text(error: &dmabuf_dio::Error) -> String {
    let kept = if error.keeps_old_file() { "; the path is as it was before" } else { "" };
    format!("{error}{kept}")
}

/// A folder for a message: the working directory has no name in a path.
fn shown(folder: &Path) -> std::path::Display<'_> {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.display()
}

fn part_hint(reason: &NoPart) -> &'static str {
    match reason {
        NoPart::Dimension { .. } => "count dimensions from 0, the outermost first",
        NoPart::Range { .. } => "pass ranges that ascend, within the tensor",
        NoPart::Blocks { .. } => "cut between blocks, or in another dimension",
        NoPart::Uneven { .. } => "divide another dimension, or choose the ranges of each rank",
        NoPart::Sections { .. } => "pass the sizes of all sections, in their order",
    }
}

const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();

fn save_hint(reason: &Malformed) -> &'static str {
    match reason {
        Malformed::Duplicate { .. } | Malformed::Reserved { .. } => "choose another name",
        Malformed::TooLarge { .. } => "save the tensors to several files",
        Malformed::Unknown { .. } => "save it as bytes: U8",
        _ => "pass the bytes that type and shape require",
    }
}

fn hint_of(reason: &Malformed) -> &'static str {
    match reason {
        Malformed::Truncated { .. } | Malformed::OutOfFile { .. } | Malformed::Rest { .. } => {
            "download the file again: it is incomplete or damaged"
        }
        Malformed::Version { .. } => "download the model again, or convert it to GGUF version 3",
        Malformed::Split(_) => {
            "name the first file (-00001-of-...), and keep all parts in the same folder under their own names"
        }
        Malformed::NotThere { .. } | Malformed::NoWeightMap | Malformed::Outside { .. } => {
            "download the model again: index and files do not match"
        }
        _ => "the file was not written as its format requires: do not use it",
    }
}
