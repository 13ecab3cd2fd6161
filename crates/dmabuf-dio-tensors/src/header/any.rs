// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out which format a file has.

use std::io::Read;

use super::gguf;
use super::parsed::{Header, HeaderError};
use super::safetensors;
use crate::malformed::Malformed;

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
    if magic == gguf::MAGIC { gguf::parse(whole, len) } else { safetensors::parse(whole, len) }
}
