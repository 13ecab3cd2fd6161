// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads little-endian values and knows how far it may go.

use std::io::Read;

use super::parsed::HeaderError;
use crate::malformed::Malformed;

/// The longest header of a GGUF file.
pub(super) const MAX_HEADER: u64 = 128 << 20;

pub(super) struct Cursor<R> {
    file: R,
    /// Bytes read so far.
    at: u64,
    /// Length of the file.
    len: u64,
}

impl<R: Read> Cursor<R> {
    pub(super) fn new(file: R, len: u64) -> Self {
        Self { file, at: 0, len }
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Fails if `count` items of at least `size` bytes each cannot follow.
    pub(super) fn check(&self, count: u64, size: u64) -> Result<(), Malformed> {
        let end = count.checked_mul(size).and_then(|bytes| self.at.checked_add(bytes));
        let needed = end.unwrap_or(u64::MAX);
        if needed > self.len {
            return Err(Malformed::Truncated { len: self.len, needed });
        }
        if needed > MAX_HEADER {
            let what = "a header of bytes:";
            return Err(Malformed::TooLarge { what, value: needed, limit: MAX_HEADER });
        }
        Ok(())
    }

    /// The next `count` bytes.
    pub(super) fn bytes(&mut self, count: u64) -> Result<Vec<u8>, HeaderError> {
        self.check(count, 1)?;
        let mut bytes = vec![0; count as usize];
        self.file.read_exact(&mut bytes)?;
        self.at += count;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], HeaderError> {
        self.check(1, N as u64)?;
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, HeaderError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, HeaderError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A string preceded by its length, which is at most `limit` bytes.
    pub(super) fn string(&mut self, limit: u64) -> Result<String, HeaderError> {
        let len = self.u64()?;
        if len > limit {
            return Err(Malformed::TooLarge { what: "a name of bytes:", value: len, limit }.into());
        }
        let start = self.at;
        let text = String::from_utf8(self.bytes(len)?);
        let wrong = |at: usize| Malformed::Utf8 { at: start + at as u64 };
        Ok(text.map_err(|error| wrong(error.utf8_error().valid_up_to()))?)
    }
}
