// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parsers of headers alone, for headers that come from elsewhere than a local file.
//!
//! They read the header and nothing behind it, and trust nothing in it. Time is proportional to the
//! bytes of the header. Memory is too: at most about 8 bytes for each byte of it.
//!
//! | limit | |
//! |---|---|
//! | header of safetensors | 100,000,000 bytes, as in the `safetensors` crate |
//! | header of GGUF | 128 MiB |
//! | tensors, in a file and in a model | 1,048,576 |
//! | keys of metadata | 65,536 |
//! | dimensions | 64 in safetensors, 4 in GGUF (as in GGML) |
//! | names of tensors and keys in GGUF | 65,535 bytes |
//! | files of a model | 4096 |
//! | index of a model | 100,000,000 bytes |

mod cursor;
mod gguf;
mod gguf_value;
mod safetensors;

use std::io::{self, Read};

use crate::malformed::{Malformed, short};
use crate::metadata::Metadata;
use crate::model::Format;
use crate::tensor::Tensor;

pub use self::gguf::parse as parse_gguf;
pub use self::safetensors::parse as parse_safetensors;

/// Most tensors in a file, and in a model.
pub(crate) const MAX_TENSORS: u64 = 1 << 20;
/// Most keys of metadata.
pub(crate) const MAX_KEYS: u64 = 1 << 16;

/// What a header says.
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

/// Why a header cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The header is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Parses the header of a safetensors or GGUF file of `len` bytes, which `file` reads from its
/// start. GGUF files begin with `GGUF`; all others are taken for safetensors.
///
/// # Errors
///
/// [`HeaderError`].
pub fn parse(mut file: impl Read, len: u64) -> Result<Header, HeaderError> {
    let mut magic = [0; 4];
    if len < 8 {
        return Err(Malformed::Truncated { len, needed: 8 }.into());
    }
    file.read_exact(&mut magic)?;
    let whole = magic.as_slice().chain(file);
    if magic == gguf::MAGIC { parse_gguf(whole, len) } else { parse_safetensors(whole, len) }
}

/// Fails if two tensors have the same name.
pub(crate) fn check_names(tensors: &[Tensor]) -> Result<(), Malformed> {
    let names = tensors.iter().map(|tensor| tensor.name.as_str());
    check_unique("tensor", names.collect())
}

fn check_unique(what: &'static str, mut names: Vec<&str>) -> Result<(), Malformed> {
    names.sort_unstable();
    match names.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(Malformed::Duplicate { what, name: short(two[0]) }),
        None => Ok(()),
    }
}
