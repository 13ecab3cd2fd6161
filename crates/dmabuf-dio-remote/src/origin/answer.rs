// SPDX-License-Identifier: MIT OR Apache-2.0
//! What answers of all servers have.

use futures_util::stream::BoxStream;

use crate::trouble::Trouble;

/// The bytes of an answer, piece by piece.
pub(crate) type Body = BoxStream<'static, Result<bytes::Bytes, Trouble>>;

/// Whether the server compares the tag as it is: weak ones match nothing.
pub(crate) fn is_strong(tag: &str) -> bool {
    !tag.starts_with("W/")
}
