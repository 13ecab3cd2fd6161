// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads values in the file's byte order and knows how far it may go.

use std::io::Read;

use super::parsed::HeaderError;
use crate::byte_order::ByteOrder;
use crate::malformed::Malformed;

/// The longest header of a GGUF file.
pub(super) const MAX_HEADER: u64 = 128 << 20;

pub(super) struct Cursor<R> {
    file: R,
    /// Bytes read so far.
    at: u64,
    /// Length of the file.
    len: u64,
    order: ByteOrder,
}

impl<R: Read> Cursor<R> {
    pub(super) fn new(file: R, len: u64) -> Self {
        Self { file, at: 0, len, order: ByteOrder::Little }
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn order(&self) -> ByteOrder {
        self.order
    }

    /// The byte order of all further reads.
    pub(super) fn set_order(&mut self, order: ByteOrder) {
        self.order = order;
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

    /// The bytes of a number, the lowest first.
    pub(super) fn number<const N: usize>(&mut self) -> Result<[u8; N], HeaderError> {
        let mut bytes = self.array()?;
        if self.order == ByteOrder::Big {
            bytes.reverse();
        }
        Ok(bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, HeaderError> {
        self.number().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, HeaderError> {
        self.number().map(u64::from_le_bytes)
    }

    /// The bytes of a string preceded by its length, which is at most `limit` bytes.
    pub(super) fn string(&mut self, limit: u64) -> Result<Vec<u8>, HeaderError> {
        let len = self.u64()?;
        if len > limit {
            return Err(Malformed::TooLarge { what: "a name of bytes:", value: len, limit }.into());
        }
        self.bytes(len)
    }

    /// A string that has to be text.
    pub(super) fn text(&mut self, limit: u64) -> Result<String, HeaderError> {
        let bytes = self.string(limit)?;
        let start = self.at - bytes.len() as u64;
        let text = String::from_utf8(bytes);
        let wrong = |at: usize| Malformed::Utf8 { at: start + at as u64 };
        Ok(text.map_err(|error| wrong(error.utf8_error().valid_up_to()))?)
    }
}
