// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out which format a file has.

use std::io::Read;

use super::gguf;
use super::parsed::{Header, HeaderError};
use super::safetensors;
use crate::malformed::Malformed;
use crate::mistaken::{HEAD, Mistaken};

/// Parses the header of a safetensors or GGUF file of `len` bytes, which `file` reads from its
/// start. GGUF files begin with `GGUF`; all others are taken for safetensors.
///
/// # Errors
///
/// [`HeaderError`]; [`Malformed::NotAModel`] if it is another kind of file that is known.
pub fn parse(mut file: impl Read, len: u64) -> Result<Header, HeaderError> {
    let mut head = Vec::new();
    file.by_ref().take(len.min(HEAD as u64)).read_to_end(&mut head)?;
    let whole = head.as_slice().chain(file);
    if head.starts_with(&gguf::MAGIC) {
        return gguf::parse(whole, len);
    }
    safetensors::parse(whole, len).map_err(|error| match error {
        HeaderError::Malformed(reason) => match other(&head, len) {
            Some(found) => Malformed::NotAModel { found }.into(),
            None => reason.into(),
        },
        error @ HeaderError::Read(_) => error,
    })
}

/// Recognises a file that is not safetensors. A safetensors file begins with the length of its
/// header and the header, which is an object. The first bytes of compressed data may look like a
/// length, too.
fn other(head: &[u8], len: u64) -> Option<Mistaken> {
    let Some((prefix, json)) = head.split_first_chunk() else { return Mistaken::of(head, len) };
    let header = u64::from_le_bytes(*prefix);
    let fits = (1..=safetensors::MAX_HEADER).contains(&header);
    match json.first() {
        None | Some(b'{') if fits => None,
        Some(0) if fits && json.iter().all(|byte| *byte == 0) => Some(Mistaken::Unfilled),
        _ => Mistaken::of(head, len).or((header > len).then_some(Mistaken::Unknown)),
    }
}
