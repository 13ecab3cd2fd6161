// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of both parsers, and their common checks.

use std::io;

use crate::format::Format;
use crate::malformed::{Malformed, short};
use crate::metadata::Metadata;
use crate::tensor::Tensor;

/// Most tensors in a file, and in a model.
pub(crate) const MAX_TENSORS: u64 = 1 << 20;
/// Most keys of metadata.
pub(crate) const MAX_KEYS: u64 = 1 << 16;

/// The content of a header.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Header {
    /// The format of the file.
    pub format: Format,
    /// Keys and values.
    pub metadata: Metadata,
    /// The tensors in the order of their bytes in the file. [`Tensor::file`] is 0.
    pub tensors: Vec<Tensor>,
}

/// Why a header cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The header is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Fails if two tensors have the same name.
pub(crate) fn check_names(tensors: &[Tensor]) -> Result<(), Malformed> {
    let names = tensors.iter().map(|tensor| tensor.name.as_str());
    check_unique("tensor", names.collect())
}

/// Fails if two names, of what `what` says, are equal.
pub(crate) fn check_unique(what: &'static str, mut names: Vec<&str>) -> Result<(), Malformed> {
    names.sort_unstable();
    match names.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(Malformed::Duplicate { what, name: short(two[0]) }),
        None => Ok(()),
    }
}
