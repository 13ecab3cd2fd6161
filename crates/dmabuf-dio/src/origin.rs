// SPDX-License-Identifier: MIT OR Apache-2.0
//! What bytes are loaded from.

use std::fs::File;
use std::sync::Arc;

use crate::content::Content;
use crate::load::Loader;

/// What bytes are loaded from, for code that loads from either.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "bytes are a file's or not")]
pub enum Origin<'f> {
    /// An open file.
    File(&'f File),
    /// A content, which is no file of this machine.
    Content(&'f Arc<dyn Content>),
}

impl<'f> Origin<'f> {
    /// The file, if it is one.
    pub fn file(self) -> Option<&'f File> {
        match self {
            Self::File(file) => Some(file),
            Self::Content(_) => None,
        }
    }

    /// Whether both are the same open file, or the same content.
    pub fn is(self, other: Origin<'_>) -> bool {
        match (self, other) {
            (Self::File(one), Origin::File(other)) => std::ptr::eq(one, other),
            (Self::Content(one), Origin::Content(other)) => {
                std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
            }
            _ => false,
        }
    }
}

impl<'f> From<&'f File> for Origin<'f> {
    fn from(file: &'f File) -> Self {
        Self::File(file)
    }
}

impl<'f> From<&'f Arc<dyn Content>> for Origin<'f> {
    fn from(content: &'f Arc<dyn Content>) -> Self {
        Self::Content(content)
    }
}

impl<'f> From<Origin<'f>> for Loader<'f> {
    fn from(origin: Origin<'f>) -> Self {
        match origin {
            Origin::File(file) => Self::from(file),
            Origin::Content(content) => Loader::from_content(Arc::clone(content)),
        }
    }
}
